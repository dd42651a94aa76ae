"""The dashboard updates live: a real server, database and simulator, and real browsers."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import Up, control, free_port, up
from tests.support.waiting import until
from tests.web.browser import Servant
from tests.web.requests import ask

COUNT = "{ instances { totalCount } }"
TRANSITIONS = ["Ready", "Health checking", "Running", "Starting", "Creating"]  # newest first, as the page shows them


async def test_a_create_is_watched_to_ready_in_two_browsers_at_once(servant: Servant, running: Up):
    base = running.graphql_url.removesuffix("/graphql")
    viewer = await servant.open("viewer", f"{base}/")
    await viewer.wait(".empty")
    creator = await servant.open("creator", f"{base}/#/create")
    await creator.wait(".candidates li.best")

    await creator.fill("label:has-text('Name') + input", "trainer")
    await creator.click(".segments label:has-text('Image')")
    await creator.fill("label:has-text('Image') + input", "nginx")
    await creator.fill("label:has-text('Ports') + input", "80")
    await creator.click("button:has-text('Create instance')")
    assert "per hour" in await creator.text("dialog[open]")
    await creator.click("dialog[open] button[type=submit]")

    await creator.wait(".instance-head .chip.good")
    await viewer.wait(".row:has-text('trainer') .chip.good")
    await creator.wait(".timeline li:has-text('Create succeeded')")
    assert await creator.texts(".timeline li:not(.minor) strong") == TRANSITIONS
    assert (await viewer.text(".row:has-text('trainer') .cell-health")).strip() == "Healthy"
    await creator.click("button:has-text('Run health check')")
    await creator.wait("button:has-text('Run health check'):not([disabled])")
    assert "Healthy" in await creator.text(".probe")
    await viewer.wait(".cost .figure:not(:has-text('$0.00'))")
    assert "1 billed now" in await viewer.text(".cost")
    await viewer.fill("input[type=search]", "another")  # the price is that of the rows that are shown
    await viewer.wait(".cost .figure:has-text('$0.00')")
    for browser in (viewer, creator):
        assert await browser.report(base) == {"problems": [], "otherHosts": []}


@pytest.mark.timeout(400)
async def test_a_server_that_is_killed_and_comes_back_leaves_nothing_unseen(servant: Servant, migrated_home: Path):
    home, port = migrated_home, free_port()
    slowly = {"SIMULATOR_SPEED": "4"}
    async with up(home, "--port", str(port), env=slowly) as first:
        base = f"http://127.0.0.1:{port}"
        id = await _create(first, name="survivor")
        fleet = await servant.open("fleet", f"{base}/")
        one = await servant.open("one", f"{base}/#/instances/{id}")
        await fleet.wait(".row:has-text('survivor')")
        await one.wait(".timeline li")
        for browser in (fleet, one):
            await browser.evaluate("window.same = true")

        await first.kill_tree()
        for browser in (fleet, one):
            await browser.wait(".connection.lost:has-text('Not connected')")

    async with up(home, "--port", str(port)) as second:
        for browser in (fleet, one):
            await browser.live()
        await fleet.wait(".row:has-text('survivor') .chip.good")
        await one.wait(".instance-head .chip.good")
        await one.wait(".timeline li:has-text('Create succeeded')")
        await one.click("[data-tab=events]")
        shown = await one.texts(".raw-events summary .mono")
        assert shown == list(reversed(await _events(second, id)))
        assert await fleet.evaluate("window.same")
        assert await one.evaluate("window.same")

        token = (home / "token").read_text()
        await second.kill_tree()

    # Another database in the same place: the cursor means nothing there, so the page reads everything anew.
    other = home / "other"
    other.mkdir()
    (other / "token").write_text(token)
    async with up(other, "--port", str(port)):
        await fleet.wait(".empty")
        assert await fleet.evaluate("window.same")
    shutil.rmtree(other, ignore_errors=True)


async def test_a_start_that_fails_says_why_and_what_can_be_done(servant: Servant, running: Up):
    create = "POST /gpu/instance/create"
    faults: list[dict[str, Any]] = [
        {"kind": "error", "routes": [create], "times": 1, "status": 400, "reason": "INSUFFICIENT_RESOURCE",
         "message": "the node has no GPU left"},
        {"kind": "pullFailure", "routes": [create], "times": 1},
    ]  # fmt: skip
    await control(running.ready["simulatorUrl"], "faults", {"faults": faults})
    id = await _create(running, name="unlucky", image="no/such-image")
    base = running.graphql_url.removesuffix("/graphql")
    page = await servant.open("failed", f"{base}/#/instances/{id}")

    await page.wait(".banner.bad")
    banner = await page.text(".banner.bad")
    assert "Instance failed" in banner
    assert "IMAGE_PULL_FAILED" in banner
    assert "Check the image and its registry credential" in banner  # what can be done about this code
    assert "Available actions" in banner
    await page.click("[data-tab=operations]")
    await page.wait(".tab-panel tbody tr:has-text('Rejected') + tr:has-text('Created')")
    rows = await page.texts(".tab-panel tbody tr")
    assert len(rows) == 2
    assert "Rejected" in rows[0]
    assert "no GPU left" in rows[0]
    assert "Created" in rows[1]

    await page.click(".banner.bad button:has-text('Retry create')")
    await page.wait(".chip:has-text('Ready')")
    assert await page.report(base) == {"problems": [], "otherHosts": []}


async def test_the_keyboard_filters_selects_and_stops_several(servant: Servant, running: Up):
    for name in ("blue-1", "blue-2", "red-1"):
        await _create(running, name=name)
    base = running.graphql_url.removesuffix("/graphql")
    page = await servant.open("keys", f"{base}/")
    for name in ("blue-1", "blue-2", "red-1"):
        await page.wait(f".row:has-text('{name}') .chip.good")

    await page.press("/")
    assert await page.evaluate("document.activeElement.type") == "search"
    for key in "blue":
        await page.press(key)
    await page.wait(".bulk:has-text('2 instances')")
    await page.evaluate("document.querySelector('.row:not(.head) input').focus()")
    await page.press("Space")
    await page.press("ArrowDown")
    await page.press("Space")
    await page.wait(".bulk.on:has-text('2 selected')")

    # Escape takes it back, and the focus is where it was.
    await page.evaluate("document.querySelector('.bulk.on .button').focus()")
    await page.press("Enter")
    await page.wait("dialog[open]:has-text('Stop 2 instances?')")
    for _ in range(6):
        await page.press("Tab")
        # The browser's own bar may have the focus for a moment; nothing behind the dialog ever has.
        assert await page.evaluate("!document.activeElement || !document.activeElement.closest('main, nav')")
    await page.press("Escape")
    await page.wait("dialog", state="detached")
    assert await page.evaluate("document.activeElement.closest('.bulk') !== null")

    await page.press("Enter")
    await page.wait("dialog[open]")
    await page.click("dialog[open] button[type=submit]")
    await page.wait(".row:has-text('blue-1') .chip.off")
    await page.wait(".row:has-text('blue-2') .chip.off")
    await page.wait(".toast")
    assert await page.evaluate("document.querySelector('.toasts').getAttribute('aria-live')") == "polite"


async def test_what_is_wrong_is_said_beside_the_field(servant: Servant, running: Up):
    before = await ask(running, COUNT)
    base = running.graphql_url.removesuffix("/graphql")
    page = await servant.open("wrong", f"{base}/#/create?product=RTX%204090%2024GB")
    await page.wait(".candidates li.best")

    await page.fill("label:has-text('GPUs') + input", "9")

    await page.wait(".field.wrong:has-text('GPUs') .note:has-text('1 to 8')")
    await page.fill("label:has-text('GPUs') + input", "2")
    await page.wait(".candidates li.best")
    # Checked before anything is confirmed: no name was given, and that is said where one gives it.
    await page.click("button:has-text('Create instance')")
    await page.wait(".field.wrong:has-text('Name')")
    assert await page.evaluate("document.querySelector('dialog') === null")
    assert await ask(running, COUNT) == before


# The socket reports it first; HTTP requests report it after a sign-in.
LATE_REFUSALS = """
    window.refusals = 0;
    const ask = window.fetch;
    window.fetch = async (...given) => {
      const response = await ask(...given);
      if (response.status === 401) {
        while (!document.querySelector(".connection.live")) await new Promise((soon) => setTimeout(soon, 50));
        setTimeout(() => { window.refusals += 1; }, 500);
      }
      return response;
    };
    null;
"""


async def test_without_a_development_token_the_page_asks_for_one(servant: Servant, running: Up):
    base = running.graphql_url.removesuffix("/graphql")
    # A host name that another party could point here gets no token.
    page = await servant.open("stranger", base.replace("127.0.0.1", "rebound.localhost"))

    await page.wait(".sign-in")
    assert await page.serious() == []
    await page.evaluate(LATE_REFUSALS)
    await page.fill("input[type=password]", "pl_wrong")
    await page.press("Enter")
    await page.wait(".sign-in .field.wrong")
    await page.fill("input[type=password]", running.token)
    await page.press("Enter")
    await page.live()
    await until(lambda: page.evaluate("window.refusals > 0"), within=60)
    await page.live()  # what is said of the wrong one is not said of this one
    assert await page.evaluate("sessionStorage.length") == 1


PAUSE = "mutation ($input: JobKindInput!) { %sJobs(input: $input) { errors { code } } }"


async def test_a_create_shows_its_place_in_line_and_when_it_is_expected(servant: Servant, running: Up):
    creates = {"kind": "CREATE_INSTANCE"}
    await ask(running, PAUSE % "pause", input=creates)
    ids = [await _create(running, name=f"waits-{number}") for number in range(3)]
    base = running.graphql_url.removesuffix("/graphql")
    page = await servant.open("waiting", f"{base}/#/instances/{ids[-1]}")

    document = "query ($id: ID!) { instance(id: $id) { openOperation { queue { position } } } }"
    place = (await ask(running, document, id=ids[-1]))["instance"]["openOperation"]["queue"]["position"]
    assert place >= 3
    await page.wait(f".progress:has-text('Number {place} in line, begins'):has-text('; ready')")

    # A fast simulator may have it ready before the page is drawn again; then there is no progress any more.
    await ask(running, PAUSE % "resume", input=creates)
    await page.wait(".progress:has-text('in line')", state="detached")
    assert await page.report(base) == {"problems": [], "otherHosts": []}


async def _create(running: Up, *, name: str, image: str = "nginx") -> str:
    created = await ask(
        running,
        "mutation ($input: CreateInstanceInput!) { createInstance(input: $input) { instance { id } errors { code } } }",
        input={"name": name, "productName": "RTX 4090 24GB", "image": image, "ports": [{"port": 80}]},
    )
    return str(created["createInstance"]["instance"]["id"])


async def _events(running: Up, id: str) -> list[str]:
    document = "query ($id: ID!) { events(filter: {ids: [$id]}, first: 100) { nodes { id } } }"
    return [str(node["id"]) for node in (await ask(running, document, id=id))["events"]["nodes"]]
