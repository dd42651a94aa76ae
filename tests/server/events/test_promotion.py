"""A promoted standby goes on under the log's name if nothing can be missing, else under another one."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import asyncpg
import pytest

from server.db.engine import Database
from server.db.signals import Signals
from server.events.epoch import LogState, confirm_epoch
from server.events.sequencer import Sequencer
from tests.processes import sooner_or_later

from .world import announce, running, until

Connection = asyncpg.Connection
PATIENT, HASTY = timedelta(seconds=30), timedelta(milliseconds=300)


@pytest.fixture
async def database(new_database, migrated_url: str) -> AsyncIterator[Database]:
    """One of its own: its log's name is played with."""
    database = Database(await new_database(migrated_url))
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
    assert await confirm_epoch(connection, None, witness_within=HASTY) == before  # and now it is at home here


async def test_without_synchronous_replication_something_may_be_missing(connection: Connection):
    before = await promote(connection, is_replicated=False)

    after = await confirm_epoch(connection, before)

    assert (after.epoch != before.epoch, after.head) == (True, 10)


async def test_a_log_that_lacks_what_was_seen_is_another_one(connection: Connection):
    """A backup that was brought to an earlier moment; whoever has seen more knows."""
    restored = await promote(connection, is_replicated=True)
    seen = LogState(restored.epoch, 11)

    after = await confirm_epoch(connection, seen)

    assert after.epoch != restored.epoch
    assert await confirm_epoch(connection, None) == after


async def test_whoever_has_seen_more_is_heard_even_after_somebody_else_vouched(connection: Connection):
    before = await promote(connection, is_replicated=True)
    assert await confirm_epoch(connection, before) == before

    after = await confirm_epoch(connection, LogState(before.epoch, 11))

    assert after.epoch != before.epoch


async def test_a_process_that_has_seen_nothing_waits_for_one_that_has(database: Database, connection: Connection):
    before = await promote(connection, is_replicated=True)
    newcomer = await database.connect()
    waiting = asyncio.create_task(confirm_epoch(newcomer, None, witness_within=PATIENT))
    await asyncio.sleep(0.3)
    assert not waiting.done()

    await confirm_epoch(connection, before)

    assert await waiting == before
    await newcomer.close()


async def test_if_nobody_has_seen_anything_the_log_gets_another_name(connection: Connection):
    before = await promote(connection, is_replicated=True)

    after = await confirm_epoch(connection, None, witness_within=HASTY)

    assert after.epoch != before.epoch


async def test_the_leader_notes_that_nobody_confirms_its_commits(database: Database, connection: Connection):
    await connection.execute("UPDATE event_log SET is_replicated = true")
    async with running(Sequencer(database, Signals(database))) as sequencer:
        await until(lambda: sequencer.is_leader)
        await announce(database, 1)

        async def is_noted() -> bool:
            return not await connection.fetchval("SELECT is_replicated FROM event_log")

        await sooner_or_later(is_noted)
