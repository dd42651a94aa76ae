"""The worker of a process: one session after the other, and recurring jobs."""

import asyncio
import contextlib
import random
from collections.abc import Mapping, Sequence
from datetime import timedelta

import structlog

from server.db.database import Database
from server.db.notify import Notifier
from server.db.outages import DATABASE_ERRORS
from server.db.seals import Seals
from server.queue.claim import Claim
from server.queue.handler import Handler
from server.queue.kinds import class_of
from server.queue.line_producer import FreeTurns, JobTurns
from server.queue.runner import Backoff, Runner
from server.queue.schedule import Recurring, declare, fire_due, time_to_next
from server.queue.session import WorkerLimits, WorkerSession

__all__ = ["Backoff", "Claim", "Handler", "Recurring", "Worker"]

log = structlog.get_logger(__name__)


class Worker:
    """Any number of processes may run workers. A worker survives every outage of PostgreSQL."""

    def __init__(
        self,
        database: Database,
        notifier: Notifier,
        handlers: Mapping[str, Handler],
        *,
        concurrency: int = 10,
        poll_interval: timedelta = timedelta(seconds=1),
        lease: timedelta = timedelta(seconds=20),
        max_attempts: int = 3,
        shutdown_timeout: timedelta = timedelta(seconds=30),
        backoff: Backoff | None = None,
        recurring: Sequence[Recurring] = (),
        turns: JobTurns | None = None,
        seals: Seals | None = None,
    ) -> None:
        self._database = database
        self._notifier = notifier
        self._kinds = {kind: class_of(kind).concurrency for kind in handlers}
        self._limits = WorkerLimits(concurrency, poll_interval, lease, shutdown_timeout)
        self._runner = Runner(
            database,
            handlers,
            seals or Seals(database),
            max_attempts=max_attempts,
            backoff=backoff or Backoff(),
            idle_timeout=min(lease, database.timeouts.idle),
        )
        self._recurring = recurring
        self._turns = turns or FreeTurns()
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._session: WorkerSession | None = None

    async def run(self) -> None:
        """Work until `stop`. A lost lease or database ends a session; the next one begins as soon as possible."""
        clock = asyncio.create_task(self._fire_recurring(), name="recurring jobs")
        try:
            while not self._stop.is_set():
                self._session = self._new_session()
                try:
                    await self._session.work(self._stop)
                except DATABASE_ERRORS as error:
                    log.warning("worker.no_database", error=type(error).__name__)
                except Exception:
                    log.exception("worker.shift_broke")
                await self._sleep(random.uniform(0.1, 0.5))
        finally:
            clock.cancel()
            await asyncio.wait([clock])

    @property
    def is_working(self) -> bool:
        """Whether it holds a lease and claims jobs now."""
        return self._session is not None and self._session.is_working

    def start(self) -> None:
        """Run in the background."""
        self._task = asyncio.create_task(self.run(), name="worker")

    async def stop(self) -> None:
        """Claim no more; running handlers get the shutdown timeout; the rest is released, no attempt counted."""
        self._stop.set()
        if self._task is not None:
            await self._task
            self._task = None

    async def work_once(self) -> int:
        """Run what is due now, at most `concurrency` jobs, and return their number. Needs no `start`."""
        return await self._new_session().work_once()

    def _new_session(self) -> WorkerSession:
        return WorkerSession(self._database, self._notifier, self._runner, self._kinds, self._limits, self._turns)

    async def _fire_recurring(self) -> None:
        declared = False
        while self._recurring:
            try:
                if not declared:
                    await declare(self._database, self._recurring)
                    declared = True
                await fire_due(self._database, self._recurring)
                left = await time_to_next(self._database, self._recurring)
            except DATABASE_ERRORS as error:
                log.warning("worker.recurring_failed", error=type(error).__name__)
                left = timedelta(seconds=1)
            # At most a minute: another version of the code may have changed an interval.
            await asyncio.sleep(min(left.total_seconds(), 60) + random.uniform(0.01, 0.05))

    async def _sleep(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()
