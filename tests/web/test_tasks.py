"""Five tasks of a person who sees the dashboard for the first time, each within five clicks."""

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from tests.support.processes import Up
from tests.web.browser import Browser, Servant
from tests.web.requests import ask, has_status, machine_of, page_at, ready
from tests.web.seed import die, spend

MOST_CLICKS = 5


@dataclass
class Visitor:
    """Counts clicks; typing into a field begins with one."""

    page: Browser
    clicks: int = 0

    async def click(self, selector: str) -> None:
        self.clicks += 1
        await self.page.click(selector)

    async def type(self, selector: str, text: str) -> None:
        self.clicks += 1
        await self.page.fill(selector, text)

    async def choose(self, selector: str, value: str) -> None:
        self.clicks += 1
        await self.page.choose(selector, value)


@pytest.fixture
async def visitor(servant: Servant, running: Up, request: pytest.FixtureRequest) -> AsyncIterator[Visitor]:
    page = await servant.open(request.node.name, page_at(running))
    await page.live()
    began = time.monotonic()
    visitor = Visitor(page)
    yield visitor
    assert visitor.clicks <= MOST_CLICKS
    assert await page.report(page_at(running)) == {"problems": [], "otherHosts": []}
    request.node.user_properties.append(("task", f"{visitor.clicks} clicks, {time.monotonic() - began:.1f} s"))


async def test_finding_what_costs_most_this_week(running: Up, visitor: Visitor):
    await ready(running, "dearest", productName="H100 SXM 80GB")
    await ready(running, "cheaper")
    await spend(running, days=5)

    await visitor.click("nav a:has-text('Costs')")
    await visitor.click(".segments label:has-text('7 days')")

    await visitor.page.wait("table.top a:has-text('dearest')")
    assert (await visitor.page.texts("table.top a"))[0] == "dearest"


async def test_seeing_why_a_training_died(running: Up, visitor: Visitor):
    id = await ready(running, "nightly-training")
    await die(running, await machine_of(running, id))
    await has_status(running, id, "EXITED")

    await visitor.click(".row a:has-text('nightly-training')")

    await visitor.page.wait(".banner.bad:has-text('Exit code 137')")
    await visitor.page.wait(".last-lines:has-text('CUDA out of memory')")


async def test_getting_the_password_to_log_in(running: Up, visitor: Visitor):
    id = await ready(running, "notebook", ports=[{"port": 22, "type": "tcp"}])

    await visitor.click(".row a:has-text('notebook')")
    await visitor.click("button:has-text('Show password')")

    access = (await ask(running, "query ($id: ID!) { sshAccess(instanceId: $id) { command password } }", id=id))[
        "sshAccess"
    ]
    await visitor.page.wait(".password")
    assert (await visitor.page.text(".password")).strip() == access["password"]
    assert access["command"] in await visitor.page.text(".reach")


async def test_stopping_everything_of_a_label(running: Up, visitor: Visitor):
    labels = [{"key": "team", "value": "render"}]
    stopped = [await ready(running, f"render-{number}", labels=labels) for number in (1, 2)]
    kept = await ready(running, "not-render")

    await visitor.type("input[type=search]", "team=render")
    await visitor.page.wait(".bulk:has-text('2 instances')")
    await visitor.click("input[aria-label='Select all shown instances']")
    await visitor.click(".bulk button:has-text('Stop')")
    await visitor.click("dialog button[type=submit]")

    for id in stopped:
        await has_status(running, id, "EXITED")
    await has_status(running, kept, "READY")


async def test_making_one_like_that_in_another_region(running: Up, visitor: Visitor):
    id = await ready(running, "server-1", region="US-CA-06")
    region = (await ask(running, "query ($id: ID!) { instance(id: $id) { region } }", id=id))["instance"]["region"]
    other = "AS-SGP-02" if region != "AS-SGP-02" else "US-CA-06"

    await visitor.click(".row a:has-text('server-1')")
    await visitor.click("a:has-text('Duplicate')")
    await visitor.page.wait("h1:has-text('Create one like server-1')")
    await visitor.choose("label:has-text('Preferred region') + select", other)
    await visitor.click("button:has-text('Create instance')")
    await visitor.click("dialog button[type=submit]")

    await visitor.page.wait(".instance-head:has-text('server-2') .chip.good")
    made = (await ask(running, '{ instanceByName(name: "server-2") { regions } }'))["instanceByName"]
    assert made["regions"][0] == other
