"""read() and write(): what each may do, and when commits are signalled."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import new_id
from server.db.database import Database, notify_after_commit
from server.db.timeouts import Timeouts
from tests.support.proxy import Proxy
from tests.support.waiting import until

Work = Callable[[Database, Proxy], Awaitable[None]]

ADD = text("INSERT INTO project (id, name) VALUES (:id, :name)")
COUNT = text("SELECT count(*) FROM project")


async def add(session: AsyncSession, name: str) -> None:
    await session.execute(ADD, {"id": new_id(), "name": name})


async def count(database: Database) -> int:
    async with database.read() as session:
        return (await session.execute(COUNT)).scalar_one()


@pytest.fixture
async def signalled(database: Database) -> list[set[str]]:
    topics: list[set[str]] = []
    database.on_commit = topics.append
    return topics


@pytest.fixture
async def narrow(database_url: str) -> AsyncIterator[Database]:
    """One connection."""
    database = Database(database_url, pool_size=1)
    yield database
    await database.close()


@pytest.fixture
async def hasty(database_url: str) -> AsyncIterator[Database]:
    """One connection, and little patience; long enough for a slow machine to connect."""
    database = Database(database_url, pool_size=1, timeouts=Timeouts(statement=timedelta(seconds=2)))
    yield database
    await database.close()


async def test_a_read_cannot_write(database: Database):
    async def write_while_reading() -> None:
        async with database.read() as session:
            await add(session, "sneaky")

    with pytest.raises(DBAPIError, match="read-only transaction"):
        await write_while_reading()
    assert await count(database) == 0


async def test_a_read_sees_one_moment(database: Database):
    async with database.read() as session:
        before = (await session.execute(COUNT)).scalar_one()
        async with database.write() as other:
            await add(other, "meanwhile")
        assert (await session.execute(COUNT)).scalar_one() == before
    assert await count(database) == before + 1


async def test_a_connection_that_read_can_write_afterwards(narrow: Database):
    assert await count(narrow) == 0
    async with narrow.write() as session:
        await add(session, "after")
    assert await count(narrow) == 1


async def test_a_write_is_committed_once_at_its_end(database: Database):
    async with database.write() as session:
        await add(session, "one")
        await add(session, "two")
        assert await count(database) == 0
    assert await count(database) == 2


class Regret(Exception):
    pass


async def test_a_write_that_fails_leaves_nothing_and_signals_nothing(database: Database, signalled: list[set[str]]):
    async def regret() -> None:
        async with database.write() as session:
            await add(session, "one")
            notify_after_commit(session, "project")
            raise Regret

    with pytest.raises(Regret):
        await regret()
    assert await count(database) == 0
    assert signalled == []


async def test_a_commit_that_fails_signals_nothing(database: Database, signalled: list[set[str]]):
    async def break_a_deferred_rule() -> None:
        async with database.write() as session:
            await add(session, "owner")
            notify_after_commit(session, "project")
            await session.execute(
                text(
                    "INSERT INTO idempotency_key (project_id, key, fingerprint, operation_id)"
                    " SELECT id, 'k', '', :none FROM project"
                ),
                {"none": new_id()},
            )

    with pytest.raises(DBAPIError, match="idempotency_key_operation_id_fkey"):
        await break_a_deferred_rule()
    assert await count(database) == 0
    assert signalled == []


async def test_a_signal_is_sent_once_and_after_the_commit(database: Database):
    seen_by_others: list[int] = []
    tasks: list[asyncio.Task[None]] = []

    async def read_count() -> None:
        seen_by_others.append(await count(database))

    database.on_commit = lambda _: tasks.append(asyncio.create_task(read_count()))
    async with database.write() as session:
        await add(session, "one")
        notify_after_commit(session, "project")
        notify_after_commit(session, "project")
        await asyncio.sleep(0)
        assert tasks == []
    await asyncio.gather(*tasks)

    assert seen_by_others == [1]


async def test_a_write_that_changes_nothing_signals_nothing(database: Database, signalled: list[set[str]]):
    async with database.write() as session:
        await session.execute(COUNT)
    assert signalled == []


async def test_a_connection_is_given_back_before_the_network_is_waited_for(narrow: Database):
    """What handlers do: read, close, talk, write. Many of them fit on one connection."""
    talking = asyncio.Event()

    async def handler() -> int:
        found = await count(narrow)
        await talking.wait()
        return found + await count(narrow)

    handlers = [asyncio.create_task(handler()) for _ in range(20)]
    assert await count(narrow) == 0
    talking.set()
    assert await asyncio.gather(*handlers) == [0] * 20


async def test_no_more_connections_than_the_bound_and_a_clear_end_to_waiting(hasty: Database):
    async with hasty.read():
        with pytest.raises(PoolTimeout):
            await count(hasty)
    assert await count(hasty) == 0


async def test_a_statement_that_takes_too_long_is_given_up(hasty: Database):
    async def sleep() -> None:
        async with hasty.read() as session:
            await session.execute(text("SELECT pg_sleep(60)"))

    with pytest.raises(TimeoutError):
        await sleep()
    assert await count(hasty) == 0


async def test_a_killed_connection_is_replaced(narrow: Database, database: Database):
    await count(narrow)
    async with database.write() as session:
        await session.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        )

    async def try_again() -> int:
        try:
            return await count(narrow)
        except (DBAPIError, OSError):
            return await count(narrow)

    assert await try_again() == 0


async def begin(database: Database, proxy: Proxy) -> None:
    proxy.stall()
    await count(database)


async def end_of_a_read(database: Database, proxy: Proxy) -> None:
    async with database.read() as session:
        await session.execute(COUNT)
        proxy.stall()


async def statement(database: Database, proxy: Proxy) -> None:
    async with database.write() as session:
        await session.execute(COUNT)
        proxy.stall()
        await session.execute(COUNT)


async def between_two(database: Database, proxy: Proxy) -> None:
    async with database.write() as session:
        await session.execute(COUNT)
        proxy.stall()
        await asyncio.sleep(600)


async def commit(database: Database, proxy: Proxy) -> None:
    async with database.write() as session:
        await session.execute(COUNT)
        proxy.stall()


async def rollback(database: Database, proxy: Proxy) -> None:
    async with database.write() as session:
        await session.execute(COUNT)
        proxy.stall()
        raise LookupError


async def raw_statement(database: Database, proxy: Proxy) -> None:
    await database.raw.fetch(str(COUNT))
    proxy.stall()
    await database.raw.fetch(str(COUNT))


@pytest.mark.parametrize(
    "work",
    [begin, end_of_a_read, statement, between_two, commit, rollback, raw_statement],
    ids=lambda work: work.__name__,
)
async def test_cancelled_work_does_not_wait_for_a_silent_network(database_url: str, work: Work):
    """Sooner than the libraries would have it: one of them waits for two seconds, the other until it is heard."""
    async with Proxy(database_url) as proxy:
        database = Database(proxy.url, pool_size=1)
        try:
            assert await count(database) == 0
            working = asyncio.create_task(work(database, proxy))
            await until(lambda: proxy.is_stalled)
            await asyncio.sleep(0.1)
            cancelled = time.monotonic()
            working.cancel()
            with pytest.raises(asyncio.CancelledError):
                await working
            assert time.monotonic() - cancelled < 1.5
            proxy.go_on()
            # And nothing of it is left: the only connection is to be had.
            assert await count(database) == 0
            assert await database.raw.fetchval("SELECT 1") == 1
        finally:
            proxy.go_on()
            await database.close()


async def test_a_statement_that_is_cancelled_ends_on_the_server_too(database: Database):
    async def sleep() -> None:
        async with database.read() as session:
            await session.execute(text("SELECT pg_sleep(600)"))

    asleep = text("SELECT count(*) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(600)' AND state = 'active'")

    async def sleepers() -> int:
        async with database.read() as session:
            return (await session.execute(asleep)).scalar_one()

    async def is_asleep() -> bool:
        return await sleepers() == 1

    async def is_over() -> bool:
        return await sleepers() == 0

    sleeping = asyncio.create_task(sleep())
    await until(is_asleep)
    sleeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeping
    await until(is_over)
