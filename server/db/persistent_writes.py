"""Writes of what only this process knows, such as when the provider accepted a call: they outlive an outage."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.database import Database
from server.db.outages import is_database_unavailable
from server.errors import LostClaim

log = structlog.get_logger(__name__)

PAUSE = 0.1  # seconds; the run that takes over should find what is written here
PAUSE_MAX = 2.0
WITHIN = timedelta(minutes=10)


class PersistentWrites:
    """One per process."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._tasks: set[asyncio.Task[None]] = set()

    async def write(
        self,
        fact: Callable[[AsyncSession], Awaitable[object]],
        *,
        first: Callable[[], AbstractAsyncContextManager[AsyncSession]],
    ) -> None:
        """Write in a transaction of `first`; while the database is away, again until it is back.

        Repetitions are not fenced by a claim, which may be over by then: `fact` is true whichever run has the job, and
        writing it twice changes nothing. A caller that is cancelled leaves at once, and the write goes on.
        """
        task = asyncio.create_task(self._write(fact, first))
        self._tasks.add(task)
        task.add_done_callback(self._done)
        await asyncio.shield(task)

    async def _write(
        self,
        fact: Callable[[AsyncSession], Awaitable[object]],
        first: Callable[[], AbstractAsyncContextManager[AsyncSession]],
    ) -> None:
        begin, pause = first, PAUSE
        deadline = time.monotonic() + WITHIN.total_seconds()
        while True:
            try:
                async with begin() as session:
                    await fact(session)
                return
            except Exception as error:
                is_late = isinstance(error, LostClaim) or is_database_unavailable(error)
                if not is_late or time.monotonic() > deadline:
                    raise
                log.warning("database.write_again", error=type(error).__name__)
            await asyncio.sleep(pause)
            begin, pause = self._database.write, min(2 * pause, PAUSE_MAX)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # the caller may have gone
