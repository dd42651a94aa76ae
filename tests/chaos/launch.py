"""`pilotlight`, with two instruments for whoever breaks it: a wall clock that can be moved, and a record of its jobs.

    python -m tests.chaos.launch worker

CHAOS_CLOCK names a file with the seconds by which this process's wall clock is wrong; it may change at any time.
CHAOS_RUNS names a file to which a line is added when a job's handler begins and when it ends, and when the machine gave
this process no time to run. Each write of a handler also leaves a row in `chaos_write`, in its own transaction: what
was committed can be compared with who held the job.
"""

import os
import threading
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

import server.clock
from server.cli import main
from server.queue.claim import Claim
from server.queue.run import Result, Runner
from server.queue.turn import Taken

LOOK_EVERY, STALLED = 0.1, 0.4  # seconds
WROTE = text(
    "INSERT INTO chaos_write (job_id, claim, xid) VALUES (:job_id, :claim, pg_current_xact_id()::text::bigint)"
)


def move_the_clock(file: Path) -> None:
    """Both ways in which our code could read the time. Deadlines and leases are monotonic, and stay right."""
    right = time.time

    def error() -> float:
        try:
            return float(file.read_text() or 0)
        except (OSError, ValueError):
            return 0.0

    class Wrong(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return datetime.now(tz) + timedelta(seconds=error())

    server.clock.datetime = Wrong  # pyright: ignore[reportAttributeAccessIssue]
    time.time = lambda: right() + error()


def record_runs(file: Path) -> None:
    """One short write per line: lines of several processes never mix. The monotonic clock is the machine's own."""
    out = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    run = Runner.run

    async def recorded(self: Runner, job: Taken) -> Result:
        line = f"{os.getpid()} {job.id} {job.claim} {job.kind}"
        os.write(out, f"{line} {time.monotonic()} begins\n".encode())
        try:
            return await run(self, job)
        finally:
            os.write(out, f"{line} {time.monotonic()} ends\n".encode())

    Runner.run = recorded
    threading.Thread(target=_record_stalls, args=(out,), daemon=True).start()


def _record_stalls(out: int) -> None:
    """A process that gets no time is as good as frozen, by whoever it is."""
    last = time.monotonic()
    while True:
        time.sleep(LOOK_EVERY)
        now = time.monotonic()
        if now - last > STALLED:
            os.write(out, f"{os.getpid()} 0 0 STALL {last} begins\n{os.getpid()} 0 0 STALL {now} ends\n".encode())
        last = now


def record_writes() -> None:
    write = Claim.write

    @asynccontextmanager
    async def recorded(self: Claim) -> AsyncGenerator[AsyncSession]:
        async with write(self) as session:
            yield session
            await session.execute(WROTE, {"job_id": self.job_id, "claim": self.token})

    Claim.write = recorded


if __name__ == "__main__":
    move_the_clock(Path(os.environ.pop("CHAOS_CLOCK")))
    record_runs(Path(os.environ.pop("CHAOS_RUNS")))
    record_writes()
    main()
