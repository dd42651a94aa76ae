"""The market in the dashboard: when a product was last in stock, its history, and alerts."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.databases import DatabaseMaker
from tests.support.processes import Up, control, up
from tests.support.waiting import until
from tests.web.browser import Servant
from tests.web.requests import ask, created, has_status

PRODUCT, REGION = "RTX 4090 24GB", "AS-SGP-02"
OFFERS = """{ market(filter: {productNames: ["RTX 4090 24GB"], regions: ["AS-SGP-02"]}) { isAvailable } }"""
WAITED = "{ instances(first: 5) { nodes { name } } }"
ALERTS = "{ alerts { nodes { productNames regions priceAtMost { amountMicros } } } }"


@pytest.fixture(scope="module")
async def polling(
    built: Path, new_database: DatabaseMaker, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Up]:
    """A server that polls at once, and often."""
    environment = {"DATABASE_URL": await new_database.migrated(), "MARKET_HOT": "1s", "MARKET_CALLS": "1000"}
    async with up(tmp_path_factory.mktemp("home"), env=environment) as running:
        yield running


async def test_an_offer_shows_its_history_and_an_alert_is_made_of_it(servant: Servant, polling: Up):
    base = polling.graphql_url.removesuffix("/graphql")

    async def is_available(wanted: bool) -> bool:
        return [each["isAvailable"] for each in (await ask(polling, OFFERS))["market"]] == [wanted, wanted]

    await until(lambda: is_available(True), within=60)
    page = await servant.open("market", f"{base}/#/market")
    await page.click(f"button[aria-label='History of {PRODUCT} in {REGION}']")
    await page.wait("section[aria-label=Spot] .sparkline[aria-label*='$0.20 to $0.20']:has(polyline)")
    await page.wait("section[aria-label=Spot]:has-text('In stock now')")

    # The open panel follows the market.
    await control(polling.ready["simulatorUrl"], "stock", {"productId": "26", "clusterId": "as-sgp-2", "free": 0})
    await page.wait("section[aria-label=Spot]:has-text('Last in stock')")
    await until(lambda: is_available(False))  # each billing mode has a poll of its own

    await page.fill(".alert-form input", "0,25")
    await page.click(".alert-form button")
    await page.wait(f"tr:has-text('{PRODUCT}'):has-text('$0.25/h'):has-text('not yet')")
    assert (await ask(polling, ALERTS))["alerts"]["nodes"] == [
        {"productNames": [PRODUCT], "regions": [REGION], "priceAtMost": {"amountMicros": 250_000}}
    ]

    # A link shows the same panel; without it, the cell says since when there is none.
    await page.goto(f"{base}/#/jobs")
    await page.goto(f"{base}/#/market?offer={PRODUCT.replace(' ', '+')}%40{REGION}")
    await page.wait("section[aria-label=Spot]:has-text('Last in stock')")
    await page.wait(".offer.none:has-text('in stock')")
    await page.click("button[aria-label='Close history']")
    assert await page.texts(".sparkline") == []

    await page.click(f"button[aria-label='Delete the alert for {PRODUCT}']")
    await page.click("dialog button.danger")
    await page.wait(".empty:has-text('Alert me')")
    assert (await ask(polling, ALERTS))["alerts"]["nodes"] == []
    assert await page.report(base) == {"problems": [], "otherHosts": []}


async def test_an_instance_is_created_when_available_and_the_queue_shows_its_place(servant: Servant, polling: Up):
    base, simulator = polling.graphql_url.removesuffix("/graphql"), polling.ready["simulatorUrl"]
    await control(simulator, "stock", {"productId": "26", "clusterId": "as-sgp-2", "free": 0})

    async def is_empty() -> bool:
        return not any(each["isAvailable"] for each in (await ask(polling, OFFERS))["market"])

    await until(is_empty, within=60)
    page = await servant.open("queue", f"{base}/#/market")
    await page.wait(".empty:has-text('Create when available')")
    await page.click(f"a.offer[href*='region={REGION}']:has-text('Create when available')")
    await page.fill("label:has-text('Name') + input", "patient")
    await page.fill("label:has-text('Priority') + input", "101")
    await page.click("button:has-text('Create instance')")
    await page.wait(".field.wrong:has-text('Priority')")
    await page.fill("label:has-text('Priority') + input", "40")
    await page.click("button:has-text('Create instance')")
    await page.wait("dialog[open]:has-text('It waits for that')")
    await page.click("dialog[open] button[type=submit]")
    await page.wait(".instance-head h1:has-text('patient')")
    await page.wait(".instance-head .tag:has-text('waits for capacity')")
    await page.wait(".progress:has-text('number 1 of the project'):has-text('nothing that fits is in stock')")
    await page.wait(".progress:has-text('Ends without a machine in about 23h')")

    await page.goto(f"{base}/#/")
    await page.wait(".row:has-text('patient') .tag:has-text('waits for capacity')")
    await page.goto(f"{base}/#/market")
    await page.wait("tr:has-text('patient') td[data-label=Place]:has-text('1')")
    first = await created(polling, "urgent", regions=[REGION], onNoCapacity={"wait": {"for": 3600}, "priority": 90})
    await page.wait("tr:has-text('patient') td[data-label=Place]:has-text('2')")
    assert await page.texts("td[data-label=Instance], td[data-label=Priority]") == ["urgent", "90", "patient", "40"]
    assert await page.serious() == []

    await page.click("button[aria-label='Cancel patient']")
    await page.click("dialog button.danger")
    await page.wait("tr:has-text('patient')", state="detached")
    await control(simulator, "stock", {"productId": "26", "clusterId": "as-sgp-2", "free": 1})
    await has_status(polling, first, "READY")
    await page.wait(".empty:has-text('Create when available')")
    assert (await ask(polling, WAITED))["instances"]["nodes"] == [{"name": "urgent"}]
    assert await page.report(base) == {"problems": [], "otherHosts": []}
