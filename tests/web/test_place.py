"""Where the user is: all of it is in the address, and what is wrong is on every page."""

from contextlib import suppress

import pytest

from tests.support.processes import Up, control
from tests.support.waiting import until
from tests.web.browser import Browser, Servant
from tests.web.requests import ask, page_at, ready


@pytest.mark.timeout(200)
async def test_filter_sorting_selection_and_tab_survive_back_and_reload(servant: Servant, running: Up):
    ids = [await ready(running, f"kept-{number}", labels=[{"key": "team", "value": "kept"}]) for number in (1, 2)]
    await ready(running, "other")
    page = await servant.open("address", page_at(running))
    await page.wait(".row:has-text('kept-1')")

    await page.click("button.sort:has-text('Price')")
    await page.click("button.sort:has-text('Price')")
    await page.click(".group:has-text('Ready')")
    await page.fill("input[type=search]", "team=kept")
    await page.wait(".bulk:has-text('2 instances')")
    await page.click(".row:has-text('kept-2') input")
    await page.wait(".bulk.on:has-text('1 selected')")
    wanted = f"#/?sort=price.desc&status=ready&q=team%3Dkept&selected={ids[1]}"
    await until(lambda: _is_at(page, wanted), within=20)

    await page.reload()
    await page.wait(".bulk.on:has-text('1 selected')")
    assert await page.evaluate("document.querySelector('input[type=search]').value") == "team=kept"
    assert await page.evaluate("document.querySelector('[aria-sort=descending]').innerText.trim()") == "Price/hour"

    await page.click(".row:has-text('kept-1') a")
    await page.click("[data-tab=operations]")
    await page.wait(".steps")
    assert await page.hash() == f"#/instances/{ids[0]}/operations"
    await page.reload()
    await page.wait(".steps")
    await page.click(".crumb")  # links back to the fleet keep its filter
    await page.wait(".bulk.on:has-text('1 selected')")
    await page.back()
    await page.wait(".steps")
    await page.back()
    await page.wait("[data-tab=overview][aria-selected=true]")

    # A link that was sent shows the same to another person.
    other = await servant.open("sent", page_at(running, wanted))
    await other.wait(".bulk.on:has-text('1 selected')")
    for browser in (page, other):
        assert await browser.report(page_at(running)) == {"problems": [], "otherHosts": []}


async def test_the_simulator_and_an_outage_are_shown_on_every_page(servant: Servant, running: Up):
    page = await servant.open("strip", page_at(running, "#/market"))
    await page.wait(".strip .simulator:has-text('SIMULATOR')")
    await page.wait(".strip:has-text('project default, token development')")
    await page.wait(".offer")
    assert await page.texts(".strip .trouble") == []

    url = running.ready["simulatorUrl"]
    await control(url, "faults", {"faults": [{"kind": "outage"}]})
    try:

        async def is_open() -> bool:
            with suppress(AssertionError):  # it fails, which is what opens the breaker
                await ask(running, "mutation { syncFleet { errors { code } } }")
            return (await ask(running, "{ serverInfo { provider { breaker } } }"))["serverInfo"]["provider"] == {
                "breaker": "OPEN"
            }

        await until(is_open, within=60)
        for hash in ("#/jobs", "#/settings", "#/"):
            await page.goto(page_at(running, hash))
            await page.reload()
            await page.wait(".strip .trouble.bad:has-text('The provider does not answer')")
        assert await page.serious() == []
    finally:
        await control(url, "faults", {"faults": []})


async def _is_at(page: Browser, wanted: str) -> bool:
    return await page.hash() == wanted
