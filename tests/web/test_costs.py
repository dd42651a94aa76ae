"""The Costs view: what was spent, by what, and the budgets that limit it."""

from tests.support.processes import Up
from tests.web.browser import Servant
from tests.web.requests import ask, page_at, ready
from tests.web.seed import spend


async def test_an_empty_view_says_what_to_do(servant: Servant, running: Up):
    page = await servant.open("no-costs", page_at(running, "#/costs"))
    await page.wait(".empty:has-text('Nothing was spent')")
    await page.wait(".empty:has-text('No budget yet')")
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
