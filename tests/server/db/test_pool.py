"""Raw connections: bounded, first come first served, and none is lost."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import asyncpg
import pytest

from server.db import pool as raw
from server.db.pool import RawPool
from tests.support.waiting import until

PID = "SELECT pg_backend_pid()"


class Making:
    """Makes connections, counts them, and fails on demand."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.connections: list[asyncpg.Connection[asyncpg.Record]] = []
        self.is_broken = False

    @property
    def made(self) -> int:
        return len(self.connections)

    async def __call__(self) -> "asyncpg.Connection[asyncpg.Record]":
        if self.is_broken:
            await asyncio.sleep(0.01)
            raise ConnectionError("no server is there")
        connection = await asyncpg.connect(self.url)
        self.connections.append(connection)
        return connection


@pytest.fixture
def making(database_url: str) -> Making:
    return Making(database_url)


@pytest.fixture
async def pool(making: Making) -> AsyncIterator[RawPool]:
    pool = RawPool(making, size=2, timeout=timedelta(seconds=30))
    yield pool
    await pool.close()
    assert pool.in_use == 0


async def test_one_connection_serves_one_after_the_other(pool: RawPool, making: Making):
    assert len({await pool.fetchval(PID) for _ in range(5)}) == 1
    assert making.made == 1
    assert await pool.fetchrow("SELECT 1 WHERE false") is None
    assert await pool.execute("SELECT 1") == "SELECT 1"


async def test_no_more_than_the_bound_and_first_come_first_served(pool: RawPool, making: Making):
    served: list[int] = []
    async with pool.acquire(), pool.acquire():
        pass  # both are there, so that none is made while others wait

    async def use(number: int) -> None:
        async with pool.acquire():
            served.append(number)
            await asyncio.sleep(0.02)

    async with asyncio.TaskGroup() as group:
        for number in range(10):
            group.create_task(use(number))
            await asyncio.sleep(0)
        await until(lambda: pool.waiting)
        assert pool.in_use == 2

    assert served == sorted(served)
    assert making.made == 2
    assert (pool.in_use, pool.waiting) == (0, 0)


async def test_a_cancelled_waiter_takes_no_connection(pool: RawPool, making: Making):
    async with pool.acquire(), pool.acquire():
        waiting = [asyncio.create_task(pool.fetchval(PID)) for _ in range(3)]
        await until(lambda: pool.waiting == 3)
        waiting[0].cancel()
    # The second is given the connection in the moment in which it goes away.
    waiting[1].cancel()

    assert await asyncio.wait_for(waiting[2], 30)
    assert await pool.fetchval(PID)
    assert (pool.in_use, pool.waiting) == (0, 0)
    assert making.made == 2


async def test_waiting_comes_to_an_end(making: Making):
    pool = RawPool(making, size=1, timeout=timedelta(seconds=2))
    async with pool.acquire():
        with pytest.raises(TimeoutError):
            await pool.fetchval(PID)
    assert await pool.fetchval(PID)
    await pool.close()


async def test_a_refused_statement_costs_no_connection_and_a_broken_one_is_replaced(pool: RawPool, making: Making):
    before = await pool.fetchval(PID)
    with pytest.raises(asyncpg.UndefinedTableError):
        await pool.fetch("SELECT * FROM nothing_of_the_kind")
    assert await pool.fetchval(PID) == before

    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await pool.fetch("SELECT pg_terminate_backend(pg_backend_pid())")
    assert await pool.fetchval(PID) != before
    assert making.made == 2


async def test_a_connection_with_an_open_transaction_is_not_reused(pool: RawPool, making: Making):
    async with pool.acquire() as connection:
        pid = connection.get_server_pid()
        await connection.execute("BEGIN")
    assert await pool.fetchval(PID) != pid
    assert making.made == 2


async def test_an_idle_connection_that_broke_is_not_handed_out(pool: RawPool, making: Making):
    async with pool.acquire(), pool.acquire():
        pass
    last, first = making.connections
    async with asyncpg.create_pool(making.url, min_size=1, max_size=1) as other:
        await other.execute("SELECT pg_terminate_backend($1)", last.get_server_pid())
    await until(last.is_closed)

    assert await pool.fetchval(PID) == first.get_server_pid()
    assert pool.in_use == 0


async def test_without_a_server_every_waiter_gets_the_error(pool: RawPool, making: Making):
    making.is_broken = True
    answers = await asyncio.gather(*(pool.fetchval(PID) for _ in range(20)), return_exceptions=True)
    assert [type(each) for each in answers] == [ConnectionError] * 20

    making.is_broken = False
    assert await pool.fetchval(PID)
    assert (pool.in_use, pool.waiting) == (0, 0)


async def test_what_is_not_needed_any_more_is_closed(pool: RawPool, making: Making, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(raw, "IDLE_TIMEOUT", 1.0)
    async with pool.acquire(), pool.acquire():
        pass
    last, first = making.connections

    async def is_first_closed_while_the_last_is_used() -> bool:
        assert await pool.fetchval(PID) == last.get_server_pid()
        return first.is_closed()

    await until(is_first_closed_while_the_last_is_used)
    assert not last.is_closed()
    assert making.made == 2


async def test_closing_waits_for_what_is_in_use_and_serves_nothing_more(making: Making):
    pool = RawPool(making, size=2, timeout=timedelta(seconds=30))
    async with pool.acquire() as connection:
        async with pool.acquire():
            pass  # idle from here on
        closing = asyncio.create_task(pool.close())
        await until(making.connections[1].is_closed)
        assert await connection.fetchval("SELECT 1") == 1
        assert not closing.done()
    await closing

    assert all(each.is_closed() for each in making.connections)
    assert (pool.in_use, making.made) == (0, 2)
    with pytest.raises(asyncpg.InterfaceError):
        await pool.fetchval(PID)


async def test_closing_ends_what_is_not_given_back(making: Making, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(raw, "DRAIN_TIMEOUT", 0.05)
    pool = RawPool(making, size=1, timeout=timedelta(seconds=30))
    async with pool.acquire() as connection:
        await pool.close()
        assert connection.is_closed()


async def test_the_plan_of_a_look_up_by_keys_is_kept_for_one_key_and_for_many(making: Making):
    pool = RawPool(making, size=1, timeout=timedelta(seconds=30))
    await pool.execute("CREATE TABLE thing (id uuid PRIMARY KEY, number int)")
    await pool.execute("INSERT INTO thing SELECT gen_random_uuid(), n FROM generate_series(1, 10000) AS n")
    await pool.execute("ANALYZE thing")
    ids = [row["id"] for row in await pool.fetch("SELECT id FROM thing LIMIT 50")]

    for keys in [ids[:1], ids] * 12:
        found = await pool.fetch_by_keys("SELECT id FROM thing WHERE id = ANY($1::uuid[]) AND number > $2", keys, 0)
        assert {row["id"] for row in found} == set(keys)

    plans = await pool.fetch(
        "SELECT generic_plans, custom_plans FROM pg_prepared_statements WHERE statement LIKE '%number > $2'"
    )
    assert [tuple(each) for each in plans] == [(7, 5), (7, 5)]  # the first five executions are always planned anew
    await pool.close()
