"""The product catalogue is loaded once for all callers."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta

import pytest

from server.catalog.catalog import Catalog, Listing
from server.catalog.offers import offers
from server.enums import Billing
from server.errors import ProviderUnreachable
from tests.support.waiting import until
from tests.support.world import World

RTX_ID = "26"  # RTX 4090 24GB in Singapore


async def test_a_hundred_readers_of_a_cold_catalogue_make_one_call_each(world: World):
    await asyncio.gather(*(world.catalog.regions() for _ in range(100)))
    await asyncio.gather(*(world.catalog.products("as-sgp-2", "spot") for _ in range(100)))
    await asyncio.gather(*(world.catalog.template("107672") for _ in range(100)))

    assert world.simulator.world.calls == {"GET /clusters": 1, "GET /products": 1, "GET /template": 1}


async def test_refusal_for_stock_forgets_one_product_in_one_region(world: World):
    places = [(region, mode) for region in ("as-sgp-2", "cn-hongkong-1") for mode in ("spot", "onDemand")]
    before = {place: await world.catalog.products(*place) for place in places}
    assert world.calls("GET /products") == 4
    world.stock("as-sgp-2", 0)

    await world.catalog.forget_product("as-sgp-2", "spot", RTX_ID, gpu_count=1)

    after = {place: await world.catalog.products(*place) for place in places}
    assert world.calls("GET /products") == 5  # that product alone
    assert _out_of_stock(before) == []
    assert _out_of_stock(after) == [("as-sgp-2", "spot", RTX_ID)]  # what else is cached there is still believed
    assert {place: each.fetched_at for place, each in after.items()} == {
        place: each.fetched_at for place, each in before.items()
    }


async def test_a_forgotten_product_is_read_once_for_all_and_may_be_back_in_stock(world: World):
    await world.catalog.products("as-sgp-2", "spot")
    await world.catalog.forget_product("as-sgp-2", "spot", RTX_ID, gpu_count=1)

    lists = await asyncio.gather(*(world.catalog.products("as-sgp-2", "spot") for _ in range(50)))

    assert world.calls("GET /products") == 2
    assert all(product.is_deployable for each in lists for product in each.value)


async def test_a_forgotten_product_is_out_of_stock_while_the_provider_is_away(world: World):
    await world.catalog.products("as-sgp-2", "spot")
    await world.catalog.forget_product("as-sgp-2", "spot", RTX_ID, gpu_count=1)
    world.outage()

    listing = await world.catalog.products("as-sgp-2", "spot")

    assert listing.is_stale
    assert _out_of_stock({("as-sgp-2", "spot"): listing}) == [("as-sgp-2", "spot", RTX_ID)]


async def test_a_refused_create_leaves_the_rest_of_the_catalogue(world: World):
    accepted = await world.create("one", regions=("AS-SGP-02",), billing=Billing.SPOT)
    world.stock("as-sgp-2", 0)
    before = world.calls("GET /products")

    over = await world.work_until_over(accepted.operation.id)

    assert over["error_code"] == "NO_OPTIMAL_PRODUCT_ANY_REGION"
    listing = await world.catalog.products("as-sgp-2", "spot")
    assert _out_of_stock({("as-sgp-2", "spot"): listing}) == [("as-sgp-2", "spot", RTX_ID)]
    assert world.calls("GET /products") == before + 1


async def test_stock_is_asked_for_by_the_number_of_gpus(world: World):
    world.stock("as-sgp-2", 4)

    four = await world.catalog.products("as-sgp-2", "spot", gpu_count=4)
    eight = await world.catalog.products("as-sgp-2", "spot", gpu_count=8)

    assert {product.is_deployable for product in four.value} == {True}
    assert {product.is_deployable for product in eight.value} == {False}


async def test_cold_catalogue_needs_no_more_calls_than_two_seconds_allow(world: World):
    """Of NOVITA_RATE_LIMIT 100, ten calls are sent at once and then five in three seconds: thirteen within two."""
    await offers(world.catalog)

    assert world.calls() == 13  # the regions, and each of six in two billing modes


async def test_warm_catalogue_answers_without_a_call(world: World):
    await world.catalog.warm()
    before = world.calls()

    assert len(await offers(world.catalog)) == 21
    await world.create("warm", regions=("ANY",))

    assert world.calls() == before


async def test_during_an_outage_products_are_returned_as_stale(world: World):
    catalog = _short_lived(world, stale_for=timedelta(hours=1))
    fresh = await catalog.products("as-sgp-2", "spot")
    regions = await catalog.regions()
    world.outage()

    stale = await catalog.products("as-sgp-2", "spot")

    assert (fresh.is_stale, stale.is_stale) == (False, True)
    assert (stale.value, stale.fetched_at) == (fresh.value, fresh.fetched_at)
    assert await catalog.regions() == regions


async def test_products_that_are_too_old_are_not_returned(world: World):
    catalog = _short_lived(world, stale_for=timedelta(microseconds=1))
    await catalog.products("as-sgp-2", "spot")
    world.outage()

    with pytest.raises(ProviderUnreachable):
        await catalog.products("as-sgp-2", "spot")


async def test_products_in_use_are_replaced_before_they_are_old(world: World):
    catalog = Catalog(world.novita, product_ttl=timedelta(seconds=1), template_ttl=timedelta(seconds=1))
    first = await catalog.products("as-sgp-2", "spot")

    async def is_replaced() -> bool:
        return (await catalog.products("as-sgp-2", "spot")).fetched_at > first.fetched_at

    await until(is_replaced)


def _out_of_stock(lists: Mapping[tuple[str, str], Listing]) -> list[tuple[str, str, str]]:
    return [
        (*place, product.id) for place, each in lists.items() for product in each.value if not product.is_deployable
    ]


def _short_lived(world: World, *, stale_for: timedelta) -> Catalog:
    moment = timedelta(microseconds=1)
    return Catalog(world.novita, product_ttl=moment, template_ttl=moment, stale_for=stale_for)
