"""Placement: which product in which region, in which order, and why others are refused."""

from typing import Any

import pytest

from server.enums import Billing, PlacementOrder
from server.instances.placement import Candidate, Requirements, place
from tests.support.world import HONG_KONG, MUMBAI, RTX, SINGAPORE, World

CALIFORNIA = "US-CA-06"


def wish(**fields: Any) -> Requirements:
    values: dict[str, Any] = {
        "product_name": RTX,
        "gpu_count": 1,
        "rootfs_size_gb": 60,
        "billing": Billing.SPOT,
        "max_hourly_price_e5": None,
        "regions": (SINGAPORE, HONG_KONG, MUMBAI),
    }
    return Requirements(**{**values, **fields})


async def placed(world: World, **fields: Any) -> tuple[list[tuple[str, str, str, int]], list[tuple[str, str, str]]]:
    """The candidates, and the refusals, each in order."""
    placement = await place(world.catalog, wish(**fields))
    return (
        [(each.region, each.billing_mode, each.product_id, each.price_per_hour_e5) for each in placement.candidates],
        [(each.region, each.billing_mode, each.code) for each in placement.refusals],
    )


async def test_regions_are_tried_in_the_callers_order_and_not_by_price(world: World):
    assert await placed(world) == (
        [(SINGAPORE, "spot", "26", 19500), (HONG_KONG, "spot", "27", 18500), (MUMBAI, "spot", "28", 16000)],
        [],
    )
    reordered, _ = await placed(world, regions=(MUMBAI, SINGAPORE))
    assert [region for region, *_ in reordered] == [MUMBAI, SINGAPORE]


async def test_in_each_region_spot_comes_before_on_demand(world: World):
    candidates, _ = await placed(world, billing=Billing.SPOT_THEN_ON_DEMAND, regions=(SINGAPORE, HONG_KONG))
    assert [(region, mode) for region, mode, *_ in candidates] == [
        (SINGAPORE, "spot"),
        (SINGAPORE, "onDemand"),
        (HONG_KONG, "spot"),
        (HONG_KONG, "onDemand"),
    ]


async def test_on_demand_only_never_proposes_spot(world: World):
    candidates, _ = await placed(world, billing=Billing.ON_DEMAND, regions=(SINGAPORE,))
    assert candidates == [(SINGAPORE, "onDemand", "26", 39000)]


async def test_a_product_that_is_not_offered_as_spot_is_left_out_there(world: World):
    candidates, refusals = await placed(world, product_name="H100 SXM 80GB", regions=("EU-GB-01", SINGAPORE))
    assert candidates == [(SINGAPORE, "spot", "h100.24c200g", 128000)]
    assert [(region, mode) for region, mode, _ in refusals] == [("EU-GB-01", "spot")]


async def test_the_lowest_price_of_a_region_wins(world: World):
    products = world.simulator.world.catalog
    cheaper = products.products["4090.16c62g"]
    cheaper.stock["as-sgp-2"] = 4
    products.total["4090.16c62g", "as-sgp-2"] = 4
    products.taken["4090.16c62g", "as-sgp-2"] = 0
    try:
        candidates, _ = await placed(world, regions=(SINGAPORE,))
    finally:
        del cheaper.stock["as-sgp-2"]  # the products are shared by all simulators of a process

    assert candidates == [(SINGAPORE, "spot", "4090.16c62g", 17500)]


async def test_the_price_is_that_of_all_gpus(world: World):
    candidates, _ = await placed(world, gpu_count=4, regions=(SINGAPORE,))
    assert candidates == [(SINGAPORE, "spot", "26", 78000)]


async def test_a_region_is_resolved_through_the_provider_by_code_name_or_id(world: World):
    placement = await place(world.catalog, wish(regions=("cn-hongkong-1",)))
    assert placement.candidates == (Candidate(HONG_KONG, "cn-hongkong-1", "27", "spot", 18500),)


async def test_out_of_stock_is_a_reason(world: World):
    world.stock("as-sgp-2", 0)
    candidates, refusals = await placed(world)
    assert [region for region, *_ in candidates] == [HONG_KONG, MUMBAI]
    assert refusals == [(SINGAPORE, "spot", "OUT_OF_STOCK")]


async def test_a_price_above_what_is_allowed_is_a_reason(world: World):
    candidates, refusals = await placed(world, max_hourly_price_e5=18500)
    assert [region for region, *_ in candidates] == [HONG_KONG, MUMBAI]
    assert refusals == [(SINGAPORE, "spot", "PRICE_ABOVE_MAX")]


async def test_a_product_that_is_not_sold_there_is_a_reason(world: World):
    candidates, refusals = await placed(world, product_name="RTX 5090 32GB", regions=(SINGAPORE, CALIFORNIA))
    assert [region for region, *_ in candidates] == [CALIFORNIA]
    assert refusals == [(SINGAPORE, "spot", "PRODUCT_NOT_FOUND")]


async def test_an_unknown_region_is_a_reason(world: World):
    candidates, refusals = await placed(world, regions=("MARS-01", SINGAPORE))
    assert [region for region, *_ in candidates] == [SINGAPORE]
    assert refusals == [("MARS-01", "spot", "INVALID_REGION")]


async def test_a_disk_that_the_product_does_not_take_is_a_reason(world: World):
    candidates, refusals = await placed(world, rootfs_size_gb=6145, regions=(SINGAPORE,))
    assert candidates == []
    assert refusals == [(SINGAPORE, "spot", "INVALID_ROOTFS_SIZE")]


ALL = ("US-CA-06", SINGAPORE, HONG_KONG, MUMBAI, "EU-GB-01", "OC-AU-01")


async def test_by_price_spot_of_all_regions_comes_before_on_demand_of_any(world: World):
    candidates, refusals = await placed(
        world, regions=ALL, order=PlacementOrder.PRICE, billing=Billing.SPOT_THEN_ON_DEMAND
    )
    assert [(region, mode, price) for region, mode, _, price in candidates] == [
        (MUMBAI, "spot", 16000),
        (CALIFORNIA, "spot", 17500),
        ("EU-GB-01", "spot", 17500),  # ties: the order of regions
        (HONG_KONG, "spot", 18500),
        (SINGAPORE, "spot", 19500),
        (MUMBAI, "onDemand", 33000),
        (CALIFORNIA, "onDemand", 35000),
        ("EU-GB-01", "onDemand", 35000),
        (HONG_KONG, "onDemand", 37000),
        (SINGAPORE, "onDemand", 39000),
    ]
    assert refusals == []  # Sydney does not offer it


async def test_by_price_regions_without_the_product_cost_no_call(world: World):
    await placed(world, regions=ALL, order=PlacementOrder.PRICE, billing=Billing.SPOT_THEN_ON_DEMAND)
    # Products of all regions, in two modes; then the two regions that share a product.
    assert world.calls("GET /products") == 2 + 2 * 2


@pytest.mark.parametrize("order", list(PlacementOrder))
async def test_more_gpus_than_there_are_is_out_of_stock(world: World, order: PlacementOrder):
    world.stock("as-sgp-2", 4)
    candidates, refusals = await placed(world, gpu_count=8, regions=(SINGAPORE, CALIFORNIA), order=order)
    assert [(region, price) for region, _, _, price in candidates] == [(CALIFORNIA, 140000)]
    assert refusals == [(SINGAPORE, "spot", "OUT_OF_STOCK")]


async def test_a_warm_catalogue_is_not_asked_again(world: World):
    await placed(world)
    before = world.calls()
    await placed(world)
    assert world.calls() == before
