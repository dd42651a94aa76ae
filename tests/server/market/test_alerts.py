"""Alerts: when they fire, how often, and what they keep hot."""

import asyncio
import json
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from server.clock import now
from server.errors import Invalid
from server.market.alerts import ALERTS_MAX, AlertDraft, create_alert, delete_alert
from server.market.matches import fire_alerts
from server.market.segments import Segment
from server.market.tape import OfferKey, mark_empty
from server.observe import metrics
from server.queue.kinds import CleanUp
from tests.server.market.polls import CLUSTER, NAME, PRODUCT, REGION, Market

SEGMENT = Segment(REGION, "spot", 1, CLUSTER)


async def alert(market: Market, **fields: Any) -> UUID:
    """For the product of the tests, spot, in its region; it is out of stock when the alert is created."""
    draft = AlertDraft(product_names=(NAME,), regions=(REGION,), modes=("spot",))
    fields = {name: getattr(draft, name) for name in ("product_names", "regions", "modes")} | fields
    created = await create_alert(market.world.database, AlertDraft(**fields), by=market.world.caller)
    assert created.row is not None
    return created.row.id


async def out_of_stock(market: Market) -> None:
    await market.poll()
    market.plan(free=0)
    await market.poll_segment()


async def pass_time(market: Market, length: str) -> None:
    """As if what is known of alerts had been written that much earlier."""
    await market.world.execute(f"UPDATE market_alert_match SET since = since - interval '{length}'")
    await market.world.execute(f"UPDATE market_alert SET fired_at = fired_at - interval '{length}'")


async def fired(market: Market) -> list[dict[str, Any]]:
    rows = await market.world.rows(
        """SELECT data FROM (SELECT seq, type, data FROM outbox
                             UNION ALL SELECT position + 1000000000, type, data FROM event) AS written
           WHERE type = 'market.alert' ORDER BY seq"""
    )
    return [json.loads(row[0])["values"] for row in rows]


OFFER = {
    "productName": NAME,
    "region": REGION,
    "billingMode": "SPOT",
    "gpuCount": 1,
    "pricePerHourMicros": 195_000,
    "offers": 1,
}


async def test_alert_fires_once_after_an_offer_has_matched_for_long_enough(market: Market):
    await out_of_stock(market)
    alert_id = await alert(market)
    market.plan(free=4)

    await market.poll_segment()
    assert await fired(market) == []
    await pass_time(market, "31 seconds")
    await market.poll_segment()
    assert await fired(market) == [OFFER]

    # As long as it matches, it is the same offer, also long after the cooldown and for another process.
    await pass_time(market, "1 day")
    await market.poll_segment()
    assert await fired(market) == [OFFER]
    assert await market.world.value("SELECT fired_at IS NOT NULL FROM market_alert WHERE id = $1", alert_id)


async def test_polls_changes_and_alerts_are_counted(market: Market):
    await out_of_stock(market)
    await alert(market, held_for=timedelta(0))

    def counts() -> tuple[float, float, float]:
        return metrics.MARKET_POLLS.of(), metrics.MARKET_CHANGES.of(), metrics.MARKET_ALERTS.of()

    before = counts()
    market.plan(free=4)
    await market.poll_segment()
    await market.poll_segment()

    assert tuple(now - then for now, then in zip(counts(), before, strict=True)) == (2, 1, 1)


async def test_offer_that_was_gone_in_between_does_not_fire(market: Market):
    await out_of_stock(market)
    await alert(market)
    market.plan(free=4)
    await market.poll_segment()
    await pass_time(market, "31 seconds")

    market.plan(free=0)
    await market.poll_segment()
    market.plan(free=4)
    await market.poll_segment()
    assert await fired(market) == []

    # A refused create shows the same, without a poll.
    await pass_time(market, "31 seconds")
    async with market.world.database.write() as session:
        assert await mark_empty(session, OfferKey(REGION, PRODUCT, "spot", 1))
    await market.poll_segment()
    assert await fired(market) == []


async def test_offer_that_begins_to_match_in_the_cooldown_fires_after_it(market: Market):
    await out_of_stock(market)
    await alert(market, held_for=timedelta(0))
    market.plan(free=4)
    await market.poll_segment()
    assert len(await fired(market)) == 1

    market.plan(free=0)
    await market.poll_segment()
    market.plan(free=2)
    await market.poll_segment()
    assert len(await fired(market)) == 1

    await pass_time(market, "61 minutes")
    await market.poll_segment()
    assert len(await fired(market)) == 2


async def test_clock_that_is_set_back_by_a_day_mutes_no_alert(market: Market):
    await out_of_stock(market)
    await alert(market)
    market.plan(free=4)
    await market.poll_segment()
    await pass_time(market, "-1 day")

    await market.poll_segment()
    await pass_time(market, "31 seconds")
    await market.poll_segment()
    assert await fired(market) == [OFFER]

    await pass_time(market, "-1 day")
    market.plan(free=0)
    await market.poll_segment()
    market.plan(free=4)
    await market.poll_segment()
    await market.world.execute("UPDATE market_alert_match SET since = since - interval '31 seconds'")
    await market.poll_segment()
    assert await fired(market) == [OFFER, OFFER]


async def test_price_of_the_whole_machine_decides(market: Market):
    await market.poll()
    market.plan(free=4, price=20_000)
    await market.poll_segment()
    await alert(market, held_for=timedelta(0), price_at_most_e5=19_999)
    await market.poll_segment()
    assert await fired(market) == []

    market.plan(free=4, price=19_999)
    await market.poll_segment()
    assert [values["pricePerHourMicros"] for values in await fired(market)] == [199_990]


async def test_several_offers_at_once_are_one_event_with_the_cheapest(market: Market):
    await market.poll()
    await alert(market, held_for=timedelta(0), product_names=None)

    await market.poll_segment()

    (event,) = await fired(market)
    offers = await market.world.rows(
        "SELECT product_name, price_e5 FROM offer WHERE region = $1 AND mode = 'spot' AND gpu_count = 1"
        " AND is_available ORDER BY price_e5, product_id",
        REGION,
    )
    assert (event["productName"], event["pricePerHourMicros"]) == (offers[0][0], offers[0][1] * 10)
    assert event["offers"] == len(offers) > 1


async def test_two_pollers_at_once_fire_it_once(market: Market):
    await market.poll()
    await alert(market, held_for=timedelta(0))
    at = await market.world.value("SELECT clock_timestamp()")

    async def poll() -> int:
        async with market.world.database.write() as session:
            return len(await fire_alerts(session, SEGMENT, at=at))

    assert sorted(await asyncio.gather(*(poll() for _ in range(4)))) == [0, 0, 0, 1]
    assert await fired(market) == [OFFER]


async def test_segments_of_an_alert_are_polled_often_until_it_ends(market: Market):
    await market.poll()
    alert_id = await alert(market, regions=None, gpu_count=4)
    reads: list[int] = []

    async def poll() -> None:
        """Eleven minutes later: hot segments are due, cold ones are not."""
        await market.world.execute("UPDATE market_segment SET polled_at = polled_at - interval '11 minutes'")
        await market.world.execute("UPDATE job SET run_at = now(), due_at = now() WHERE kind = 'POLL_MARKET'")
        calls = market.world.calls("GET /products")
        await market.poll()
        reads.append(market.world.calls("GET /products") - calls)

    await poll()
    await poll()
    await market.world.execute("UPDATE market_alert SET expires_at = now() - interval '1 second'")
    await poll()
    await market.world.execute("UPDATE market_alert SET expires_at = NULL")
    async with market.world.database.write() as session:
        await delete_alert(session, alert_id, project_id=market.world.caller.project_id)
    await poll()

    assert reads == [6, 6, 0, 0]


async def test_expired_alert_does_not_fire_and_is_deleted_in_the_end(market: Market):
    await market.world.configure(market_retention=timedelta(days=10))
    await market.poll()
    await alert(market, held_for=timedelta(0), expires_at=now() + timedelta(hours=1))
    await market.world.execute("UPDATE market_alert SET expires_at = now() - interval '9 days'")

    await market.poll_segment()
    assert await fired(market) == []

    async def clean_up() -> int:
        await market.world.enqueue(CleanUp())
        done = "SELECT count(*) FROM job WHERE kind = 'CLEANUP' AND status <> 'DONE'"
        await market.world.work_until(lambda: market.world.value(f"SELECT ({done}) = 0"))
        return await market.world.value("SELECT count(*) FROM market_alert")

    assert await clean_up() == 1
    await market.world.execute("UPDATE market_alert SET expires_at = now() - interval '11 days'")
    assert await clean_up() == 0


async def test_webhook_of_an_alert_gets_its_event(market: Market):
    await market.poll()
    await alert(market, held_for=timedelta(0), webhook_url="http://127.0.0.1:9/hook")

    await market.poll_segment()

    row = await market.world.one("SELECT url, event_type, body, event_id, status FROM delivery")
    assert tuple(row[:2]) == ("http://127.0.0.1:9/hook", "market.alert")
    data = json.loads(row[2])["data"]
    assert (data["type"], data["data"]) == ("market.alert", OFFER)
    assert data["alertId"].startswith("alr_")
    assert await market.world.value("SELECT count(*) FROM job WHERE kind = 'SEND_WEBHOOK'") == 1


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"product_names": ()}, ("productNames",)),
        ({"product_names": ("No such GPU",)}, ("productNames", "0")),
        ({"regions": (REGION, "XX-YY-01")}, ("regions", "1")),
        ({"modes": ("monthly",)}, ("billingModes",)),
        ({"gpu_count": 9}, ("gpuCount",)),
        ({"price_at_most_e5": 0}, ("priceAtMost",)),
        ({"held_for": timedelta(days=2)}, ("heldFor",)),
        ({"cooldown": timedelta(seconds=-1)}, ("cooldown",)),
        ({"expires_at": now() - timedelta(seconds=1)}, ("expiresAt",)),
    ],
)
async def test_bad_field_is_refused_with_its_path(market: Market, fields: dict[str, Any], path: tuple[str, ...]):
    await market.poll()

    with pytest.raises(Invalid) as refused:
        await alert(market, **fields)

    assert [(each.code, each.path) for each in refused.value.problems] == [("INVALID_ALERT", ("input", *path))]
    assert await market.world.value("SELECT count(*) FROM market_alert") == 0


async def test_project_has_a_limited_number_of_alerts(market: Market):
    await alert(market)
    await market.world.execute(
        """INSERT INTO market_alert (id, project_id, gpu_count, held_for, cooldown)
           SELECT gen_random_uuid(), project_id, 1, held_for, cooldown
           FROM market_alert, generate_series(2, $1::int)""",
        ALERTS_MAX,
    )

    with pytest.raises(Exception, match="at most 100 alerts"):
        await alert(market)

    await market.world.execute("UPDATE market_alert SET expires_at = now() WHERE regions IS NULL")
    await alert(market)
