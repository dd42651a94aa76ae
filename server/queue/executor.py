"""Runs claimed jobs in a fixed number of long-lived asyncio tasks."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from server.queue.exchange import ClaimedJob
from server.queue.runner import ENDED, Result, Runner, release


class Interruption(Enum):
    """Why a handler is interrupted."""

    RELEASE = auto()
    LOST = auto()
    CANCEL = auto()


@dataclass(slots=True, eq=False)
class JobTask:
    """One asyncio task and the job it runs now."""

    asyncio_task: "asyncio.Task[None] | None" = None
    job: ClaimedJob | None = None
    interruption: Interruption | None = None


class Executor:
    """Tasks are reused for many jobs: creating one costs as much as everything else that a short job needs.

    `on_result` gets the result of each job and the seconds it ran. A claimed job is started only while `is_lease_held`
    returns true: after a pause of this process other workers may have started its jobs.
    """

    def __init__(
        self,
        runner: Runner,
        concurrency: int,
        on_result: Callable[[ClaimedJob, Result, float], None],
        *,
        is_lease_held: Callable[[], bool],
    ) -> None:
        self._runner = runner
        self._on_result = on_result
        self._is_lease_held = is_lease_held
        self._tasks = [JobTask() for _ in range(concurrency)]
        self._backlog: deque[ClaimedJob] = deque()
        self._backlog_since = 0.0
        self._idle: list[asyncio.Future[None]] = []
        self._freed = asyncio.Event()

    def start(self) -> "list[asyncio.Task[None]]":
        started = [asyncio.create_task(self._work(task), name="job task") for task in self._tasks]
        for task, asyncio_task in zip(self._tasks, started, strict=True):
            task.asyncio_task = asyncio_task
        return started

    def add(self, jobs: Sequence[ClaimedJob]) -> None:
        """Run these, in this order."""
        if not self._backlog:
            self._backlog_since = time.monotonic()
        self._backlog.extend(jobs)
        for _ in range(min(len(jobs), len(self._idle))):
            idle = self._idle.pop()
            if not idle.done():
                idle.set_result(None)

    def take_backlog(self, *, older_than: float = 0.0) -> list[ClaimedJob]:
        """Remove and return the jobs that have not started and have waited here for that many seconds."""
        if older_than and (self._idle or time.monotonic() - self._backlog_since < older_than):
            return []
        jobs = list(self._backlog)
        self._backlog.clear()
        return jobs

    @property
    def has_backlog(self) -> bool:
        """Whether jobs wait here because every task is busy."""
        return bool(self._backlog) and not self._idle

    def cancel(self, jobs: Container[tuple[int, int]]) -> None:
        """Interrupt those that run and mark those in the backlog; `jobs` has pairs of id and claim."""
        for task in self._tasks:
            job = task.job
            # Only once: a second interruption would hit the code that ends the job.
            if job is not None and not job.cancel_requested and (job.id, job.claim) in jobs:
                job.cancel_requested = True
                _interrupt(task, Interruption.CANCEL)
        for job in self._backlog:
            if (job.id, job.claim) in jobs:
                job.cancel_requested = True

    def interrupt_all(self, interruption: Interruption) -> None:
        for task in self._tasks:
            _interrupt(task, interruption)

    async def wait_until_idle(self, seconds: float) -> None:
        """Wait until nothing runs, or for that many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while any(task.job is not None for task in self._tasks):
                    self._freed.clear()
                    await self._freed.wait()

    async def _work(self, task: JobTask) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if not self._backlog:
                idle = loop.create_future()
                self._idle.append(idle)
                await idle
                continue
            job = self._backlog.popleft()
            task.job = job
            started = time.perf_counter()
            result = await self._run(task, job) if self._is_lease_held() else ENDED
            task.job = task.interruption = None
            self._on_result(job, result, time.perf_counter() - started)
            self._freed.set()

    async def _run(self, task: JobTask, job: ClaimedJob) -> Result:
        run = self._runner.run
        while True:
            try:
                return await run(job)
            except asyncio.CancelledError:
                interruption, task.interruption = task.interruption, None
                if interruption is None or task.asyncio_task is None:
                    raise
                task.asyncio_task.uncancel()
                match interruption:
                    case Interruption.RELEASE:
                        return release(job)
                    case Interruption.LOST:
                        return ENDED
                    case Interruption.CANCEL:
                        run = self._runner.end_cancelled


def _interrupt(task: JobTask, interruption: Interruption) -> None:
    """Cancel the running handler. A task with a job is inside its handler, so no other code is hit."""
    if task.job is not None and task.asyncio_task is not None:
        task.interruption = interruption
        task.asyncio_task.cancel()
