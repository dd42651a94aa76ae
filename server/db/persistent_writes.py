"""Writes of what only this process knows, such as when the provider accepted a call: they outlive an outage."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from functools import partial

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

    def __init__(self, database: Database, *, within: timedelta = WITHIN) -> None:
        self._database = database
        self._within = within
        self._tasks: set[asyncio.Task[None]] = set()

    async def write(
        self,
        fact: Callable[[AsyncSession], Awaitable[object]],
        *,
        first: Callable[[], AbstractAsyncContextManager[AsyncSession]],
        words: Mapping[str, object],
    ) -> None:
        """Write in a transaction of `first`; while the database is away, again until it is back.

        Repetitions are not fenced by a claim, which may be over by then: `fact` is true whichever run has the job, and
        writing it twice changes nothing. A caller that is cancelled leaves at once, and the write goes on. `words` is
        the fact for the log, which has it if it can't be written.
        """
        task = asyncio.create_task(self._write(fact, first))
        self._tasks.add(task)
        task.add_done_callback(partial(self._done, words))
        await asyncio.shield(task)

    async def _write(
        self,
        fact: Callable[[AsyncSession], Awaitable[object]],
        first: Callable[[], AbstractAsyncContextManager[AsyncSession]],
    ) -> None:
        begin, pause = first, PAUSE
        deadline = time.monotonic() + self._within.total_seconds()
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

    def _done(self, words: Mapping[str, object], task: asyncio.Task[None]) -> None:
        """The caller may have gone, and a task that is cancelled ends with its process."""
        self._tasks.discard(task)
        if task.cancelled():
            log.error("database.fact_lost", **words, error="cancelled")
        elif error := task.exception():
            is_ours = not is_database_unavailable(error)
            log.error("database.fact_lost", **words, error=type(error).__name__, exc_info=error if is_ours else None)
