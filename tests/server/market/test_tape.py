"""The tape: what looks at the provider write, and what is answered from it."""

import asyncio
from datetime import timedelta

import pytest

from server.market import tape
from server.market.places import Due, Place, choose
from server.market.tape import OfferKey
from server.queue.kinds import CleanUp
from tests.server.market.looks import CLUSTER, NAME, PRODUCT, REGION, Market

PRODUCTS = "GET /products"
KEY = OfferKey(REGION, PRODUCT, "spot", 1)


async def test_every_region_and_mode_is_read_once_and_then_left_until_it_is_due(market: Market):
    await market.poll()
    calls = market.world.calls(PRODUCTS)

    await market.poll()

    regions = len(market.world.simulator.world.catalog.clusters)
    assert (calls, market.world.calls(PRODUCTS)) == (2 * regions, 2 * regions)
    assert await market.world.value("SELECT count(*) FROM market_place WHERE seen_at IS NOT NULL") == 2 * regions


async def test_tape_equals_the_simulators_record_at_the_looks(market: Market):
    """N4.23: no two equal rows in sequence, and nothing that was not so."""
    await market.poll()
    expected = await market.changes()
    for free, price in ((0, 19_500), (3, 19_500), (3, 19_500), (1, 17_000), (1, 18_000), (0, 18_000), (0, 21_000)):
        market.plan(free=free, price=price)
        last = market.world.simulator.world.market.record[-1]
        await market.look()
        state = (last["spotPrice"], last["free"] != 0, last["inventoryState"])
        expected += [state] if state != expected[-1] else []

    assert await market.changes() == expected
    assert len(expected) == 7
    assert (
        await market.world.one(
            "SELECT price_e5, is_available FROM offer WHERE product_id = $1 AND mode = 'spot' AND region = $2",
            PRODUCT,
            REGION,
        )
    ) == (21_000, False)


async def test_product_that_is_no_longer_listed_is_out_of_stock_and_comes_back(market: Market):
    await market.poll()
    product = market.world.simulator.world.catalog.products.pop(PRODUCT)

    await market.look()
    assert (await market.changes())[-1] == (19_500, False, "none")
    listed = "SELECT is_listed FROM offer WHERE product_id = $1 AND mode = 'spot'"
    assert await market.world.value(listed, PRODUCT) is False
    await market.look()
    assert len(await market.changes()) == 2

    market.world.simulator.world.catalog.products[PRODUCT] = product
    await market.look()
    assert (await market.changes())[-1] == (19_500, True, "high")


async def test_refusal_empties_the_offer_at_once_and_an_older_look_does_not_fill_it(market: Market):
    await market.poll()
    place = Place(REGION, "spot", 1, CLUSTER)
    began_at = await market.world.value("SELECT clock_timestamp()")
    products = await market.world.novita.products(cluster_id=CLUSTER, billing="spot", gpu_count=1)
    async with market.world.database.write() as session:
        assert await tape.mark_empty(session, KEY)
    async with market.world.database.write() as session:
        assert not await tape.mark_empty(session, KEY)

    async with market.world.database.write() as session:
        assert await tape.record_look(session, place, products, at=began_at) == []
    assert (await market.changes())[-1] == (19_500, False, "none")

    await market.look()
    assert (await market.changes())[-1] == (19_500, True, "high")


async def test_catalogue_is_read_from_the_tape_without_a_provider_call(market: Market):
    await market.poll()
    catalog = market.catalog()
    await catalog.regions()
    direct = market.world.new_catalog()
    expected = {mode: (await direct.products(CLUSTER, mode)).value for mode in ("spot", "onDemand")}
    everywhere = sorted((await direct.products(None, "spot")).value, key=lambda each: each.id)
    calls = market.world.calls()

    for mode, products in expected.items():
        assert sorted((await catalog.products(CLUSTER, mode)).value, key=lambda each: each.id) == sorted(
            products, key=lambda each: each.id
        )
    found = sorted((await catalog.products(None, "spot")).value, key=lambda each: each.id)
    assert [(each.id, each.is_deployable, each.regions) for each in found] == [
        (each.id, each.is_deployable, each.regions) for each in everywhere
    ]
    assert market.world.calls() == calls


async def test_catalogue_asks_the_provider_while_the_tape_is_old_and_puts_the_count_on_it(market: Market):
    await market.poll()
    await market.world.execute("UPDATE market_place SET seen_at = seen_at - interval '6 minutes'")
    catalog = market.catalog()
    calls = market.world.calls(PRODUCTS)

    await catalog.products(CLUSTER, "spot")
    await catalog.products(CLUSTER, "spot", gpu_count=4)
    assert market.world.calls(PRODUCTS) == calls + 2

    await market.look("gpu_count = 4")
    calls = market.world.calls(PRODUCTS)
    await market.catalog().products(CLUSTER, "spot", gpu_count=4)
    assert market.world.calls(PRODUCTS) == calls


async def test_unreachable_provider_leaves_the_tape_as_it_was(market: Market):
    await market.poll()
    before = await market.changes()
    market.plan(free=0)
    market.world.outage()

    await market.look()

    assert await market.changes() == before
    assert await market.world.value("SELECT status FROM job WHERE kind = 'POLL_MARKET'") == "WAITING"


async def test_two_looks_at_once_write_one_change(market: Market):
    await market.poll()
    market.plan(free=0)
    place = Place(REGION, "spot", 1, CLUSTER)
    products = await market.world.novita.products(cluster_id=CLUSTER, billing="spot", gpu_count=1)

    async def record() -> None:
        async with market.world.database.write() as session:
            at = await market.world.value("SELECT clock_timestamp()")
            await tape.record_look(session, place, products, at=at)

    await asyncio.gather(record(), record())

    assert await market.changes() == [(19_500, True, "high"), (19_500, False, "none")]


HOT, COLD = Place("a", "spot", 1, "a"), Place("b", "spot", 1, "b")
QUARTER = timedelta(seconds=15)


@pytest.mark.parametrize(
    ("due", "calls", "expected"),
    [
        ([(0, True), (0, False)], [], (HOT, 0)),
        ([(5, True), (0, False)], [], (COLD, 0)),
        ([(5, True), (9, False)], [], (None, 5)),
        ([(0, True)], [50.0] * 20, (None, 10)),
        ([(0, True)], [59.0] + [1.0] * 18, (HOT, 0)),
        # One hot place needs 4 of 20 calls a minute; the others have 16.
        ([(5, True), (0, False)], [40.0] * 16, (None, 5)),
        ([(30, True), (0, False)], [40.0] * 16, (None, 20)),
        ([], [], (None, 60)),
    ],
)
def test_hot_places_are_read_first_and_all_within_the_limit_of_calls(
    due: list[tuple[float, bool]], calls: list[float], expected: tuple[Place | None, float]
):
    dues = [Due(HOT if is_hot else COLD, seconds, is_hot) for seconds, is_hot in due]

    assert choose(dues, calls, calls_max=20, hot=QUARTER) == expected


async def test_calls_of_all_processes_stay_within_the_limit_of_a_minute(market: Market):
    await market.world.configure(market_calls=3, market_hot=timedelta(seconds=1), market_cold=timedelta(seconds=1))

    await market.poll()
    await market.world.execute("UPDATE job SET run_at = now(), due_at = now() WHERE kind = 'POLL_MARKET'")
    await market.poll()

    assert market.world.calls(PRODUCTS) == 3
    pause = "SELECT extract(epoch FROM run_at - now()) FROM job WHERE kind = 'POLL_MARKET'"
    assert await market.world.value(pause) > 30


async def test_create_that_is_refused_for_stock_empties_its_offer(market: Market):
    await market.poll()
    accepted = await market.world.create(regions=(REGION,), billing="SPOT", product_name=NAME)
    market.plan(free=0)

    await market.world.work_until_over(accepted.operation.id)

    assert (await market.changes())[-1] == (19_500, False, "none")


async def test_hot_and_cold_places_are_read_as_often_as_the_settings_say(market: Market):
    await market.poll()
    await market.world.execute("UPDATE market_place SET watched_until = now() + interval '1 hour' WHERE mode = 'spot'")
    reads = []
    for minutes in (9, 2, 50):  # hot: 10 minutes, cold: an hour
        await market.world.execute(f"UPDATE market_place SET asked_at = asked_at - interval '{minutes} minutes'")
        await market.world.execute("UPDATE job SET run_at = now(), due_at = now() WHERE kind = 'POLL_MARKET'")
        calls = market.world.calls(PRODUCTS)
        await market.poll()
        reads.append(market.world.calls(PRODUCTS) - calls)

    assert reads == [0, 6, 12]


async def test_old_changes_are_deleted_but_not_the_one_that_is_still_true(market: Market):
    await market.world.configure(market_retention=timedelta(days=10))
    await market.poll()
    market.plan(free=0)
    await market.look()
    await market.world.execute("UPDATE offer_change SET at = at - interval '20 days'")
    market.plan(free=5)
    await market.look()

    await market.world.enqueue(CleanUp())
    await market.world.work_until(lambda: market.world.value("SELECT count(*) FROM job_history WHERE kind = 'CLEANUP'"))

    assert await market.changes() == [(19_500, False, "none"), (19_500, True, "high")]
