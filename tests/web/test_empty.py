"""A project that has nothing yet: every view says what to do next, and is well in both widths."""

import pytest

from tests.support.processes import Up
from tests.web.browser import Servant
from tests.web.requests import ask
from tests.web.test_strangers import page_of, signed_in

PROJECT = 'mutation { createProject(input: {name: "new-here"}) { project { id } } }'
TOKEN = "mutation ($input: CreateTokenInput!) { createToken(input: $input) { secret } }"
# What is read there, and what an ADMIN is told to do next.
VIEWS = (
    ("#/", "No instances yet", "Create one here"),
    ("#/market", "None yet", "Create when available"),
    ("#/market", "None yet", "Alert me"),
    ("#/costs", "Nothing was spent in this time", "View products and prices"),
    ("#/costs", "No budget yet", "Create one with the form"),
    ("#/volumes", "No volumes yet", "Create one below"),
    ("#/account/networks", "None yet", "Create one with the form"),
    ("#/account/prewarms", "None yet", "Fetch one with the form"),
    ("#/account/images", "None yet", "Stop an instance, then save it"),
    ("#/instances/inst_0123456789abcdef0123456789abcdef", "Instance not found", "Show the fleet"),
    ("#/events", "No events yet", "webhook"),
    ("#/events/webhooks", "None yet", "A webhook gets every event"),
)


@pytest.mark.parametrize("width", [1280, 390])
async def test_every_empty_view_says_what_to_do_next(servant: Servant, running: Up, width: int):
    project = (await ask(running, PROJECT.replace("here", f"here-{width}")))["createProject"]["project"]["id"]
    given = {"name": "first", "role": "ADMIN", "projectId": project}
    secret = (await ask(running, TOKEN, input=given))["createToken"]["secret"]
    page = await signed_in(servant, running, f"empty-{width}", secret, width=width)

    for hash, title, next_step in VIEWS:
        await page.goto(f"{page_of(running)}/{hash}")
        await page.wait(f".empty:has-text('{title}'):has-text('{next_step}')")
        assert await page.serious() == [], hash
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert await page.evaluate(wide) == 0, hash

    assert await page.report(page_of(running)) == {"problems": [], "otherHosts": []}


async def test_a_reader_is_not_told_to_do_what_is_not_offered(servant: Servant, running: Up):
    project = (await ask(running, PROJECT.replace("here", "reader")))["createProject"]["project"]["id"]
    given = {"name": "looks", "role": "READER", "projectId": project}
    secret = (await ask(running, TOKEN, input=given))["createToken"]["secret"]
    page = await signed_in(servant, running, "empty-reader", secret)
    for hash in ("#/costs", "#/volumes", "#/account/networks", "#/account/prewarms", "#/account/images"):
        await page.goto(f"{page_of(running)}/{hash}")
        await page.wait(".empty")
        shown = " ".join(await page.texts(".empty"))
        assert not any(word in shown for word in ("with the form", "Create one", "Fetch one")), (hash, shown)
