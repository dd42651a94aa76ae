"""A world whose market is read as fast as a test wants."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from server.db.database import Database
from server.db.notify import Notifier
from tests.server.market.polls import Market
from tests.support.world import World, a_simulator


@pytest.fixture
async def market(database: Database, signals: Notifier) -> AsyncIterator[Market]:
    async with a_simulator() as simulator:
        world = World(database, signals, simulator)
        await world.execute("DELETE FROM provider_identity")
        await world.open()
        await world.configure(market_calls=10_000, market_hot=timedelta(minutes=10), market_cold=timedelta(hours=1))
        try:
            yield Market(world)
        finally:
            await world.close()


@pytest.fixture
async def empty(market: Market) -> Market:
    """Nothing of the one product is free, and the tape knows it."""
    market.plan(free=0)
    await market.poll()
    market.world.catalog = market.catalog()
    return market
