"""Real worker processes for tests that kill, stop and cut them off.

Forked from one process that has everything imported, so that a new worker takes milliseconds. What handlers do is seen
through files in a folder and rows in the table `proof`.
"""

import asyncio
import contextlib
import fcntl
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import text

from server.db.database import Database
from server.db.notify import Notifier
from server.db.timeouts import Timeouts
from server.errors import LostClaim
from server.queue.claim import Claim
from server.queue.handler import Done, Handler, Outcome
from server.queue.kinds import Work
from server.queue.worker import Worker

PROOF = "CREATE TABLE proof (number bigint, by bigint, PRIMARY KEY (number, by))"
PROVE = text("INSERT INTO proof (number, by) VALUES (:number, :by) ON CONFLICT DO NOTHING")


@dataclass(frozen=True, slots=True)
class ExclusiveStep(Work):
    """Short work that only one process may be doing at a time."""

    kind = "TEST_STEP"

    number: int


@dataclass(frozen=True, slots=True)
class Hang(Work):
    """Work that waits for a file before it writes, and tries to write even if it is cancelled."""

    kind = "TEST_HANG"

    number: int
    in_transaction: bool = False


def handlers(folder: Path) -> dict[str, Handler]:
    async def step(work: ExclusiveStep, claim: Claim) -> Outcome:
        with alone(folder, work.number):
            await asyncio.sleep(random.uniform(0, 0.02))
            async with claim.write() as session:
                await session.execute(PROVE, {"number": work.number, "by": 0})
            await asyncio.sleep(random.uniform(0, 0.02))
        return Done()

    async def hang(work: Hang, claim: Claim) -> Outcome:
        if work.in_transaction:
            async with claim.write() as session:
                await session.execute(PROVE, {"number": work.number, "by": os.getpid()})
                (folder / f"{os.getpid()} began").touch()
                await exists(folder / f"{os.getpid()} go")
            return Done()
        (folder / f"{os.getpid()} began").touch()
        while True:
            try:
                await exists(folder / f"{os.getpid()} go")
                async with claim.write() as session:
                    await session.execute(PROVE, {"number": work.number, "by": os.getpid()})
                return Done()
            except asyncio.CancelledError:
                (folder / f"{os.getpid()} cancelled").write_text(str(time.time()))
            except LostClaim:
                (folder / f"{os.getpid()} refused").touch()
                raise

    return {"TEST_STEP": Handler(step), "TEST_HANG": Handler(hang)}


async def exists(path: Path) -> None:
    while not path.exists():  # noqa: ASYNC110 - another process makes it
        await asyncio.sleep(0.01)


@contextlib.contextmanager
def alone(folder: Path, number: int) -> Iterator[None]:
    """Hold a lock that the kernel frees the moment this process dies; leave a file if another process holds it."""
    with (folder / f"lock {number}").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            (folder / f"two at once {number} {time.time()}").touch()
        yield


class Forker:
    """The parent's side of the process that workers are forked from."""

    def __init__(self, log: Path) -> None:
        with log.open("w") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.server.queue.crew"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
            )

    def fork(self, url: str, lease: float, folder: Path) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{url} {lease} {folder}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


class Crew:
    """The workers of one test."""

    def __init__(self, forker: Forker, folder: Path) -> None:
        self.folder = folder
        self._forker = forker
        self._workers: list[int] = []

    def start(self, url: str, lease: float) -> int:
        """The process id of a new worker."""
        self._workers.append(self._forker.fork(url, lease, self.folder))
        return self._workers[-1]

    def end(self) -> None:
        for worker in self._workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies
    me = os.getpid()
    for line in sys.stdin:
        url, lease, folder = line.split()
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            sys.stdin.close()
            os.dup2(2, 1)  # the answers to the parent's questions are not for the log
            asyncio.run(_work(url, float(lease), Path(folder), me))
            os._exit(0)
        print(child, flush=True)  # noqa: T201


async def _work(url: str, lease: float, folder: Path, parent: int) -> None:
    random.seed(os.getpid())
    database = Database(url, timeouts=Timeouts(statement=timedelta(seconds=5)))
    notifier = Notifier(database)
    notifier.start()
    worker = Worker(
        database, notifier, handlers(folder), lease=timedelta(seconds=lease), poll_interval=timedelta(milliseconds=200)
    )
    loop = asyncio.get_running_loop()
    stopping: list[asyncio.Task[Any]] = []
    loop.add_signal_handler(signal.SIGTERM, lambda: stopping.append(asyncio.ensure_future(worker.stop())))
    running = asyncio.ensure_future(worker.run())
    while not running.done():
        if os.getppid() != parent:
            os._exit(1)  # the tests are over
        await asyncio.wait([running], timeout=0.2)
    await notifier.stop()
    await database.close()


if __name__ == "__main__":
    main()
