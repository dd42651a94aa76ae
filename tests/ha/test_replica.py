"""Reads from a real streaming replica are never older than what was acknowledged, and fall back to the primary."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from sqlalchemy import text

from server.db.database import Database
from server.db.migrate import upgrade
from server.db.notify import Notifier
from server.db.pool import RawPool
from server.db.wal_position import POSITION
from server.events.replay import cursor_now
from server.events.sequencer import Sequencer
from server.events.tail import Tail
from tests.ha.streaming import PostgresServer, primary_and_replica
from tests.server.events.world import PROJECT, log_of, running, take, write_events
from tests.support.waiting import until

ADD = text("INSERT INTO project (id, name) VALUES (gen_random_uuid(), :name)")
SEEN = text("SELECT count(*) AS many, pg_is_in_recovery() AS is_replica FROM project WHERE name LIKE :names")


@pytest.fixture(scope="module")
async def servers() -> AsyncIterator[tuple[PostgresServer, PostgresServer]]:
    async with primary_and_replica() as (primary, replica):
        await primary.ask("CREATE DATABASE pilotlight")
        await upgrade(primary.url("pilotlight"))
        yield primary, replica


@pytest.fixture
async def database(servers: tuple[PostgresServer, PostgresServer]) -> AsyncIterator[Database]:
    primary, replica = servers
    database = Database(
        primary.url("pilotlight"), read_url=replica.url("pilotlight"), replica_timeout=timedelta(seconds=10)
    )
    await until(lambda: _is_used(database))
    yield database
    await database.close()


@pytest.fixture
async def hasty(servers: tuple[PostgresServer, PostgresServer]) -> AsyncIterator[Database]:
    """A database that waits only 50 ms for its replica."""
    primary, replica = servers
    database = Database(
        primary.url("pilotlight"), read_url=replica.url("pilotlight"), replica_timeout=timedelta(milliseconds=50)
    )
    yield database
    await database.close()


async def add(database: Database, name: str) -> None:
    async with database.write() as session:
        await session.execute(ADD, {"name": name})


async def count(database: Database, names: str) -> tuple[int, bool]:
    """How many there are, and whether the replica said so."""
    async with database.read_from_replica_if_fresh() as session:
        row = (await session.execute(SEEN, {"names": names})).one()
    return row.many, row.is_replica


FETCH = "SELECT count(*) AS many, pg_is_in_recovery() AS is_replica FROM project WHERE name LIKE $1"


async def count_raw(database: Database, names: str) -> tuple[int, bool]:
    """The same by one statement without a session."""
    ((many, is_replica),) = await database.fetch_from_replica_if_fresh(FETCH, names)
    return many, is_replica


async def _is_used(database: Database) -> bool:
    return (await count(database, "nobody"))[1]


async def test_a_writer_reads_its_own_writes_from_the_replica(database: Database):
    found: list[tuple[int, bool]] = []
    for number in range(30):
        await add(database, f"own-{number}")
        found.append(await count(database, "own-%"))

    assert [many for many, _ in found] == list(range(1, 31))
    assert all(is_replica for _, is_replica in found)


async def test_what_another_process_wrote_is_seen_at_once_too(
    servers: tuple[PostgresServer, PostgresServer], database: Database
):
    other = Database(servers[0].url("pilotlight"))
    for number in range(10):
        await add(other, f"other-{number}")
        assert (await count(database, "other-%"))[0] == number + 1
    await other.close()


async def test_a_replica_that_is_behind_is_passed_over(servers: tuple[PostgresServer, PostgresServer], hasty: Database):
    _, replica = servers
    await replica.ask("SELECT pg_wal_replay_pause()")
    try:
        for number in range(5):
            await add(hasty, f"late-{number}")
            assert await count(hasty, "late-%") == (number + 1, False)
    finally:
        await replica.ask("SELECT pg_wal_replay_resume()")

    await until(lambda: _is_used(hasty))
    assert await count(hasty, "late-%") == (5, True)


async def test_a_replica_that_is_gone_costs_no_read(servers: tuple[PostgresServer, PostgresServer], database: Database):
    _, replica = servers
    await add(database, "gone-1")
    await replica.kill()
    try:
        for number in range(5):
            assert await count(database, "gone-%") == (number + 1, False)
            await add(database, f"gone-{number + 2}")
    finally:
        await replica.start()

    await until(lambda: _is_used(database))
    assert (await count(database, "gone-%"))[0] == 6


async def test_the_past_of_the_log_comes_from_the_replica_and_goes_over_into_the_present(
    servers: tuple[PostgresServer, PostgresServer], database: Database
):
    """Behind, in the middle, and in time: the reader sees every position once."""
    _, replica = servers
    signals = Notifier(database)
    async with (
        running(signals),
        running(Sequencer(database, signals)) as sequencer,
        running(Tail(database, signals, ring_size=10)) as tail,
    ):
        await until(lambda: sequencer.is_leader)  # the first leader decides the name of the log
        async with database.read() as session:
            start = await cursor_now(session)
        await write_events(database, 60)
        await replica.ask("SELECT pg_wal_replay_pause()")
        try:
            await write_events(database, 60)
            async with tail.subscribe(project_id=PROJECT, after=start, backlog=200) as events:
                seen = await take(events, 120)
        finally:
            await replica.ask("SELECT pg_wal_replay_resume()")
        async with tail.subscribe(project_id=PROJECT, after=start, backlog=200) as events:
            again = await take(events, 120)
            await write_events(database, 20)
            again += await take(events, 20)
        log = await log_of(database)

    assert [(event.position, event.id) for event in seen] == log[-140:-20]
    assert [(event.position, event.id) for event in again] == log[-140:]
    assert start.position == log[-140][0] - 1


async def test_a_server_that_is_no_replica_is_not_read_as_one(servers: tuple[PostgresServer, PostgresServer]):
    """One that was deposed and does not know it would return data that is never updated."""
    primary, _ = servers
    database = Database(primary.url("pilotlight"), read_url=primary.url("pilotlight"))
    async with database.read_from_replica_if_fresh() as session:
        name = await session.scalar(text("SELECT current_setting('application_name')"))
    await database.close()

    assert name == "pilotlight"  # that of our own pool


async def test_a_single_statement_sees_every_write_that_was_acknowledged(database: Database):
    await until(lambda: _is_used(database))
    found = []
    for number in range(20):
        await add(database, f"single-{number}")
        found.append(await count_raw(database, "single-%"))
    assert found == [(number + 1, True) for number in range(20)]


async def test_reads_at_the_same_time_share_the_question_where_the_primary_is(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    await count_raw(database, "%")
    asked: list[str] = []
    fetch = RawPool.fetch

    async def noted(pool: RawPool, statement: str, *values: Any) -> Any:
        asked.append(statement)
        return await fetch(pool, statement, *values)

    monkeypatch.setattr(RawPool, "fetch", noted)
    assert {is_replica for _, is_replica in await asyncio.gather(*(count_raw(database, "%") for _ in range(8)))} == {
        True
    }
    assert asked == [POSITION]
    await asyncio.gather(*(count_raw(database, "%") for _ in range(3)))
    assert asked == [POSITION] * 2


async def test_a_statement_falls_back_to_the_primary(hasty: Database, servers: tuple[PostgresServer, PostgresServer]):
    _, replica = servers
    await replica.ask("SELECT pg_wal_replay_pause()")
    try:
        await add(hasty, "fallback")
        assert await count_raw(hasty, "fallback") == (1, False)
    finally:
        await replica.ask("SELECT pg_wal_replay_resume()")
    with pytest.raises(asyncpg.PostgresSyntaxError):
        await hasty.fetch_from_replica_if_fresh("SELEC 1")
