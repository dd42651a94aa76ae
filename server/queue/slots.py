"""The places where handlers run: as many long-lived tasks as may run at once, fed from what was claimed."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from server.queue.run import ENDED, Result, Runner, release
from server.queue.turn import Taken


class Why(Enum):
    """The reason for which a handler is interrupted."""

    RELEASE = auto()
    LOST = auto()
    CANCEL = auto()


@dataclass(slots=True, eq=False)
class Slot:
    """One place."""

    task: "asyncio.Task[None] | None" = None
    job: Taken | None = None
    why: Why | None = None


class Slots:
    """A task per slot and not per job: making a task costs as much as all the rest that a short job needs.

    `settle` is told what became of each job, and how long it ran. What was claimed is begun only while `is_ours` says
    so: a process that was stopped for a while may find jobs that others have begun by now.
    """

    def __init__(
        self,
        runner: Runner,
        many: int,
        settle: Callable[[Taken, Result, float], None],
        *,
        is_ours: Callable[[], bool],
    ) -> None:
        self._runner = runner
        self._settle = settle
        self._is_ours = is_ours
        self._slots = [Slot() for _ in range(many)]
        self._backlog: deque[Taken] = deque()
        self._backlog_since = 0.0
        self._idle: list[asyncio.Future[None]] = []
        self._freed = asyncio.Event()

    def start(self) -> "list[asyncio.Task[None]]":
        tasks: list[asyncio.Task[None]] = []
        for slot in self._slots:
            slot.task = asyncio.create_task(self._work(slot), name="job slot")
            tasks.append(slot.task)
        return tasks

    def add(self, jobs: Sequence[Taken]) -> None:
        """Run these, in this order."""
        if not self._backlog:
            self._backlog_since = time.monotonic()
        self._backlog.extend(jobs)
        for _ in range(min(len(jobs), len(self._idle))):
            idle = self._idle.pop()
            if not idle.done():
                idle.set_result(None)

    def take_back(self, *, older_than: float = 0.0) -> list[Taken]:
        """What has not begun and has waited here for that many seconds; it is no longer ours to run."""
        if older_than and (self._idle or time.monotonic() - self._backlog_since < older_than):
            return []
        jobs = list(self._backlog)
        self._backlog.clear()
        return jobs

    def cancel(self, jobs: Container[tuple[int, int]]) -> None:
        """Interrupt those that run and mark those that do not yet; given by id and claim."""
        for slot in self._slots:
            job = slot.job
            # Once is enough: a second interruption would hit the ending.
            if job is not None and not job.cancel_requested and (job.id, job.claim) in jobs:
                job.cancel_requested = True
                _interrupt(slot, Why.CANCEL)
        for job in self._backlog:
            if (job.id, job.claim) in jobs:
                job.cancel_requested = True

    def interrupt_all(self, why: Why) -> None:
        for slot in self._slots:
            _interrupt(slot, why)

    async def until_free(self, seconds: float) -> None:
        """Wait until nothing runs, but not longer than that."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while any(slot.job is not None for slot in self._slots):
                    self._freed.clear()
                    await self._freed.wait()

    async def _work(self, slot: Slot) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if not self._backlog:
                idle = loop.create_future()
                self._idle.append(idle)
                await idle
                continue
            job = self._backlog.popleft()
            slot.job = job
            started = time.perf_counter()
            result = await self._run(slot, job) if self._is_ours() else ENDED
            slot.job = slot.why = None
            self._settle(job, result, time.perf_counter() - started)
            self._freed.set()

    async def _run(self, slot: Slot, job: Taken) -> Result:
        run = self._runner.run
        while True:
            try:
                return await run(job)
            except asyncio.CancelledError:
                why, slot.why = slot.why, None
                if why is None or slot.task is None:
                    raise
                slot.task.uncancel()
                match why:
                    case Why.RELEASE:
                        return release(job)
                    case Why.LOST:
                        return ENDED
                    case Why.CANCEL:
                        run = self._runner.cancelled


def _interrupt(slot: Slot, why: Why) -> None:
    """Cancel what runs there. A slot with a job is inside its handler, so nothing else can be hit."""
    if slot.job is not None and slot.task is not None:
        slot.why = why
        slot.task.cancel()
