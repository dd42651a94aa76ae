"""A URL with several servers: the client finds the one that takes writes, and finds it again after a change."""

from collections.abc import AsyncIterator

import asyncpg
import pytest
from sqlalchemy import text

from server.db.database import Database
from server.db.hosts import PrimaryConnector, redacted, split_hosts
from server.db.outages import is_database_outage, is_database_unavailable
from tests.ha.streaming import PostgresServer, primary_and_replica
from tests.support.processes import free_port
from tests.support.waiting import until


@pytest.fixture
async def servers() -> AsyncIterator[tuple[PostgresServer, PostgresServer]]:
    async with primary_and_replica() as both:
        yield both


def url_of(*servers: PostgresServer) -> str:
    hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers)
    return f"postgresql://postgres@{hosts}/postgres"


async def port_of(database: Database) -> int:
    async with database.write() as session:
        return int(await session.scalar(text("SELECT current_setting('port')")) or 0)


@pytest.mark.parametrize(
    ("url", "each"),
    [
        ("postgresql://u:p@a/n", ["postgresql://u:p@a/n"]),
        ("postgres://u:p@a:1,b/n?x=1", ["postgresql://u:p@a:1/n?x=1", "postgresql://u:p@b/n?x=1"]),
        ("postgresql://u:p@/n?host=a:1&host=b:2", ["postgresql://u:p@a:1/n", "postgresql://u:p@b:2/n"]),
        ("postgresql://u:p@/n?host=a,b&port=5", ["postgresql://u:p@a:5/n", "postgresql://u:p@b:5/n"]),
        ("postgresql://u:p@[::1]:5,c/n", ["postgresql://u:p@[::1]:5/n", "postgresql://u:p@c/n"]),
        ("postgresql://u@/n?host=/run/pg", ["postgresql://u@/n?host=%2Frun%2Fpg"]),
    ],
)
def test_a_url_with_several_hosts_is_parsed(url: str, each: list[str]):
    assert split_hosts(url) == each
    assert ":p@" not in redacted(url)


async def test_the_one_that_takes_writes_is_used_wherever_it_stands(servers: tuple[PostgresServer, PostgresServer]):
    primary, replica = servers
    gone = PostgresServer(replica.data, free_port())
    for order in ((replica, primary), (gone, replica, primary), (primary, replica)):
        database = Database(url_of(*order))
        assert await port_of(database) == primary.port
        await database.close()


async def test_a_replica_alone_is_as_good_as_away(servers: tuple[PostgresServer, PostgresServer]):
    _, replica = servers
    for url in (url_of(replica), url_of(replica, PostgresServer(replica.data, free_port()))):
        database = Database(url)
        with pytest.raises(Exception) as through_the_pool:  # noqa: PT011 - what kind it is, is the question
            await port_of(database)
        with pytest.raises((asyncpg.PostgresError, OSError)) as directly:
            await database.connect()
        await database.close()
        for raised in (through_the_pool, directly):
            assert is_database_unavailable(raised.value)
        assert is_database_outage(through_the_pool.value)


async def test_connections_go_to_the_promoted_server_though_the_old_one_takes_writes(
    servers: tuple[PostgresServer, PostgresServer],
):
    """Two that take writes: the younger timeline is the right one, and connections to the other are cut."""
    primary, replica = servers
    database = Database(url_of(primary, replica))
    kept = await database.connect()
    assert await port_of(database) == primary.port

    await replica.ask("SELECT pg_promote()")

    async def is_at_the_replica() -> bool:
        await database.check_primary()
        try:
            return await port_of(database) == replica.port
        except Exception:  # noqa: BLE001 - the pool's connection was cut, too
            return False

    await until(is_at_the_replica)
    assert kept.is_closed()
    assert await primary.ask("SELECT pg_is_in_recovery()") is False
    await database.close()


async def test_with_a_single_server_no_other_is_searched_for(servers: tuple[PostgresServer, PostgresServer]):
    primary, _ = servers
    alone = PrimaryConnector(primary.url())
    await alone.check_primary()
    assert not alone.has_several
