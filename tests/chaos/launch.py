"""`pilotlight` for chaos runs: a wall clock that can be moved, a record of its jobs, and lifetimes of a few seconds.

    python -m tests.chaos.launch worker

CHAOS_CLOCK names a file with the seconds by which this process's wall clock is wrong; it may change at any time.
CHAOS_RUNS names a file to which a line is added when a job's handler begins and when it ends, when the machine gave
the event loop of the handlers no time to run, and when a reconcile has compared everything. Each write of a handler
also leaves a row in `chaos_write`, in its own transaction: what was committed can be compared with who held the job.
"""

import asyncio
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
import server.instances.limits.spec as limits
import server.jobs.reconcile as reconcile_job
from server.cli.main import main
from server.queue.claim import Claim
from server.queue.exchange import ClaimedJob
from server.queue.runner import Result, Runner

# Seconds. With the lease of these runs, a lost one is noticed 0.76 s before its end. Without half of that, handlers may
# end too late, and no code of ours could change it.
CHECK_EVERY, STALLED = 0.1, 0.38
WROTE = text(
    "INSERT INTO chaos_write (job_id, claim, xid) VALUES (:job_id, :claim, pg_current_xact_id()::text::bigint)"
)


def shift_the_clock(file: Path) -> None:
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
    watched: set[int] = set()

    async def recorded(self: Runner, job: ClaimedJob) -> Result:
        if threading.get_ident() not in watched:
            watched.add(threading.get_ident())
            loop, clock = asyncio.get_running_loop(), time.pthread_getcpuclockid(threading.get_ident())
            threading.Thread(target=_record_stalls, args=(out, loop, clock), daemon=True).start()
        line = f"{os.getpid()} {job.id} {job.claim} {job.kind}"
        os.write(out, f"{line} {time.monotonic()} begins\n".encode())
        try:
            return await run(self, job)
        finally:
            os.write(out, f"{line} {time.monotonic()} ends\n".encode())

    Runner.run = recorded
    _record_reconciles(out)


def _record_reconciles(out: int) -> None:
    """Only those that were carried out to their end: one that the provider's outage put off has checked nothing."""
    compare = reconcile_job.compare_all

    async def recorded(*args: Any, **options: Any) -> Any:
        began = time.monotonic()
        report = await compare(*args, **options)
        ended = time.monotonic()
        line = f"{os.getpid()} 0 0 RECONCILED"
        os.write(out, f"{line} {began} begins\n{line} {ended} ends\n".encode())
        return report

    reconcile_job.compare_all = recorded


def _record_stalls(out: int, loop: asyncio.AbstractEventLoop, clock: int) -> None:
    """A process that gets no CPU time counts as frozen.

    Measured at the loop that has to cancel the handlers: how late it answers, without the CPU time that it used
    meanwhile, because a handler that blocks it is no excuse. A thread that only sleeps gets its turn sooner than a busy
    one, so its own delay would not show what the loop had to wait for.
    """
    while True:
        began, used = time.monotonic(), time.clock_gettime(clock)
        time.sleep(CHECK_EVERY)
        answered = threading.Event()
        try:
            loop.call_soon_threadsafe(answered.set)
        except RuntimeError:
            return  # the loop has ended
        answered.wait()
        ended = time.monotonic()
        if ended - began - CHECK_EVERY - (time.clock_gettime(clock) - used) > STALLED:
            line = f"{os.getpid()} 0 0 STALL"
            os.write(out, f"{line} {began} begins\n{line} {ended} ends\n".encode())


def record_writes() -> None:
    write = Claim.write

    @asynccontextmanager
    async def recorded(self: Claim) -> AsyncGenerator[AsyncSession]:
        async with write(self) as session:
            yield session
            await session.execute(WROTE, {"job_id": self.job_id, "claim": self.token})

    Claim.write = recorded


def allow_short_lifetimes() -> None:
    """So that lifetimes end while faults are injected."""
    limits.SHORTEST = limits.SHORTEST_HEARTBEAT = timedelta(seconds=3)


if __name__ == "__main__":
    shift_the_clock(Path(os.environ.pop("CHAOS_CLOCK")))
    record_runs(Path(os.environ.pop("CHAOS_RUNS")))
    record_writes()
    allow_short_lifetimes()
    main()
