"""Users with other tokens and roles, and hostile names, in the dashboard."""

from typing import Any

import aiohttp

from tests.support.processes import Up
from tests.support.waiting import until
from tests.web.browser import Browser, Servant

HOSTILE = '<img src=x onerror="window.hacked=1"><b>&amp;'


async def test_a_token_that_is_revoked_ends_the_page_and_says_so(servant: Servant, running: Up):
    id, secret = await new_token(running, "passing", "OPERATOR")
    page = await signed_in(servant, running, "revoked", secret)

    await _ask(running, "mutation ($id: ID!) { revokeToken(input: {id: $id}) { errors { code } } }", id=id)

    await page.wait(".sign-in .field.wrong:has-text('not valid')")
    assert await page.evaluate("sessionStorage.length") == 0


async def test_a_reader_is_offered_no_action(servant: Servant, running: Up):
    instance = await _create(running, "looked-at")
    _, secret = await new_token(running, "reader", "READER")
    page = await signed_in(servant, running, "reader", secret)
    base = page_of(running)

    await page.goto(f"{base}/#/instances/{instance}")
    await page.wait(".instance-head .chip.good")

    enabled = await page.evaluate(
        "[...document.querySelectorAll('main button')].filter(b => !b.disabled).map(b => b.textContent.trim())"
    )
    assert not {"Stop", "Restart", "Delete"} & set(enabled)
    await page.goto(f"{base}/#/work")
    await page.wait("table.kinds")
    assert await page.evaluate("[...document.querySelectorAll('table.kinds button')].every(b => b.disabled)")


async def test_what_others_have_named_is_shown_as_text(servant: Servant, running: Up):
    """A name, a label and a command may hold anything; none of it becomes part of the page."""
    id = await _create(running, HOSTILE, labels=[{"key": "owner", "value": HOSTILE}], command=HOSTILE)
    base = running.graphql_url.removesuffix("/graphql")
    page = await servant.open("hostile", f"{base}/")

    await page.wait(".row .chip.good")
    shown = await page.texts(".row:not(.head)")
    await page.goto(f"{base}/#/instances/{id}")
    await page.wait(".instance-head .chip.good")

    assert any(HOSTILE in row for row in shown)
    assert HOSTILE in await page.text(".instance-head")
    assert await page.evaluate("window.hacked === undefined")
    assert await page.evaluate("document.querySelectorAll('main img').length") == 0
    assert await page.report(base) == {"problems": [], "otherHosts": []}


async def test_pausing_a_job_kind_is_shown_in_every_browser(servant: Servant, running: Up):
    """Both browsers open the view directly, one by its former address: it subscribes without another view first."""
    await _create(running, "worked-on")
    base = running.graphql_url.removesuffix("/graphql")
    page = await servant.open("jobs-pauser", f"{base}/#/jobs")
    other = await servant.open("jobs-watcher", f"{base}/#/work")
    for browser in (page, other):
        await browser.wait("table.kinds tr:has-text('Create instance')")

    await page.click("button[aria-label='Pause: Create instance']")
    await page.click("dialog[open] button[type=submit]")
    await other.wait("tr:has-text('Create instance') .chip:has-text('Paused')")

    await other.click("button[aria-label='Resume: Create instance']")
    await page.wait("tr:has-text('Create instance') .chip:has-text('Paused')", state="detached")


async def signed_in(servant: Servant, running: Up, name: str, secret: str, **options: Any) -> Browser:
    """A page that was handed no token, because of the name that it was asked for by."""
    page = await servant.open(name, page_of(running), **options)
    await page.wait(".sign-in")
    await page.fill("input[type=password]", secret)
    await page.press("Enter")
    await page.live()
    return page


def page_of(running: Up) -> str:
    return running.graphql_url.removesuffix("/graphql").replace("127.0.0.1", "rebound.localhost")


async def new_token(running: Up, name: str, role: str) -> tuple[str, str]:
    created = await _ask(
        running,
        "mutation ($input: CreateTokenInput!) { createToken(input: $input) { token { id } secret errors { code } } }",
        input={"name": name, "role": role},
    )
    return created["createToken"]["token"]["id"], created["createToken"]["secret"]


async def _create(running: Up, name: str, **more: Any) -> str:
    """An instance that is ready."""
    created = await _ask(
        running,
        "mutation ($input: CreateInstanceInput!) { createInstance(input: $input) { instance { id } errors { code } } }",
        input={"name": name, "productName": "RTX 4090 24GB", "image": "nginx", "ports": [{"port": 80}], **more},
    )
    assert created["createInstance"]["errors"] == []
    id = str(created["createInstance"]["instance"]["id"])

    async def is_ready() -> bool:
        return (await _ask(running, "query ($id: ID!) { instance(id: $id) { status } }", id=id))["instance"] == {
            "status": "READY"
        }

    await until(is_ready, within=60)
    return id


async def _ask(running: Up, query: str, **variables: Any) -> dict[str, Any]:
    async with (
        aiohttp.ClientSession(headers={"authorization": f"Bearer {running.token}"}) as session,
        session.post(running.graphql_url, json={"query": query, "variables": variables}) as response,
    ):
        answer = await response.json()
    assert "errors" not in answer, answer
    return dict(answer["data"])
