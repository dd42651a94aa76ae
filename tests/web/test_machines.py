"""Machines of an instance: a countdown after the notice of a reclaim, and a lane for each machine."""

from tests.support.processes import Up, control
from tests.web.browser import Servant
from tests.web.requests import ask, machine_of, page_at, ready

SYNC = "mutation { syncFleet { errors { code } } }"
RECOVERY = {"allowDataLoss": True, "replaceBeforeReclaim": True, "drain": 3600}


async def test_a_notice_counts_down_and_the_next_machine_gets_a_lane(servant: Servant, running: Up):
    id = await ready(running, "replaced", billing="SPOT", recovery=RECOVERY)
    page = await servant.open("machines", page_at(running, f"#/instances/{id}"))
    await page.wait(".instance-head .chip.good")
    assert await page.texts(".lanes li") == []  # one machine needs no lanes

    await page.wait(".panel:has-text('Connect'):has-text('ssh -p')")
    old = await page.text(".panel:has-text('Connect')")
    machine = await machine_of(running, id)
    await control(running.ready["simulatorUrl"], "reclaim", {"instanceId": machine, "noticeSeconds": 3600})
    await ask(running, SYNC)

    await page.wait(".instance-head .reclaim:has-text('reclaimed in')")
    await page.wait(".lanes li:nth-child(2):has-text('Serving')")
    await page.wait(".lanes li:nth-child(1):has-text('Draining')")
    assert [text.split(".")[0] for text in await page.texts(".lanes li")] == ["1", "2"]
    await page.wait(".instance-head .chip.good")
    await page.wait(".instance-head:not(:has(.reclaim))")
    assert await page.text(".panel:has-text('Connect')") != old  # its endpoints are the other machine's
    assert await page.serious() == []
    assert await page.report(page_at(running)) == {"problems": [], "otherHosts": []}
