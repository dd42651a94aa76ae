"""Lifetimes in the dashboard: the column, +1 h, presets, the GPU chart and the policy."""

import json
from typing import Any

from tests.support.processes import Up, control
from tests.support.waiting import until
from tests.web.browser import WEB, Browser, Servant
from tests.web.requests import ask

CREATE = "mutation ($input: CreateInstanceInput!) { createInstance(input: $input) { instance { id } errors { code } } }"
READ = "query ($id: ID!) { instance(id: $id) { status lifetime { maxDuration idle { window } next { at reason } } } }"
POLICY = "{ viewer { project { lifetimePolicy { required maxDurationAtMost } } } }"


async def test_the_next_end_counts_down_is_sorted_and_extended(servant: Servant, running: Up):
    ids = [await _ready(running, name, seconds) for name, seconds in (("late", 7200), ("soon", 3600))]
    page = await servant.open("lifetime", f"{_base(running)}/#/")
    await page.wait(".cell-ends:has-text('stops in 59m')")
    await page.click("button.sort:has-text('Ends')")
    names = "[...document.querySelectorAll('.cell-name')].map((each) => each.textContent).join()"
    await until(lambda: _is(page, names, "soon,late"))

    await page.click("a:has-text('soon')")
    await page.wait(".ends:has-text('stops in 59m')")
    await page.wait(".gpu-chart svg")
    tops = "[...document.querySelectorAll('.buttons .button')].slice(0, 2).map((each) => each.offsetTop)"
    first, second = await page.evaluate(tops)
    assert first == second  # the presets stand beside +1 h
    await page.click("button:has-text('+1 h')")
    await page.wait(".ends:has-text('stops in 1h 59m')")
    assert (await ask(running, READ, id=ids[1]))["instance"]["lifetime"]["next"]["reason"] == "MAX_DURATION"

    await page.click("button:has-text('Stop when idle for 30 min')")
    await page.wait(".gpu-chart:has-text('idle below 5 %')")
    await page.wait(".gpu-chart .threshold", state="attached")
    await page.wait(".ends:has-text('stops if idle')")
    limits = (await ask(running, READ, id=ids[1]))["instance"]["lifetime"]
    assert (limits["maxDuration"], limits["idle"]) == (None, {"window": 1800})

    await page.click("button:has-text('Stop at 18:00')")
    await page.wait(".facts:has-text('Deadline')")
    await page.click("button:has-text('Stop after 4 h')")
    await page.wait(".facts:has-text('Longest run')")
    await page.wait(".ends:has-text('stops in')")
    assert (await ask(running, READ, id=ids[1]))["instance"]["lifetime"]["maxDuration"] == 4 * 3600
    await page.click("button:has-text('No limit')")
    await page.wait(".panel:has-text('No limits')")
    assert (await ask(running, READ, id=ids[1]))["instance"]["lifetime"] is None
    assert await _serious(page) == []
    assert await page.report(_base(running)) == {"problems": [], "otherHosts": []}


IN_ITS_CELL = """(() => { const button = document.querySelector('[aria-label="+1 h for closing"]');
    const cell = button.closest('.cell-ends').getBoundingClientRect();
    return button.getBoundingClientRect().right <= cell.right; })()"""


async def test_one_more_hour_is_a_click_in_the_row_and_in_the_head(servant: Servant, running: Up):
    id = await _ready(running, "closing", 3600)
    page = await servant.open("extend", f"{_base(running)}/#/?q=closing")
    button = "[aria-label='+1 h for closing']"
    await page.wait(".cell-ends:has-text('stops in 59m')")
    assert await page.evaluate(IN_ITS_CELL)
    await page.click(f".cell-ends {button}")
    await page.wait(".cell-ends:has-text('stops in 1h 59m')")  # by the event, without a reload
    first = (await ask(running, READ, id=id))["instance"]["lifetime"]["next"]["at"]

    await page.click("a:has-text('closing')")
    await page.click(f".instance-head {button}")
    await page.wait(".instance-head:has-text('stops in 2h 59m')")
    assert (await ask(running, READ, id=id))["instance"]["lifetime"]["next"]["at"] > first
    assert await page.report(_base(running)) == {"problems": [], "otherHosts": []}


async def test_a_reclaim_is_counted_down_in_the_row_and_in_the_head(servant: Servant, running: Up):
    id = await _ready(running, "on-spot", 7200)
    machine = (await ask(running, "query ($id: ID!) { instance(id: $id) { novitaId } }", id=id))["instance"]["novitaId"]
    page = await servant.open("reclaim", f"{_base(running)}/#/?q=on-spot")
    await page.wait(".cell-ends:has-text('stops in')")

    notice = {"instanceId": machine, "noticeSeconds": 1200}
    await control(running.ready["simulatorUrl"], "reclaim", notice)
    await ask(running, "mutation { syncFleet { errors { code } } }")  # not only after the next poll

    await page.wait(".cell-ends .reclaim:has-text('reclaimed in 19m')")  # sooner than the end of its lifetime
    await page.click("a:has-text('on-spot')")
    await page.wait(".instance-head .reclaim:has-text('reclaimed in 19m')")
    await page.wait(".instance-head:has-text('stops in 1h')")
    assert await _serious(page) == []
    assert await page.report(_base(running)) == {"problems": [], "otherHosts": []}


async def test_the_policy_is_set_in_the_settings(servant: Servant, running: Up):
    page = await servant.open("policy", f"{_base(running)}/#/settings")
    await page.wait("form:has-text('Every instance needs') button:not([disabled])")
    await page.fill("form:has-text('Every instance needs') .pair .field:first-child input", "8")
    await page.click("button:has-text('Save policy')")
    await page.wait(".toast:has-text('Lifetime policy saved')")
    rules = (await ask(running, POLICY))["viewer"]["project"]["lifetimePolicy"]
    assert rules == {"required": False, "maxDurationAtMost": 28800}
    assert await page.report(_base(running)) == {"problems": [], "otherHosts": []}


async def _ready(running: Up, name: str, seconds: int) -> str:
    given = {
        "name": name,
        "productName": "RTX 4090 24GB",
        "image": "nginx",
        "ports": [],
        "lifetime": {"maxDuration": seconds},
    }
    payload = (await ask(running, CREATE, input=given))["createInstance"]
    assert payload["errors"] == []
    id = payload["instance"]["id"]

    async def is_ready() -> bool:
        return (await ask(running, READ, id=id))["instance"]["status"] == "READY"

    await until(is_ready, within=60)
    return id


def _base(running: Up) -> str:
    return running.graphql_url.removesuffix("/graphql")


async def _serious(page: Browser) -> list[Any]:
    await page.evaluate((WEB / "node_modules/axe-core/axe.min.js").read_text())
    found = await page.evaluate("axe.run().then((all) => JSON.stringify(all.violations))")
    return [each["id"] for each in json.loads(found) if each["impact"] in ("serious", "critical")]


async def _is(page: Browser, expression: str, expected: str) -> bool:
    return await page.evaluate(expression) == expected
