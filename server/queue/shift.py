"""One worker id's life, from taking out a lease to ending it."""

import asyncio
import contextlib
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import structlog

from server.db.engine import Database
from server.db.signals import Signals
from server.db.trouble import DATABASE_TROUBLE
from server.queue import metrics
from server.queue.cancel import CANCEL_TOPIC, cancelled_here, claim_cancelled
from server.queue.enqueue import TOPIC
from server.queue.lanes import Lanes
from server.queue.lease import Lease
from server.queue.rescue import give_back_forgotten, rescue, somebody_died
from server.queue.run import Result, Runner, release
from server.queue.slots import Slots, Why
from server.queue.stock import Stock
from server.queue.turn import NOTHING, Taken

log = structlog.get_logger(__name__)

LANES = 2
STALE = 1.0  # seconds after which a job claimed ahead and not yet begun goes back for others to take
SEARCH_SPARES = 50  # a search through all jobs may take one part in so many of our time
LAST_WORDS = 5.0  # seconds that cancelled handlers have to clean up, and the last turn has to be written


@dataclass(frozen=True, slots=True)
class Limits:
    """What the shift keeps to."""

    concurrency: int
    poll_interval: timedelta
    lease: timedelta
    shutdown_timeout: timedelta


class Shift:
    """Slots that run jobs, lanes that fetch them and hand them in, and the lease that makes them ours meanwhile."""

    def __init__(
        self,
        database: Database,
        signals: Signals,
        runner: Runner,
        kinds: Mapping[str, int | None],
        limits: Limits,
    ) -> None:
        self.worker_id: UUID = uuid4()
        self.is_working = False
        self._database = database
        self._signals = signals
        self._runner = runner
        self._kinds = kinds
        self._limits = limits
        self._stock = Stock(kinds, limits.concurrency)
        self._slots = Slots(runner, limits.concurrency, self._settle, is_ours=lambda: self._lease.holds)
        self._lanes = Lanes(
            database,
            self.worker_id,
            self._stock,
            poll_interval=limits.poll_interval,
            command_timeout=limits.lease / 2,
            on_taken=self._slots.add,
        )
        self._lost = asyncio.Event()
        # A dead worker's jobs must be back within the lease, and the rescue itself comes round only now and then.
        self._rescue_every = limits.lease / 20
        self._lease = Lease(database, self.worker_id, length=limits.lease - self._rescue_every, on_lost=self._lost.set)

    async def work(self, stop: asyncio.Event) -> None:
        """Work until told to stop (then finish in order) or until the lease is lost (then drop everything)."""
        await self._lease.begin()
        self._lease.keep()
        tasks: list[asyncio.Task[None]] = []
        self.is_working = True
        try:
            tasks += self._slots.start()
            for name, run in (("listen", self._listen), ("rescue", self._rescue), ("cancel", self._cancel)):
                tasks.append(asyncio.create_task(run(), name=f"worker {name}"))
            tasks += [asyncio.create_task(self._lanes.run(), name="worker lane") for _ in range(LANES)]
            await self._until(stop, tasks)
            if self._lost.is_set():
                await self._drop()
            else:
                await self._drain()
        finally:
            self.is_working = False
            self._lanes.close()
            await _end(tasks)
            with contextlib.suppress(*DATABASE_TROUBLE):
                if await self._lease.end():
                    self._signals.changed([TOPIC])

    async def work_once(self) -> int:
        """Take what is due now, run it, hand it in; return how many that were."""
        await self._lease.begin()
        jobs: list[Taken] = []

        async def run_all() -> None:
            jobs.extend(self._slots.take_back())
            for job, result in zip(jobs, await asyncio.gather(*map(self._runner.run, jobs)), strict=True):
                self._settle(job, result, 0.0)

        try:
            await self._lanes.run_once(run_all)
        finally:
            await self._lease.end()
        return len(jobs)

    async def _until(self, stop: asyncio.Event, tasks: "Sequence[asyncio.Task[None]]") -> None:
        """Wait for the word to stop, the loss of the lease, or a bug in one of our own tasks."""
        ends = [asyncio.create_task(event.wait()) for event in (stop, self._lost)]
        try:
            done, _ = await asyncio.wait([*ends, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await _end(ends)

    def _settle(self, job: Taken, result: Result, seconds: float) -> None:
        self._stock.gave(job)
        self._stock.ran(seconds)
        self._lanes.settle(job, result)

    def _give_back(self, jobs: Sequence[Taken]) -> None:
        for job in jobs:
            self._stock.gave(job)
            self._lanes.settle(job, release(job))

    async def _drain(self) -> None:
        """No new claims; handlers finish in their time, the rest is given back, and everything is handed in."""
        self._lanes.close()
        self._give_back(self._slots.take_back())
        await self._slots.until_free(self._limits.shutdown_timeout.total_seconds())
        self._slots.interrupt_all(Why.RELEASE)
        await self._slots.until_free(LAST_WORDS)
        await self._lanes.until_handed_in(LAST_WORDS)
        self._signals.changed([TOPIC])

    async def _drop(self) -> None:
        """The lease is nearly over: stop everything before somebody else may start it."""
        metrics.LEASES_LOST.add()
        self._lanes.close()
        self._slots.take_back()
        self._slots.interrupt_all(Why.LOST)
        await self._slots.until_free(LAST_WORDS)

    async def _listen(self) -> None:
        """Woken by whoever enqueues; by the clock if nobody wakes us."""
        bell = self._signals.wakeup(TOPIC)
        try:
            while True:
                await bell.wait(self._limits.poll_interval)
                self._lanes.look()
        finally:
            self._signals.forget(TOPIC, bell)

    async def _rescue(self) -> None:
        """Look for the dead all the time; for what only a search through all jobs can find, now and then."""
        pool = self._database.raw
        search_at = 0.0
        while True:
            await asyncio.sleep(self._rescue_every.total_seconds() * random.uniform(0.7, 1.0))
            began = time.monotonic()
            must_search = began >= search_at
            stale = self._slots.take_back(older_than=STALE)
            if stale:
                self._stock.is_slow()
                self._give_back(stale)
            rescued: list[int] = []
            forgotten: list[int] = []
            try:
                if must_search or await somebody_died(pool):
                    rescued = await rescue(pool)
                if must_search or self._lanes.may_have_forgotten:
                    self._lanes.may_have_forgotten = False
                    forgotten = await give_back_forgotten(pool, self.worker_id, self._lanes.known_claims)
            except DATABASE_TROUBLE as error:
                log.warning("worker.rescue_failed", error=type(error).__name__)
                continue
            if must_search:
                took = time.monotonic() - began
                search_at = began + max(self._limits.lease.total_seconds() / 4, took * SEARCH_SPARES)
            if rescued or forgotten:
                metrics.RESCUED.add(by=len(rescued))
                log.warning("worker.rescued", jobs=len(rescued), forgotten=len(forgotten))
            if rescued or forgotten or stale:
                self._lanes.look_everywhere()
                self._signals.changed([TOPIC])

    async def _cancel(self) -> None:
        bell = self._signals.wakeup(CANCEL_TOPIC)
        try:
            pool = self._database.raw
            while True:
                try:
                    self._slots.cancel(await cancelled_here(pool, self.worker_id))
                    claim = random.getrandbits(63)
                    self._lanes.add_claim(claim, 1)
                    try:
                        waiting = await claim_cancelled(pool, self.worker_id, claim, list(self._kinds))
                        self._lanes.add_claim(claim, len(waiting))
                    finally:
                        self._lanes.give_up(claim)
                    self._stock.answered(NOTHING, waiting)
                    for job in waiting:
                        self._settle(job, await self._runner.cancelled(job), 0.0)
                except DATABASE_TROUBLE as error:
                    log.warning("worker.cancel_failed", error=type(error).__name__)
                await bell.wait(self._limits.lease / 4)
        finally:
            self._signals.forget(CANCEL_TOPIC, bell)


async def _end(tasks: "Sequence[asyncio.Task[Any]]") -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=LAST_WORDS)
