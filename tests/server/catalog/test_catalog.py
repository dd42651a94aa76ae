"""What there is to buy: asked once for everybody."""

import asyncio

from tests.world import World


async def test_a_hundred_readers_of_a_cold_catalogue_make_one_call_each(world: World):
    await asyncio.gather(*(world.catalog.regions() for _ in range(100)))
    await asyncio.gather(*(world.catalog.products("as-sgp-2", "spot") for _ in range(100)))
    await asyncio.gather(*(world.catalog.template("107672") for _ in range(100)))

    assert world.simulator.world.calls == {"GET /clusters": 1, "GET /products": 1, "GET /template": 1}


async def test_after_a_refusal_for_want_of_stock_products_are_asked_for_again(world: World):
    await world.catalog.products("as-sgp-2", "spot")
    await world.catalog.forget_products()
    await world.catalog.products("as-sgp-2", "spot")

    assert world.calls("GET /products") == 2
