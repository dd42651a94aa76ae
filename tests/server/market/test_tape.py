"""The tape: what polls of the provider write, and what is answered from it."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from server.market import tape
from server.market.regions import record_regions
from server.market.segments import DuePoll, Pause, Segment, choose, mark_used, watch
from server.market.tape import OfferKey
from server.queue.kinds import CleanUp
from tests.server.market.polls import CLUSTER, NAME, PRODUCT, REGION, SEGMENT, Market

PRODUCTS = "GET /products"
SEED, POLLS = 7, 40
ALL_CHANGES = """
    SELECT region, product_id, mode, price_e5, is_available, inventory, at FROM offer_change WHERE gpu_count = 1
    ORDER BY id
"""
KEY = OfferKey(REGION, PRODUCT, "spot", 1)


async def test_every_region_and_mode_is_read_once_and_then_left_until_it_is_due(market: Market):
    await market.poll()
    calls = market.world.calls(PRODUCTS)

    await market.poll()

    regions = len(market.world.simulator.world.catalog.clusters)
    assert (calls, market.world.calls(PRODUCTS)) == (2 * regions, 2 * regions)
    assert await market.world.value("SELECT count(*) FROM market_segment WHERE seen_at IS NOT NULL") == 2 * regions


async def test_tape_equals_the_simulators_record_at_the_polls(market: Market):
    """No two equal rows in sequence, and nothing that was not so."""
    await market.poll()
    expected = await market.changes()
    for free, price in ((0, 19_500), (3, 19_500), (3, 19_500), (1, 17_000), (1, 18_000), (0, 18_000), (0, 21_000)):
        market.plan(free=free, price=price)
        last = market.world.simulator.world.market.record[-1]
        await market.poll_segment()
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


async def test_tape_of_all_offers_equals_the_record_at_polls_that_come_at_random(market: Market):
    """Several changes may come between two polls; of each offer, the tape has what the record says at the poll."""
    rng, simulated = random.Random(SEED), market.world.simulator.world
    await market.poll()
    expected: dict[tuple[str, str, str], list[tuple[Any, ...]]] = defaultdict(list)
    for row in await market.world.rows(ALL_CHANGES):
        expected[row[0], row[1], row[2]].append(tuple(row)[3:])
    clusters = {cluster.code: cluster.id for cluster in await market.world.novita.clusters()}
    segments = sorted({(region, mode) for region, _, mode in expected})
    planned: set[tuple[str, str]] = set()
    for _ in range(POLLS):
        for _ in range(rng.randrange(4)):
            product, cluster = rng.choice(sorted(simulated.catalog.total))
            price = rng.choice((None, 15_000, 25_000))
            market.plan(productId=product, clusterId=cluster, free=rng.choice((0, 1, 4, 1000)), price=price)
            planned.add((product, cluster))
        region, mode = rng.choice(segments)
        await market.poll_segment(f"region = '{region}' AND mode = '{mode}' AND gpu_count = 1")
        at = await market.world.value(
            "SELECT seen_at FROM market_segment WHERE (region, mode) = ($1, $2)", region, mode
        )
        for product, cluster in planned:
            states = expected.get((region, product, mode))
            if cluster != clusters[region] or states is None:
                continue
            last = [
                each for each in simulated.market.record if (each["productId"], each["clusterId"]) == (product, cluster)
            ][-1]
            price = last["spotPrice" if mode == "spot" else "price"]
            state = (price, last["free"] != 0, last["inventoryState"])
            if state != states[-1][:3]:
                states.append((*state, at))

    found: dict[tuple[str, str, str], list[tuple[Any, ...]]] = defaultdict(list)
    for row in await market.world.rows(ALL_CHANGES):
        found[row[0], row[1], row[2]].append(tuple(row)[3:])
    assert found == expected
    assert sum(len(states) - 1 for states in found.values()) > POLLS / 2
    assert all(one[:3] != other[:3] for states in found.values() for one, other in pairwise(states))


async def test_product_that_is_no_longer_listed_is_out_of_stock_and_comes_back(market: Market):
    await market.poll()
    product = market.world.simulator.world.catalog.products.pop(PRODUCT)

    await market.poll_segment()
    assert (await market.changes())[-1] == (19_500, False, "none")
    listed = "SELECT is_listed FROM offer WHERE product_id = $1 AND mode = 'spot'"
    assert await market.world.value(listed, PRODUCT) is False
    await market.poll_segment()
    assert len(await market.changes()) == 2

    market.world.simulator.world.catalog.products[PRODUCT] = product
    await market.poll_segment()
    assert (await market.changes())[-1] == (19_500, True, "high")


async def test_refusal_empties_the_offer_at_once_and_an_older_poll_does_not_fill_it(market: Market):
    await market.poll()
    segment = Segment(REGION, "spot", 1, CLUSTER)
    began_at = await market.world.value("SELECT clock_timestamp()")
    products = await market.world.novita.products(cluster_id=CLUSTER, billing="spot", gpu_count=1)
    async with market.world.database.write() as session:
        assert await tape.mark_empty(session, KEY)
    async with market.world.database.write() as session:
        assert not await tape.mark_empty(session, KEY)

    async with market.world.database.write() as session:
        assert await tape.record_poll(session, segment, products, at=began_at) == []
    assert (await market.changes())[-1] == (19_500, False, "none")

    await market.poll_segment()
    assert (await market.changes())[-1] == (19_500, True, "high")


async def test_catalogue_is_read_from_the_tape_without_a_provider_call(market: Market):
    await market.poll()
    catalog = market.catalog()
    direct = market.world.new_catalog()
    regions = await direct.regions()
    expected = {mode: (await direct.products(CLUSTER, mode)).value for mode in ("spot", "onDemand")}
    everywhere = sorted((await direct.products(None, "spot")).value, key=lambda each: each.id)
    calls = market.world.calls()

    assert list(await catalog.regions()) == list(regions)
    for mode, products in expected.items():
        assert sorted((await catalog.products(CLUSTER, mode)).value, key=lambda each: each.id) == sorted(
            products, key=lambda each: each.id
        )
    found = sorted((await catalog.products(None, "spot")).value, key=lambda each: each.id)
    assert [(each.id, each.is_deployable, each.regions) for each in found] == [
        (each.id, each.is_deployable, each.regions) for each in everywhere
    ]
    assert market.world.calls() == calls


async def test_create_is_accepted_without_a_provider_call(market: Market):
    await market.poll()
    market.world.catalog = market.catalog()
    calls = market.world.calls()

    await market.world.create(product_name=NAME, regions=(REGION,), billing="SPOT")

    assert market.world.calls() == calls


async def test_catalogue_says_when_the_poll_of_its_list_began(market: Market):
    await market.poll()
    await market.world.execute("UPDATE market_segment SET seen_at = seen_at - interval '3 minutes'")
    seen_at = await market.world.value(f"SELECT seen_at FROM market_segment WHERE {SEGMENT}")

    assert (await market.catalog().products(CLUSTER, "spot")).fetched_at == seen_at


async def test_writers_of_many_segments_at_once_do_not_deadlock(market: Market):
    """A create with several regions reads their lists at once, in each process, while the poller writes."""
    await market.poll()
    clusters = await market.world.novita.clusters()

    async def read(gpu_count: int) -> None:
        catalog = market.catalog()
        modes = [(cluster.id, mode) for cluster in clusters for mode in ("spot", "onDemand")]
        await asyncio.gather(*(catalog.products(*each, gpu_count=gpu_count) for each in modes))

    async def write(change: Callable[[AsyncSession], Awaitable[None]]) -> None:
        async with market.world.database.write() as session:
            await change(session)

    await asyncio.gather(*(read(count) for count in (2, 4) for _ in range(3)))
    await market.world.execute("UPDATE market_segment SET used_at = NULL, watched_until = NULL")
    at = await market.world.value("SELECT clock_timestamp()")
    await asyncio.gather(
        *(write(lambda session: mark_used(session, 4)) for _ in range(4)),
        *(write(lambda session: watch(session, regions=None, modes=None, gpu_count=4)) for _ in range(4)),
        *(write(lambda session: record_regions(session, clusters[::-1], at=at)) for _ in range(4)),
    )

    counts = "SELECT count(*), count(used_at), count(watched_until) FROM market_segment WHERE gpu_count = 4"
    assert tuple(await market.world.one(counts)) == (12, 12, 12)


async def test_catalogue_asks_the_provider_while_the_tape_is_old_and_puts_the_count_on_it(market: Market):
    await market.poll()
    await market.world.execute("UPDATE market_segment SET seen_at = seen_at - interval '6 minutes'")
    catalog = market.catalog()
    calls = market.world.calls(PRODUCTS)

    await catalog.products(CLUSTER, "spot")
    await catalog.products(CLUSTER, "spot", gpu_count=4)
    assert market.world.calls(PRODUCTS) == calls + 2

    await market.poll_segment("gpu_count = 4")
    calls = market.world.calls(PRODUCTS)
    await market.catalog().products(CLUSTER, "spot", gpu_count=4)
    assert market.world.calls(PRODUCTS) == calls


async def test_unreachable_provider_leaves_the_tape_as_it_was(market: Market):
    await market.poll()
    before = await market.changes()
    market.plan(free=0)
    market.world.outage()

    await market.poll_segment()

    assert await market.changes() == before
    assert await market.world.value("SELECT status FROM job WHERE kind = 'POLL_MARKET'") == "WAITING"


async def test_two_polls_at_once_write_one_change(market: Market):
    await market.poll()
    market.plan(free=0)
    segment = Segment(REGION, "spot", 1, CLUSTER)
    products = await market.world.novita.products(cluster_id=CLUSTER, billing="spot", gpu_count=1)

    async def record() -> None:
        async with market.world.database.write() as session:
            at = await market.world.value("SELECT clock_timestamp()")
            await tape.record_poll(session, segment, products, at=at)

    await asyncio.gather(record(), record())

    assert await market.changes() == [(19_500, True, "high"), (19_500, False, "none")]


HOT, COLD = Segment("a", "spot", 1, "a"), Segment("b", "spot", 1, "b")
QUARTER = timedelta(seconds=15)


@pytest.mark.parametrize(
    ("due", "calls", "expected"),
    [
        ([(15, True), (270, False)], [], HOT),
        ([(10, True), (270, False)], [], COLD),
        ([(10, True), (261, False)], [], Pause(5)),
        ([(15, True)], [50.0] * 20, Pause(10)),
        ([(15, True)], [59.0] + [1.0] * 18, HOT),
        # One hot segment needs 4 of 20 calls a minute; the others have 16.
        ([(10, True), (270, False)] + [(40, False)] * 15, [40.0] * 15, COLD),
        ([(10, True), (270, False)] + [(40, False)] * 16, [40.0] * 16, Pause(5)),
        ([(0, True), (270, False)] + [(50, False)] * 16, [50.0] * 16, Pause(10)),
        # Calls for hot ones are not theirs.
        ([(10, True), (270, False)], [40.0] * 19, COLD),
        # Never longer than the hot interval.
        ([(0, True), (270, False)] + [(40, False)] * 16, [40.0] * 16, Pause(15)),
        ([], [], Pause(15)),
    ],
)
def test_hot_segments_are_polled_first_and_all_within_the_limit_of_calls(
    due: list[tuple[float, bool]], calls: list[float], expected: Segment | Pause
):
    dues = [DuePoll(HOT if is_hot else COLD, ago, 15.0 if is_hot else 270.0, is_hot) for ago, is_hot in due]

    chosen = choose(dues, calls, calls_max=20, hot=QUARTER)

    assert (chosen if isinstance(chosen, Pause) else chosen.segment) == expected


def test_too_few_calls_for_all_segments_leave_none_out():
    """Twelve hot ones need 48 calls a minute."""
    hot = [Segment(f"hot-{number}", "spot", 1, "a") for number in range(12)]
    polled = dict.fromkeys([*hot, *(Segment(f"cold-{number}", "spot", 1, "a") for number in range(12))], 0)
    longest = dict.fromkeys(polled, 0.0)
    calls: list[int] = []
    for second in range(3600):
        due = [
            DuePoll(each, second - at, 15.0 if each in hot else 270.0, is_hot=each in hot)
            for each, at in polled.items()
        ]
        chosen = choose(due, [second - at for at in calls if second - at < 60], calls_max=20, hot=QUARTER)
        if not isinstance(chosen, Pause) and chosen.segment is not None:
            longest[chosen.segment] = max(longest[chosen.segment], chosen.ago)
            polled[chosen.segment] = second
            calls.append(second)

    assert all(3600 - at < (60 if each in hot else 900) for each, at in polled.items())
    assert all(gap < (60 if each in hot else 900) for each, gap in longest.items())


async def test_calls_of_all_processes_stay_within_the_limit_of_a_minute(market: Market):
    await market.world.configure(market_calls=3, market_hot=timedelta(minutes=1), market_cold=timedelta(seconds=1))

    await market.poll()
    await market.world.execute("UPDATE job SET run_at = now(), due_at = now() WHERE kind = 'POLL_MARKET'")
    await market.poll()

    assert market.world.calls() == 3
    pause = "SELECT extract(epoch FROM run_at - now()) FROM job WHERE kind = 'POLL_MARKET'"
    assert await market.world.value(pause) > 30


async def test_create_that_is_refused_for_stock_empties_its_offer(market: Market):
    await market.poll()
    accepted = await market.world.create(regions=(REGION,), billing="SPOT", product_name=NAME)
    market.plan(free=0)

    await market.world.work_until_over(accepted.operation.id)

    assert (await market.changes())[-1] == (19_500, False, "none")


async def test_hot_and_cold_segments_are_polled_as_often_as_the_settings_say(market: Market):
    await market.poll()
    await market.world.execute(
        "UPDATE market_segment SET watched_until = now() + interval '1 hour' WHERE mode = 'spot'"
    )
    reads = []
    for minutes in (9, 2, 44):  # hot: 10 minutes, cold: nine tenths of an hour
        await market.world.execute(f"UPDATE market_segment SET polled_at = polled_at - interval '{minutes} minutes'")
        await market.world.execute("UPDATE job SET run_at = now(), due_at = now() WHERE kind = 'POLL_MARKET'")
        calls = market.world.calls(PRODUCTS)
        await market.poll()
        reads.append(market.world.calls(PRODUCTS) - calls)

    assert reads == [0, 6, 12]


async def test_old_changes_are_deleted_but_not_the_one_that_is_still_true(market: Market):
    await market.world.configure(market_retention=timedelta(days=10))
    await market.poll()
    market.plan(free=0)
    await market.poll_segment()
    await market.world.execute("UPDATE offer_change SET at = at - interval '20 days'")
    market.plan(free=5)
    await market.poll_segment()

    await market.world.enqueue(CleanUp())
    await market.world.work_until(lambda: market.world.value("SELECT count(*) FROM job_history WHERE kind = 'CLEANUP'"))

    assert await market.changes() == [(19_500, False, "none"), (19_500, True, "high")]
