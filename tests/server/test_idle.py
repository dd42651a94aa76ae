"""A server with nothing to do leaves the database alone, however many readers wait for news."""

import asyncio

from tests.support.api_server import serving
from tests.support.databases import DatabaseMaker
from tests.support.waiting import until
from tests.support.world import a_simulator

TRANSACTIONS = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
SECONDS = 6
# The notifier's look, its ping and clock, renewed leases, and what is checked every 5 s. If each reader polled every
# second for itself, there were 15.
PER_SECOND = 12


async def test_idle_server_needs_few_transactions(new_database: DatabaseMaker):
    url = await new_database.migrated()
    async with a_simulator() as simulator, serving(url, simulator, market_calls=1) as server:
        server.runtime.work()
        await until(lambda: server.runtime.active_workers == 2)
        await asyncio.sleep(2)  # what a start reads
        before = await server.runtime.database.raw.fetchval(TRANSACTIONS)
        await asyncio.sleep(SECONDS)
        after = await server.runtime.database.raw.fetchval(TRANSACTIONS)

    assert after - before <= PER_SECOND * SECONDS
