"""What happens inside a machine: its log, its usage, its health, and why its container died."""

import time

from tests.support.processes import Up, control
from tests.web.browser import Browser, Servant
from tests.web.requests import ask, has_status, machine_of, page_at, ready
from tests.web.seed import LAST_WORDS, die

SAY = "clipboard = []; navigator.clipboard.writeText = async (text) => { clipboard.push(text); }; null"
LIMIT = "mutation ($input: UpdateInstanceInput!) { updateInstance(input: $input) { errors { code } } }"


async def test_a_log_is_followed_searched_and_copied(servant: Servant, running: Up):
    id = await ready(running, "talker")
    machine = await machine_of(running, id)
    simulator = running.ready["simulatorUrl"]
    page = await servant.open("logs", page_at(running, f"#/instances/{id}/logs"))
    await page.wait(".log")
    await page.wait(".toolbar:has-text('live')")

    await control(simulator, f"instances/{machine}/log", {"text": "epoch 1 LOSS 0.9"})
    await page.wait(".log:has-text('epoch 1 LOSS 0.9')")  # without a reload
    await page.fill("input[aria-label='Search the log']", "loss")
    await page.wait(".toolbar:has-text('1 match')")
    assert await page.texts(".log mark") == ["LOSS"]
    await page.evaluate(SAY)
    await page.click("button[aria-label='Copy the shown lines']")
    await page.wait("button[aria-label=Copied]")
    assert await page.evaluate("clipboard") == ["epoch 1 LOSS 0.9"]

    await control(simulator, f"instances/{machine}/log", {"text": "pulled by test", "which": "system"})
    await page.fill("input[aria-label='Search the log']", "")
    await page.click(".segments label:has-text('Provider')")
    await page.wait(".log:has-text('pulled by test')")
    assert "log=system" in await page.hash()
    assert await page.serious() == []
    assert await page.report(page_at(running)) == {"problems": [], "otherHosts": []}


async def test_usage_of_the_last_hour_is_drawn_with_the_idle_line(servant: Servant, running: Up):
    id = await ready(running, "worker")
    await ask(running, LIMIT, input={"id": id, "lifetime": {"set": {"idle": {"window": 1800, "gpuBelowPercent": 10}}}})
    now = time.time()
    load = {"gpuPercent": 42, "from": now - 7200, "to": now + 3600}
    await control(running.ready["simulatorUrl"], f"instances/{await machine_of(running, id)}/load", load)

    page = await servant.open("usage", page_at(running, f"#/instances/{id}/usage"))
    await page.wait(".line-chart:has-text('GPU, last hour: 42 %')")
    await page.wait(".line-chart:has-text('idle below 10 %') .threshold", state="attached")
    charts = await page.texts(".line-chart figcaption")
    assert [each.split(",")[0] for each in charts] == ["GPU", "GPU memory", "CPU", "Memory", "Root disk"]
    drawn = "[...document.querySelectorAll('.line-chart')].every((chart) => chart.querySelector('polyline'))"
    assert await page.evaluate(drawn)
    assert await page.serious() == []
    assert await page.report(page_at(running)) == {"problems": [], "otherHosts": []}


async def test_every_recorded_health_check_is_a_bar_of_its_history(servant: Servant, running: Up):
    id = await ready(running, "probed")
    machine, simulator = await machine_of(running, id), running.ready["simulatorUrl"]
    page = await servant.open("health", page_at(running, f"#/instances/{id}"))
    await page.wait(".panel:has-text('Health') .chip.good, .panel:has-text('Healthy')")
    assert await page.texts(".health-history") == []  # one check is no history

    await control(simulator, f"instances/{machine}/endpoint", {"port": 80, "mode": "badGateway"})
    await _check_health(page)
    await page.wait(".health-history:has-text('1 of the last 2 recorded checks healthy')")
    await control(simulator, f"instances/{machine}/endpoint", {"port": 80, "mode": "ok"})
    await _check_health(page)
    await page.wait(".health-history:has-text('2 of the last 3 recorded checks healthy')")
    bars = "[...document.querySelectorAll('.health-history rect')].map((bar) => bar.getAttribute('class')).join()"
    assert await page.evaluate(bars) == "good,bad,good"
    await page.reload()
    await page.wait(".health-history:has-text('2 of the last 3 recorded checks healthy')")
    assert await page.serious() == []
    assert await page.report(page_at(running)) == {"problems": [], "otherHosts": []}


async def _check_health(page: Browser) -> None:
    await page.wait("button:has-text('Run health check'):not([disabled])")
    await page.click("button:has-text('Run health check')")


async def test_a_container_that_died_shows_its_exit_code_and_last_lines(servant: Servant, running: Up):
    id = await ready(running, "training")
    page = await servant.open("died", page_at(running, f"#/instances/{id}"))
    await page.wait(".instance-head .chip.good")
    for _ in range(2):
        await page.click("button:has-text('Run health check')")
        await page.wait("button:has-text('Run health check'):not([disabled])")
    await die(running, await machine_of(running, id))
    await has_status(running, id, "EXITED")

    await page.wait(".banner.bad:has-text('Exit code 137 (SIGKILL, often out of memory)')")
    await page.wait(".last-lines")
    assert [line for line in LAST_WORDS if line not in await page.text(".last-lines")] == []
    assert await page.evaluate("document.querySelectorAll('.timeline .turning').length") == 0  # nothing turns any more
    assert await page.serious() == []
    await page.click(".banner a")
    await page.wait(f".log:has-text('{LAST_WORDS[-1]}')")
    assert await page.report(page_at(running)) == {"problems": [], "otherHosts": []}
