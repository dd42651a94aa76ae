"""Lifetimes in the dashboard: the column, +1 h, presets, the GPU chart and the policy."""

import json
from typing import Any

from tests.support.processes import Up
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
    await page.click("button:has-text('No limit')")
    await page.wait(".panel:has-text('No limits')")
    assert (await ask(running, READ, id=ids[1]))["instance"]["lifetime"] is None
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
