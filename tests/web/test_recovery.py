"""Recovery in the dashboard: chosen at the create, shown, edited, undone, copied and removed."""

from typing import Any

from tests.support.processes import Up, control
from tests.web.browser import Servant
from tests.web.requests import ask, machine_of, page_at, ready

READ = """query ($name: String!) { instanceByName(name: $name) { recovery {
    on steps allowDataLoss regions billing giveUpAfter replaceBeforeReclaim drain } } }"""
ALL_STEPS = ["SAME", "MIGRATE", "RELOCATE"]
PAUSE = "mutation ($input: JobKindInput!) { %sJobs(input: $input) { errors { code } } }"


async def test_a_recovery_is_set_at_the_create_and_changed_later(servant: Servant, running: Up):
    page = await servant.open("recovery", page_at(running, "#/create?product=RTX%204090%2024GB"))
    await page.fill("label:has-text('Name') + input", "comes-back")
    await page.click(".segments label:has-text('Image')")
    await page.fill("label:text-is('Image') + input", "nginx")
    assert await page.texts(".check:has-text('Their data may be lost')") == []
    await page.click(".check:has-text('Recover it by itself')")
    await page.wait(".check:has-text('Make another machine, also') input:disabled")
    await page.click(".check:has-text('Their data may be lost')")
    await page.wait(".check:has-text('Make another machine, also') input:checked")
    await page.fill("label:has-text('Give up after') + input", "never")
    await page.wait(".field.wrong:has-text('Give up after'):has-text('60 to')")
    await page.fill("label:has-text('Give up after') + input", "6")
    await page.wait(".field:not(.wrong):has-text('Give up after')")
    assert await page.serious() == []
    await page.click("button:has-text('Create instance')")
    await page.click("dialog[open] button[type=submit]")
    await page.wait(".instance-head h1:has-text('comes-back')")
    made: dict[str, Any] = {
        "on": ["RECLAIM", "LOSS"],
        "steps": ALL_STEPS,
        "allowDataLoss": True,
        "regions": None,
        "billing": "SAME",
        "giveUpAfter": 21600,
        "replaceBeforeReclaim": False,
        "drain": 60,
    }
    assert await _recovery(running, "comes-back") == made
    await page.wait(".panel:has-text('Gives up after'):has-text('6h')")

    await page.click("a:has-text('Change recovery')")
    await page.click(".check:has-text('a spot reclaim')")
    await page.click(".check:has-text('Migrate it')")
    await page.fill("label:has-text('Regions of a new machine') + input", "US-CA-06, AS-SGP-02")
    await page.choose("label:has-text('Billing of a new machine') + select", "ON_DEMAND_AFTER")
    await page.fill("label:has-text('Old machine stays') + input", "9999")
    await page.click("button:has-text('Save changes')")
    await page.wait(".field.wrong:has-text('Old machine stays'):has-text('0 to 3600')")
    await page.fill("label:has-text('Old machine stays') + input", "30")
    await page.click("button:has-text('Save changes')")
    await page.wait(".toast:has-text('comes-back changed')")
    changed = made | {
        "on": ["LOSS"],
        "steps": ["SAME", "RELOCATE"],
        "regions": ["US-CA-06", "AS-SGP-02"],
        "billing": "ON_DEMAND_AFTER",
        "drain": 30,
    }
    assert await _recovery(running, "comes-back") == changed
    assert await page.serious() == []

    await page.click(".toast button:has-text('Undo')")
    await page.wait(".toast:has-text('Changes undone')")
    assert await _recovery(running, "comes-back") == made

    await page.click("a:has-text('Duplicate')")
    await page.wait("h1:has-text('Create one like comes-back')")
    assert await page.evaluate("document.querySelector('.recovery input').checked")
    await page.back()
    await page.click(".check:has-text('Recover it by itself')")
    await page.click("button:has-text('Save changes')")
    await page.wait(".toast:has-text('comes-back changed')")
    assert await _recovery(running, "comes-back") is None
    await page.click("[data-tab=overview]")
    await page.wait(".panel:has-text('None: after a spot reclaim')")
    await page.wait(".timeline li:has-text('Recovery changed')")
    assert await page.report(page_at(running)) == {"problems": [], "otherHosts": []}


async def test_a_recovery_in_progress_is_shown(servant: Servant, running: Up):
    recovery = {"allowDataLoss": True}
    id = await ready(running, "reclaimed", recovery=recovery, billing="SPOT")
    await ask(running, PAUSE % "pause", input={"kind": "RECOVER_INSTANCE"})
    notice = {"instanceId": await machine_of(running, id), "noticeSeconds": 0}
    await control(running.ready["simulatorUrl"], "reclaim", notice)
    await ask(running, "mutation { syncFleet { errors { code } } }")  # not only after the next poll
    page = await servant.open("incident", page_at(running, f"#/instances/{id}"))
    await page.wait(".panel:has-text('recovering for'):has-text('0 attempts'):has-text('Gives up')")
    assert await page.serious() == []
    await page.click("a:has-text('Change recovery')")
    await page.wait(".recovery:has-text('without this it ends')")

    await ask(running, PAUSE % "resume", input={"kind": "RECOVER_INSTANCE"})
    await page.click("[data-tab=overview]")
    await page.wait(".instance-head .chip:has-text('Ready')")
    await page.wait(".panel:has-text('recovering for')", state="detached")
    assert await page.report(page_at(running)) == {"problems": [], "otherHosts": []}


async def _recovery(running: Up, name: str) -> Any:
    return (await ask(running, READ, name=name))["instanceByName"]["recovery"]
