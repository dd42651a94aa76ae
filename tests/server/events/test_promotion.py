"""A promoted standby keeps the log's name if no event can be missing, and renames it otherwise."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import asyncpg
import pytest

from server.db.database import Database
from server.db.notify import Notifier
from server.events.log_identity import LogState, confirm_epoch
from server.events.sequencer import Sequencer
from tests.support.waiting import until

from .world import running, write_events

Connection = asyncpg.Connection
PATIENT, HASTY = timedelta(seconds=30), timedelta(milliseconds=300)


@pytest.fixture
async def database(new_database) -> AsyncIterator[Database]:
    """One of its own: its log's name is played with."""
    database = Database(await new_database.migrated())
    yield database
    await database.close()


@pytest.fixture
async def connection(database: Database) -> AsyncIterator[Connection]:
    connection = await database.connect()
    await confirm_epoch(connection)
    yield connection
    await connection.close()


async def promote(connection: Connection, *, is_replicated: bool, head: int = 10) -> LogState:
    """As if everything up to `head` had been written on an earlier timeline."""
    row = await connection.fetchrow(
        "UPDATE event_log SET home = regexp_replace(home, '/[0-9A-F]{8}/', '/00000000/'), is_replicated = $1, head = $2"
        " RETURNING epoch",
        is_replicated,
        head,
    )
    return LogState(row["epoch"], head)


async def test_what_was_replicated_and_is_all_there_keeps_its_name(connection: Connection):
    before = await promote(connection, is_replicated=True)

    assert await confirm_epoch(connection, before) == before
    assert await confirm_epoch(connection, None, promotion_timeout=HASTY) == before  # and now it is at home here


async def test_without_synchronous_replication_something_may_be_missing(connection: Connection):
    before = await promote(connection, is_replicated=False)

    after = await confirm_epoch(connection, before)

    assert (after.epoch != before.epoch, after.head) == (True, 10)


async def test_a_log_that_lacks_what_was_seen_is_another_one(connection: Connection):
    """A backup restored to an earlier moment; processes that have seen more events can tell."""
    restored = await promote(connection, is_replicated=True)
    seen = LogState(restored.epoch, 11)

    after = await confirm_epoch(connection, seen)

    assert after.epoch != restored.epoch
    assert await confirm_epoch(connection, None) == after


async def test_a_process_that_has_seen_more_counts_even_after_another_confirmed(connection: Connection):
    before = await promote(connection, is_replicated=True)
    assert await confirm_epoch(connection, before) == before

    after = await confirm_epoch(connection, LogState(before.epoch, 11))

    assert after.epoch != before.epoch


async def test_a_process_that_has_seen_nothing_waits_for_one_that_has(database: Database, connection: Connection):
    before = await promote(connection, is_replicated=True)
    newcomer = await database.connect()
    waiting = asyncio.create_task(confirm_epoch(newcomer, None, promotion_timeout=PATIENT))
    await asyncio.sleep(0.3)
    assert not waiting.done()

    await confirm_epoch(connection, before)

    assert await waiting == before
    await newcomer.close()


async def test_if_no_process_has_seen_anything_the_log_gets_another_name(connection: Connection):
    before = await promote(connection, is_replicated=True)

    after = await confirm_epoch(connection, None, promotion_timeout=HASTY)

    assert after.epoch != before.epoch


async def test_the_leader_records_that_no_standby_confirms_its_commits(database: Database, connection: Connection):
    await connection.execute("UPDATE event_log SET is_replicated = true")
    async with running(Sequencer(database, Notifier(database))) as sequencer:
        await until(lambda: sequencer.is_leader)
        await write_events(database, 1)

        async def is_noted() -> bool:
            return not await connection.fetchval("SELECT is_replicated FROM event_log")

        await until(is_noted)
