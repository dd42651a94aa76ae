"""A URL that names several servers: the one that takes writes is found, and found again."""

from collections.abc import AsyncIterator

import asyncpg
import pytest
from sqlalchemy import text

from server.db.engine import Database
from server.db.servers import Servers
from server.db.trouble import is_database_away, is_database_gone
from server.db.url import each_server, shown
from tests.ha.streaming import Server, primary_and_replica
from tests.processes import free_port, sooner_or_later


@pytest.fixture
async def servers() -> AsyncIterator[tuple[Server, Server]]:
    async with primary_and_replica() as both:
        yield both


def url_of(*servers: Server) -> str:
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
def test_a_url_is_taken_apart(url: str, each: list[str]):
    assert each_server(url) == each
    assert ":p@" not in shown(url)


async def test_the_one_that_takes_writes_is_used_wherever_it_stands(servers: tuple[Server, Server]):
    primary, replica = servers
    gone = Server(replica.data, free_port())
    for order in ((replica, primary), (gone, replica, primary), (primary, replica)):
        database = Database(url_of(*order))
        assert await port_of(database) == primary.port
        await database.close()


async def test_a_replica_alone_is_as_good_as_away(servers: tuple[Server, Server]):
    _, replica = servers
    for url in (url_of(replica), url_of(replica, Server(replica.data, free_port()))):
        database = Database(url)
        with pytest.raises(Exception) as through_the_pool:  # noqa: PT011 - what kind it is, is the question
            await port_of(database)
        with pytest.raises((asyncpg.PostgresError, OSError)) as directly:
            await database.connect()
        await database.close()
        for raised in (through_the_pool, directly):
            assert is_database_away(raised.value)
        assert is_database_gone(through_the_pool.value)


async def test_everybody_moves_to_the_promoted_one_though_the_deposed_one_still_takes_writes(
    servers: tuple[Server, Server],
):
    """Two that take writes: the younger timeline is the right one, and connections to the other are cut."""
    primary, replica = servers
    database = Database(url_of(primary, replica))
    kept = await database.connect()
    assert await port_of(database) == primary.port

    await replica.ask("SELECT pg_promote()")

    async def has_moved() -> bool:
        await database.look_around()
        try:
            return await port_of(database) == replica.port
        except Exception:  # noqa: BLE001 - the pool's connection was cut, too
            return False

    await sooner_or_later(has_moved)
    assert kept.is_closed()
    assert await primary.ask("SELECT pg_is_in_recovery()") is False
    await database.close()


async def test_a_single_server_is_not_looked_around_from(servers: tuple[Server, Server]):
    primary, _ = servers
    alone = Servers(primary.url())
    await alone.look_around()
    assert not alone.are_many
