"""Fixtures: a running sequencer and tail."""

from collections.abc import AsyncIterator

import pytest
from sqlalchemy import text

from server.db.database import Database
from server.db.notify import Notifier
from server.events.sequencer import Sequencer
from server.events.tail import Tail

from .world import running


@pytest.fixture
async def empty_log(new_database) -> AsyncIterator[Database]:
    """A database whose log has not begun: no name, no partition, no position given out."""
    database = Database(await new_database.migrated())
    async with database.write() as session:
        made = await session.execute(
            text("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'event'::regclass")
        )
        for name in made.scalars():
            await session.execute(text(f"DROP TABLE {name}"))
        await session.execute(text("DELETE FROM event_log"))
    yield database
    await database.close()


@pytest.fixture
async def sequencer(database: Database, signals: Notifier) -> AsyncIterator[Sequencer]:
    async with running(Sequencer(database, signals)) as sequencer:
        yield sequencer


@pytest.fixture
async def tail(sequencer: Sequencer, database: Database, signals: Notifier) -> AsyncIterator[Tail]:
    async with running(Tail(database, signals)) as tail:
        yield tail
