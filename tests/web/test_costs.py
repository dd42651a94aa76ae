"""The Costs view: what was spent, by what, and the budgets that limit it."""

import asyncio
from itertools import count

from tests.support.processes import Up
from tests.web.browser import Servant
from tests.web.requests import ask, page_at, ready
from tests.web.seed import bill, spend


async def test_an_empty_view_says_what_to_do(servant: Servant, running: Up):
    page = await servant.open("no-costs", page_at(running, "#/costs"))
    await page.wait(".empty:has-text('Nothing was spent')")
    await page.wait(".empty:has-text('No budget yet')")
    await page.wait(".panel:has-text('Quotas') .empty:has-text('None yet')")
    await page.wait(".panel:has-text('No day of this time is compared with the bill yet')")
    assert await page.serious() == []


async def test_spend_is_shown_by_day_product_and_label_with_the_dearest_first(servant: Servant, running: Up):
    dear = await ready(running, "dear", productName="H100 SXM 80GB", labels=[{"key": "team", "value": "research"}])
    await ready(running, "cheap", labels=[{"key": "team", "value": "search"}])
    await spend(running, days=3)
    page = await servant.open("costs", page_at(running, "#/costs"))

    await page.wait(".legend li:has-text('H100 SXM 80GB')")
    assert (await page.texts(".legend li span:first-of-type")) == ["H100 SXM 80GB", "RTX 4090 24GB"]
    report = (await ask(running, "{ spend(groupBy: INSTANCE) { groups { key amount { amountMicros } } } }"))["spend"]
    assert report["groups"][0]["key"] == dear
    assert (await page.texts("table.top td:first-child"))[0].strip() == "dear"
    # Each day is as high as its parts together: of three days two or three have a cost, and today is one more.
    bars = await page.evaluate("[...document.querySelectorAll('.bar-chart g')].filter((g) => g.children.length).length")
    assert bars in (3, 4)
    await page.click(".segments label:has-text('Label')")
    await page.wait(".legend li:has-text('research')")
    await page.click(".segments label:has-text('7 days')")
    await page.wait(".summary:has-text('Last 7 days')")
    assert await page.hash() == "#/costs?by=label&label=team&period=7"
    await page.reload()
    await page.wait(".legend li:has-text('research')")
    assert await page.serious() == []
    assert await page.report(page_at(running)) == {"problems": [], "otherHosts": []}


SLOW_REPORTS = """(() => { const real = window.fetch; window.fetch = async (url, options) => {
    if (options.body.includes("query CostReport")) await new Promise((resolve) => setTimeout(resolve, 3000));
    return real(url, options); }; })()"""
RELABEL = "mutation ($input: UpdateInstanceInput!) { updateInstance(input: $input) { errors { code } } }"


async def test_a_report_that_takes_longer_than_costs_stay_the_same_is_shown(servant: Servant, running: Up):
    """Each change of a label ends an entry of the ledger, and the page hears of it."""
    id = await ready(running, "restless")
    page = await servant.open("slow-costs", page_at(running, "#/costs"))
    await page.wait(".legend li:has-text('RTX 4090 24GB')")
    await page.evaluate(SLOW_REPORTS)

    async def relabel() -> None:
        for number in count():
            labels = [{"key": "round", "value": str(number)}]
            await ask(running, RELABEL, input={"id": id, "labels": labels})
            await asyncio.sleep(0.5)

    changing = asyncio.create_task(relabel())
    try:
        await page.click(".segments label:has-text('Region')")
        region = (await ask(running, "query ($id: ID!) { instance(id: $id) { region } }", id=id))["instance"]["region"]
        await page.wait(f".legend li:has-text('{region}')")
        assert not changing.done()
    finally:
        changing.cancel()
        await asyncio.gather(changing, return_exceptions=True)


async def test_a_budget_is_created_shown_with_its_bar_changed_and_deleted(servant: Servant, running: Up):
    page = await servant.open("budgets", page_at(running, "#/costs"))
    await page.fill("input[name=name]", "team-budget")
    await page.fill("input[name=limit]", "0")
    await page.click("button:has-text('Create budget')")
    await page.wait(".field.wrong:has-text('Limit')")
    await page.fill("input[name=limit]", "500")
    await page.fill("input[name=scope]", "team=research")
    await page.click("button:has-text('Create budget')")
    await page.wait(".budget:has-text('team=research, each month')")
    await page.wait(".budget:has-text('of $500.00 spent')")
    assert await page.serious() == []

    await page.click("button:has-text('Change limit')")
    await page.fill(".budget input", "600")
    await page.click(".budget button:has-text('Save')")
    await page.wait(".budget:has-text('of $600.00 spent')")
    await page.click(".budget button.danger")
    await page.click("dialog button:has-text('Delete')")
    await page.wait(".empty:has-text('No budget yet')")
    assert (await ask(running, "{ budgets { totalCount } }"))["budgets"]["totalCount"] == 0
    assert await page.report(page_at(running)) == {"problems": [], "otherHosts": []}


async def test_what_the_provider_billed_is_shown_beside_the_ledger(servant: Servant, running: Up):
    await ready(running, "billed", labels=[{"key": "team", "value": "billed"}])
    await spend(running, days=4)
    await bill(running)
    given = """{ spend(filter: {since: "2026-01-01T00:00:00Z"}) { billed { amountMicros } difference { amountMicros }
        billedDays { day billed { amountMicros } ledger { amountMicros } } } }"""
    expected = (await ask(running, given))["spend"]
    page = await servant.open("billed", page_at(running, "#/costs"))

    await page.wait("table.billed tbody tr")
    rows = [row.split() for row in await page.texts("table.billed tbody tr")]
    days = sorted(expected["billedDays"], key=lambda day: day["day"], reverse=True)
    assert [row[0] for row in rows] == [day["day"] for day in days]
    differing = [day["day"] for day in days if day["billed"] != day["ledger"]]
    assert len(differing) == 1
    assert [row[0] for row in rows if "Differs" in row] == differing
    assert [row[0] for row in rows if row[-1] == "more"] == differing
    dollars = f"${expected['billed']['amountMicros'] / 1e6:,.2f}"
    await page.wait(f".panel:has-text('{dollars} billed')")
    assert await page.serious() == []

    # The simulator's own record has nothing of the last days.
    await page.click("button:has-text('Compare now')")
    await page.wait(".toast:has-text('Compared with the bill')")
    await page.wait("table.billed tbody tr:has-text('$0.00') .chip:has-text('Differs')")
    assert await page.report(page_at(running)) == {"problems": [], "otherHosts": []}


async def test_a_quota_is_set_shown_with_its_use_replaced_and_removed(servant: Servant, running: Up):
    await ready(running, "counted", labels=[{"key": "team", "value": "quota"}])
    page = await servant.open("quotas", page_at(running, "#/costs"))
    await page.click("button:has-text('Set quota')")
    await page.wait(".field.wrong:has-text('Enter at least one maximum')")
    await page.fill("input[name=maxInstances]", "-1")
    await page.click("button:has-text('Set quota')")
    await page.wait(".field.wrong:has-text('Most instances')")

    await page.fill(".panel:has-text('Set a quota') input[name=scope]", "team=quota")
    await page.fill("input[name=maxInstances]", "3")
    await page.fill("input[name=maxPricePerHour]", "7.5")
    await page.click("button:has-text('Set quota')")
    await page.wait("tr:has-text('team=quota') td:has-text('1 of 3')")
    await page.wait("tr:has-text('team=quota') td:has-text('of $7.50')")
    await page.wait("tr:has-text('team=quota') td:has-text('1, no limit')")
    assert await page.serious() == []

    await page.fill(".panel:has-text('Set a quota') input[name=scope]", "team=quota")
    await page.fill("input[name=maxGpus]", "8")
    await page.click("button:has-text('Set quota')")
    await page.wait("tr:has-text('team=quota') td:has-text('1 of 8')")
    quotas = "{ quotas { nodes { maxInstances maxGpus maxPricePerHour { amountMicros } scope { label { value } } } } }"
    [quota] = (await ask(running, quotas))["quotas"]["nodes"]
    expected = {"maxInstances": None, "maxGpus": 8, "maxPricePerHour": None, "scope": {"label": {"value": "quota"}}}
    assert quota == expected

    await page.click("button[aria-label='Remove the quota of team=quota']")
    await page.click("dialog button:has-text('Remove')")
    await page.wait(".panel:has-text('Quotas') .empty:has-text('None yet')")
    assert (await ask(running, "{ quotas { totalCount } }"))["quotas"]["totalCount"] == 0
    assert await page.report(page_at(running)) == {"problems": [], "otherHosts": []}


async def test_a_token_for_a_program_is_created_with_limits_and_shows_them(servant: Servant, running: Up):
    page = await servant.open("token-limits", page_at(running, "#/settings"))
    await page.fill(".new-token input[placeholder=backend]", "agent")
    await page.click(".new-token summary")
    await page.fill("input[name=maxDuration]", "0.01")
    await page.click("button[aria-label='Create token']")
    await page.wait(".field.wrong:has-text('Longest run')")

    await page.fill("input[name=maxDuration]", "2")
    await page.fill("input[name=budget]", "20")
    await page.fill("input[name=maxInstances]", "3")
    await page.fill("input[name=productNames]", "RTX 4090 24GB, L40S 48GB")
    await page.click(".new-token input[type=checkbox]")
    await page.click("button[aria-label='Create token']")
    await page.wait(".secret")
    await page.wait("tr:has-text('agent') .limit")
    shown = await page.texts("tr:has-text('agent') .limit")
    assert [each.strip() for each in shown] == [
        "$0.00 of $20.00 spent",
        "at most 3 instances at once",
        "runs of at most 2h",
        "only RTX 4090 24GB, L40S 48GB",
        "sees only its own instances",
    ]
    given = """{ tokens { nodes { name limits { ownInstancesOnly maxDuration productNames regions
        budget { limit { amountMicros } } quota { maxInstances maxGpus } } } } }"""
    [token] = [each for each in (await ask(running, given))["tokens"]["nodes"] if each["name"] == "agent"]
    assert token["limits"] == {
        "ownInstancesOnly": True,
        "maxDuration": 7200,
        "productNames": ["RTX 4090 24GB", "L40S 48GB"],
        "regions": None,
        "budget": {"limit": {"amountMicros": 20_000_000}},
        "quota": {"maxInstances": 3, "maxGpus": None},
    }
    assert await page.serious() == []
    await page.goto(page_at(running, "#/costs"))  # where its budget and quota have its name, not its id
    await page.wait(".budget:has-text('Token agent'):has-text('the token agent')")
    await page.wait("td[data-label=Scope]:has-text('the token agent')")
    assert await page.report(page_at(running)) == {"problems": [], "otherHosts": []}
