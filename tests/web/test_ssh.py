"""SSH access on an instance's page: the password is in the page only while it is shown."""

import json
from typing import Any

from tests.support.processes import Up, control
from tests.support.waiting import until
from tests.web.browser import WEB, Browser, Servant
from tests.web.requests import ask

ACCESS = "query ($id: ID!) { sshAccess(instanceId: $id) { command password isRunning } }"
IN_BROWSER = (
    "query ($id: ID!) { instanceAccess(instanceId: $id) { jupyter { address } webTerminal { address username } } }"
)
TOKEN = 'mutation { createToken(input: {name: "looks only", role: READER}) { secret errors { code } } }'
SHOW = "button:has-text('Show password')"
GET = "GET /gpu/instance"


async def test_the_password_is_in_the_page_only_after_a_click_and_until_the_next(servant: Servant, running: Up):
    id = await _ready(running, "reachable")
    access = (await ask(running, ACCESS, id=id))["sshAccess"]
    page = await servant.open("ssh", f"{_base(running)}/#/instances/{id}")

    await page.wait(f".reach .mono:has-text('{access['command']}')")
    await page.wait(SHOW)
    assert not await _has(page, access["password"])

    await page.click(SHOW)
    await page.wait(f".reach .password:has-text('{access['password']}')")
    assert await _has(page, access["password"])
    assert await _serious(page) == []
    await page.click("button[aria-label='Copy the SSH password']")
    await page.wait("button[aria-label='Copied']")

    await page.click("button:has-text('Hide password')")
    await page.wait(SHOW)
    assert not await _has(page, access["password"])
    assert access["password"] not in await page.evaluate("JSON.stringify({...sessionStorage, ...localStorage})")
    assert await page.report(_base(running)) == {"problems": [], "otherHosts": []}


async def test_jupyter_and_the_web_terminal_are_links_while_the_password_is_shown(servant: Servant, running: Up):
    id = await _ready(running, "notebook", tools=[{"name": "JUPYTER"}])
    access = (await ask(running, IN_BROWSER, id=id))["instanceAccess"]
    addresses = [access["jupyter"]["address"], access["webTerminal"]["address"]]
    page = await servant.open("browser", f"{_base(running)}/#/instances/{id}")
    await page.wait(SHOW)
    assert not await _has(page, addresses[1])

    await page.click(SHOW)
    await page.wait(".reach .ssh:has-text('Terminal') a")
    links = "[...document.querySelectorAll('.reach .ssh a')].map((each) => each.getAttribute('href'))"
    assert await page.evaluate(links) == addresses
    await page.wait(f".reach .ssh:has-text('Terminal'):has-text('user {access['webTerminal']['username']}')")
    assert await _serious(page) == []

    await page.click("button:has-text('Hide password')")
    await page.wait(".reach .ssh:has-text('Terminal')", state="detached")
    assert not await _has(page, addresses[1])
    assert await page.report(_base(running)) == {"problems": [], "otherHosts": []}


async def test_after_a_restart_the_page_shows_the_new_way_in(servant: Servant, running: Up):
    id = await _ready(running, "again")
    page = await servant.open("again", f"{_base(running)}/#/instances/{id}")
    await page.click(SHOW)
    await page.wait(".reach .password")
    before = await page.text(".reach .password")
    await ask(running, "mutation ($id: ID!) { restartInstance(input: {id: $id}) { errors { code } } }", id=id)

    # The old one goes with the run that it was for.
    await page.wait(".reach .password", state="detached")
    await _until(running, id, "READY")
    access = (await ask(running, ACCESS, id=id))["sshAccess"]
    await page.wait(f".reach .mono:has-text('{access['command']}')")
    await page.click(SHOW)
    await page.wait(f".reach .password:has-text('{access['password']}')")
    assert access["password"] != before


async def test_with_the_provider_away_the_page_says_so_and_retries_on_request(servant: Servant, running: Up):
    id = await _ready(running, "away")
    page = await servant.open("away", f"{_base(running)}/#/instances/{id}")
    await page.wait(SHOW)
    refused = {"kind": "error", "routes": [GET], "status": 400, "reason": "INVALID_ARGUMENT", "message": "no"}
    await control(running.ready["simulatorUrl"], "faults", {"faults": [refused]})
    try:
        await page.click(SHOW)
        await page.wait(".reach [role=alert]")
        assert "provider" in await page.text(".reach [role=alert]")
    finally:
        await control(running.ready["simulatorUrl"], "faults", {"faults": []})

    access = (await ask(running, ACCESS, id=id))["sshAccess"]
    await page.click(SHOW)
    await page.wait(f".reach .password:has-text('{access['password']}')")


async def test_a_reader_is_not_offered_to_log_in(servant: Servant, running: Up):
    id = await _ready(running, "read-only")
    reader = (await ask(running, TOKEN))["createToken"]["secret"]
    # Under this name the page brings no token with it, so it asks for one.
    page = await servant.open("reader", f"{_base(running).replace('127.0.0.1', 'rebound.localhost')}/#/instances/{id}")
    await page.wait(".sign-in")
    await page.fill("input[type=password]", reader)
    await page.press("Enter")
    await page.wait(".reach li")
    # Known for a READER from here on: until then this is offered.
    await page.wait("button:has-text('Run health check')", state="detached")

    assert await page.texts(".reach .ssh") == []
    assert "SSH" not in await page.text("main")


def _base(running: Up) -> str:
    return running.graphql_url.removesuffix("/graphql")


async def _has(page: Browser, secret: str) -> bool:
    """Anywhere: in what is shown, in attributes, in fields."""
    values = "[...document.querySelectorAll('input, textarea')].map((each) => each.value).join()"
    return secret in str(await page.evaluate(f"document.documentElement.outerHTML + {values}"))


async def _serious(page: Browser) -> list[Any]:
    await page.evaluate((WEB / "node_modules/axe-core/axe.min.js").read_text())
    found = await page.evaluate("axe.run().then((all) => JSON.stringify(all.violations))")
    return [each["id"] for each in json.loads(found) if each["impact"] in ("serious", "critical")]


async def _ready(running: Up, name: str, **fields: Any) -> str:
    created = await ask(
        running,
        "mutation ($input: CreateInstanceInput!) { createInstance(input: $input) { instance { id } errors { code } } }",
        input={"name": name, "productName": "RTX 4090 24GB", "image": "nginx", "ports": [{"port": 80}], **fields},
    )
    id = str(created["createInstance"]["instance"]["id"])
    await _until(running, id, "READY")
    return id


async def _until(running: Up, id: str, status: str) -> None:
    async def is_there() -> bool:
        found = await ask(running, "query ($id: ID!) { instance(id: $id) { status } }", id=id)
        return bool(found["instance"]["status"] == status)

    await until(is_there, within=60)
