"""The worker: claims jobs, runs them under a lease, hands them in, and stops in order."""

import asyncio
import contextlib
import random
from collections.abc import Mapping, Sequence
from datetime import timedelta

import structlog

from server.db.engine import Database
from server.db.signals import Signals
from server.db.trouble import DATABASE_TROUBLE
from server.queue.backoff import Backoff
from server.queue.claim import Claim
from server.queue.handler import Handler
from server.queue.kinds import class_of
from server.queue.recurring import Recurring, declare, fire_due, next_in
from server.queue.run import Runner
from server.queue.shift import Limits, Shift

__all__ = ["Backoff", "Claim", "Handler", "Recurring", "Worker"]

log = structlog.get_logger(__name__)


class Worker:
    """One per process; any number of processes may run. It survives whatever happens to PostgreSQL meanwhile."""

    def __init__(
        self,
        database: Database,
        signals: Signals,
        handlers: Mapping[str, Handler],
        *,
        concurrency: int = 10,
        poll_interval: timedelta = timedelta(seconds=1),
        lease: timedelta = timedelta(seconds=20),
        max_attempts: int = 3,
        shutdown_timeout: timedelta = timedelta(seconds=30),
        backoff: Backoff | None = None,
        recurring: Sequence[Recurring] = (),
    ) -> None:
        self._database = database
        self._signals = signals
        self._kinds = {kind: class_of(kind).concurrency for kind in handlers}
        self._limits = Limits(concurrency, poll_interval, lease, shutdown_timeout)
        self._runner = Runner(
            database, handlers, max_attempts=max_attempts, backoff=backoff or Backoff(), patience=lease
        )
        self._recurring = recurring
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._now: Shift | None = None

    async def run(self) -> None:
        """Work until `stop`. A lost lease or a lost database ends a shift; the next begins as soon as it can."""
        clock = asyncio.create_task(self._keep_time(), name="recurring jobs")
        try:
            while not self._stop.is_set():
                self._now = self._shift()
                try:
                    await self._now.work(self._stop)
                except DATABASE_TROUBLE as error:
                    log.warning("worker.no_database", error=type(error).__name__)
                except Exception:
                    log.exception("worker.shift_broke")
                await self._pause(random.uniform(0.1, 0.5))
        finally:
            clock.cancel()
            await asyncio.wait([clock])

    @property
    def is_working(self) -> bool:
        """Whether it holds a lease and looks for jobs at this moment."""
        return self._now is not None and self._now.is_working

    def start(self) -> None:
        """Run in the background."""
        self._task = asyncio.create_task(self.run(), name="worker")

    async def stop(self) -> None:
        """No new claims; running handlers get the shutdown timeout; the rest is given back, with no attempt counted."""
        self._stop.set()
        if self._task is not None:
            await self._task
            self._task = None

    async def work_once(self) -> int:
        """Run what is due now, at most as many as there are slots, and return how many that were. Needs no `start`."""
        return await self._shift().work_once()

    def _shift(self) -> Shift:
        return Shift(self._database, self._signals, self._runner, self._kinds, self._limits)

    async def _keep_time(self) -> None:
        declared = False
        while self._recurring:
            try:
                if not declared:
                    await declare(self._database, self._recurring)
                    declared = True
                await fire_due(self._database, self._recurring)
                left = await next_in(self._database, self._recurring)
            except DATABASE_TROUBLE as error:
                log.warning("worker.recurring_failed", error=type(error).__name__)
                left = timedelta(seconds=1)
            # Not longer than a minute: another version of the code may have changed an interval meanwhile.
            await asyncio.sleep(min(left.total_seconds(), 60) + random.uniform(0.01, 0.05))

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()
