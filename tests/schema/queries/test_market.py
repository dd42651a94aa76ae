"""market and offerHistory: what the provider offers, and how that was."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from server.market import tape
from server.market.history import Bucket, OfferChange, buckets_of
from server.market.regions import record_regions
from server.market.segments import Segment
from server.novita.models import Product
from tests.support.api import Api

REGION, CLUSTER, NAME = "AS-SGP-02", "as-sgp-2", "RTX 4090 24GB"
SPOT = Segment(REGION, "spot", 1, CLUSTER)
MARKET = """query ($filter: MarketFilter) { market(filter: $filter) {
    region productId billingMode pricePerHour { amountMicros } isAvailable inventory availableFor30d
    lastAvailableAt } }"""
HISTORY = """query ($since: DateTime, $until: DateTime, $bucket: Duration!) {
    offerHistory(productName: "RTX 4090 24GB", region: "AS-SGP-02", billingMode: SPOT,
                 since: $since, until: $until, bucket: $bucket) {
        from min { amountMicros } max { amountMicros } last { amountMicros } availableFor } }"""


def set_stock(api: Api, free: int) -> None:
    """Of the one product; its simulator serves other tests, too."""
    api.world.simulator.world.set_stock("26", CLUSTER, free)


@pytest.fixture
def restored_stock(api: Api) -> Iterator[None]:
    yield
    set_stock(api, 16)


async def poll_segment(api: Api, at: datetime, segment: Segment = SPOT) -> list[Product]:
    """Write what the simulator lists now, as if it had been read at that time."""
    products = await api.world.novita.products(cluster_id=segment.cluster_id, billing=segment.mode, gpu_count=1)
    async with api.world.database.write() as session:
        await record_regions(session, await api.world.catalog.regions(), at=at)
        await tape.record_poll(session, segment, products, at=at)
    return products


@pytest.mark.usefixtures("restored_stock")
async def test_market_shows_offers_by_filter_with_the_time_they_were_available(api: Api):
    set_stock(api, 16)
    moment = await api.world.value("SELECT now()")
    await poll_segment(api, moment - timedelta(days=40))
    set_stock(api, 0)
    await poll_segment(api, moment - timedelta(days=20))

    offers = (await api.ask(MARKET, filter={"productNames": [NAME], "billingModes": ["SPOT"]})).data["market"]

    (offer,) = offers
    # The last 30 days began a moment after the 30 days that end now.
    assert 864_000 - 60 < offer.pop("availableFor30d") <= 864_000
    assert datetime.fromisoformat(offer.pop("lastAvailableAt")) == moment - timedelta(days=20)
    assert offer == {
        "region": REGION,
        "productId": "26",
        "billingMode": "SPOT",
        "pricePerHour": {"amountMicros": 195_000},
        "isAvailable": False,
        "inventory": "none",
    }
    assert (await api.ask(MARKET, filter={"availableOnly": True, "productNames": [NAME]})).data["market"] == []


@pytest.mark.usefixtures("restored_stock")
async def test_history_has_the_lowest_prices_and_the_available_time_of_each_part(api: Api):
    set_stock(api, 16)
    begin = datetime(2026, 11, 1, tzinfo=UTC)
    await poll_segment(api, begin - timedelta(minutes=30))
    set_stock(api, 0)
    await poll_segment(api, begin + timedelta(minutes=15))

    answer = await api.ask(
        HISTORY, since=begin.isoformat(), until=(begin + timedelta(minutes=90)).isoformat(), bucket=3600
    )

    price = {"amountMicros": 195_000}
    assert answer.data["offerHistory"] == [
        {"from": "2026-11-01T00:00:00+00:00", "min": price, "max": price, "last": None, "availableFor": 900},
        {"from": "2026-11-01T01:00:00+00:00", "min": None, "max": None, "last": None, "availableFor": 0},
    ]


async def test_bad_arguments_are_refused_with_a_code(api: Api):
    async def code(document: str, **variables: Any) -> str:
        return (await api.ask(document, **variables)).body["errors"][0]["extensions"]["code"]

    first, second = "2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z"
    assert await code(MARKET, filter={"gpuCount": 9}) == "INVALID_FILTER"
    assert await code(MARKET, filter={"productNames": ["x"] * 101}) == "INVALID_FILTER"
    assert await code(HISTORY, since=second, until=first, bucket=60) == "INVALID_FILTER"
    assert await code(HISTORY, since=first, until=second, bucket=60) == "INVALID_FILTER"
    assert await code(HISTORY, bucket=0.1) == "INVALID_FILTER"


@pytest.mark.usefixtures("restored_stock")
async def test_subscription_sends_the_offers_and_again_after_a_change(api: Api):
    set_stock(api, 16)
    moment = await api.world.value("SELECT now()")
    await poll_segment(api, moment - timedelta(minutes=2))
    wanted = '{productNames: ["RTX 4090 24GB"], billingModes: [SPOT]}'
    document = f"subscription {{ market(filter: {wanted}) {{ isAvailable }} }}"

    async with api.server.watching(document, token=api.token) as socket:
        assert await socket.next("market") == [{"isAvailable": True}]
        watched = "SELECT count(*) FROM market_segment WHERE watched_until > now() AND mode = 'spot'"
        assert await api.world.value(watched) == 6
        set_stock(api, 0)
        await poll_segment(api, moment)
        assert await socket.next("market") == [{"isAvailable": False}]


def test_buckets_take_the_cheapest_of_several_products_of_a_name():
    begin = datetime(2026, 11, 1, tzinfo=UTC)
    hour = timedelta(hours=1)
    changes = [
        OfferChange("dear", 300, True, begin - hour),
        OfferChange("cheap", 200, True, begin + hour / 4),
        OfferChange("cheap", 200, False, begin + hour / 2),
        OfferChange("dear", 300, False, begin + hour),
    ]

    assert buckets_of(changes, since=begin, until=begin + 2 * hour, length=hour) == [
        Bucket(begin, 200, 300, 300, hour),
        Bucket(begin + hour, None, None, None, timedelta(0)),
    ]
