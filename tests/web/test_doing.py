"""What can be done in the dashboard: duplicate, edit and undo, adopt, projects, webhooks, retry, typed confirmation."""

from typing import Any

import aiohttp

from tests.support.processes import Up, control
from tests.support.receiver import Receiver
from tests.support.waiting import until
from tests.web.browser import Servant
from tests.web.requests import ask, created, has_status, page_at, ready

READ = """query ($id: ID!) { instance(id: $id) { name version labels { key value } lifetime { maxDuration }
    openOperation { kind } operations(first: 1) { kind status } } }"""
BY_NAME = """query ($name: String!) { instanceByName(name: $name) { region regions productName image gpuCount
    labels { key value } env { key value } lifetime { maxDuration } } }"""


async def test_an_instance_is_duplicated_into_another_region(servant: Servant, running: Up):
    id = await ready(
        running,
        "model-1",
        productName="RTX 5090 32GB",
        region="AS-SGP-02",
        labels=[{"key": "team", "value": "media"}],
        env=[{"key": "MODE", "value": "fast"}, {"key": "TOKEN", "value": "hidden-value", "secret": True}],
        lifetime={"maxDuration": 7200},
    )
    page = await servant.open("duplicate", page_at(running, f"#/instances/{id}"))
    await page.click("a:has-text('Duplicate')")
    await page.wait(".banner:has-text('Secret variables are not copied: add TOKEN')")
    regions = await page.evaluate(
        "[...document.querySelectorAll('select')].flatMap((s) => [...s.options].map((o) => o.value))"
    )
    target = next(each for each in regions if each[2:3] == "-" and each != "AS-SGP-02")
    await page.choose("label:has-text('Preferred region') + select", target)
    await page.click("button:has-text('Create instance')")
    await page.wait("dialog[open]:has-text('per hour')")
    await page.click("dialog[open] button[type=submit]")
    await page.wait(".instance-head h1:has-text('model-2')")

    made = (await ask(running, BY_NAME, name="model-2"))["instanceByName"]
    assert (made["regions"][0], made["productName"], made["image"]) == (target, "RTX 5090 32GB", "nginx")
    assert made["labels"] == [{"key": "team", "value": "media"}]
    assert made["env"] == [{"key": "MODE", "value": "fast"}]
    assert made["lifetime"] == {"maxDuration": 7200}
    assert await page.report(page_at(running)) == {"problems": [], "otherHosts": []}


async def test_an_edit_and_a_stop_are_undone(servant: Servant, running: Up):
    id = await ready(running, "before")
    page = await servant.open("edit", page_at(running, f"#/instances/{id}/edit"))
    await page.fill("label:has-text('Name') + input", "after")
    await page.fill("label:has-text('Labels') + textarea", "team=a")
    await page.click("button:has-text('Save changes')")
    await page.wait(".instance-head h1:has-text('after')")
    assert (await ask(running, READ, id=id))["instance"]["labels"] == [{"key": "team", "value": "a"}]
    await page.click(".toast button:has-text('Undo')")
    await page.wait(".instance-head h1:has-text('before')")
    assert (await ask(running, READ, id=id))["instance"]["labels"] == []
    await page.fill("label:has-text('Root disk') + input", "5")
    await page.click("button:has-text('Save changes')")
    await page.wait(".field.wrong:has-text('Root disk')")
    assert await page.serious() == []

    # The provider is slow, so that the stop is still under way.
    await control(running.ready["simulatorUrl"], "faults", {"faults": [{"kind": "latency", "seconds": 3}]})
    await page.click("button:has-text('Stop')")
    await page.click("dialog[open] button[type=submit]")
    await page.click(".toast:has-text('Stopping') button:has-text('Undo')")

    async def is_cancelled() -> bool:
        last = (await ask(running, READ, id=id))["instance"]["operations"][0]
        return last == {"kind": "STOP", "status": "CANCELLED"}

    await until(is_cancelled, within=60)
    await control(running.ready["simulatorUrl"], "faults", {"faults": []})


async def test_an_upgrade_is_confirmed_and_changes_only_what_was_changed(servant: Servant, running: Up):
    id = await ready(running, "to-upgrade", command="serve --fast", env=[{"key": "MODE", "value": "fast"}])
    page = await servant.open("upgrade", page_at(running, f"#/instances/{id}/edit"))
    read = """query ($id: ID!) { instance(id: $id) {
        status image command env { key value } operations(first: 1) { action } } }"""
    upgrade = ".panel:has-text('Variables and everything else stay') button:has-text('Upgrade')"
    await page.click(upgrade)
    await page.wait("dialog[open]:has-text('Its machine is reset')")
    await page.click("dialog[open] button[type=submit]")
    await page.wait(".banner.bad:has-text('at least one value')")  # nothing was changed

    await page.fill("input[name=image]", "nginx:1.28")
    await page.click(upgrade)
    assert await page.serious() == []
    await page.click("dialog[open] button[type=submit]")
    await page.wait(".toast:has-text('Upgrade accepted')")

    async def is_upgraded() -> bool:
        return (await ask(running, read, id=id))["instance"] == {
            "status": "READY",
            "image": "nginx:1.28",
            "command": "serve --fast",
            "env": [{"key": "MODE", "value": "fast"}],
            "operations": [{"action": "UPGRADE"}],
        }

    await until(is_upgraded, within=60)
    assert await page.report(page_at(running)) == {"problems": [], "otherHosts": []}


async def test_a_delete_needs_the_name_typed(servant: Servant, running: Up):
    id = await ready(running, "precious")
    page = await servant.open("delete", page_at(running, f"#/instances/{id}"))
    await page.click("button:has-text('Delete')")
    await page.fill("dialog input", "preciou")
    await page.wait("dialog button[type=submit][disabled]")
    await page.press("Enter")
    assert (await ask(running, READ, id=id))["instance"]["openOperation"] is None
    await page.fill("dialog input", "precious")
    await page.click("dialog button[type=submit]")
    await page.wait(".instance-head .chip:has-text('Delet')")


async def test_a_failed_create_offers_retry_and_edit_and_retry(servant: Servant, running: Up):
    fault = {"kind": "pullFailure", "routes": ["POST /gpu/instance/create"], "times": 1}
    await control(running.ready["simulatorUrl"], "faults", {"faults": [fault]})
    id = await created(running, "misspelt", image="no/such")
    await has_status(running, id, "FAILED")
    page = await servant.open("failed", page_at(running, f"#/instances/{id}"))
    await page.wait(".banner.bad button:has-text('Retry create')")
    await page.click(".banner.bad a:has-text('Edit and retry')")
    await page.wait("h1:has-text('Create one like misspelt')")
    await page.fill("label:has-text('Image') + input", "nginx")
    await page.click("button:has-text('Create instance')")
    await page.click("dialog[open] button[type=submit]")
    await page.wait(".instance-head:has-text('misspelt-2') .chip.good")
    assert (await ask(running, BY_NAME, name="misspelt-2"))["instanceByName"]["image"] == "nginx"


async def test_a_machine_is_adopted_and_a_project_gets_a_token(servant: Servant, running: Up):
    await _machine(running, "from-the-console")
    page = await servant.open("adopt", page_at(running, "#/account/machines"))
    await page.click("button[aria-label='Adopt from-the-console']")
    await page.click("dialog button[type=submit]")
    await page.wait(".instance-head h1:has-text('from-the-console')")

    await page.goto(page_at(running, "#/settings"))
    await page.fill("input[name=name]", "research")
    await page.click("button:has-text('Create project')")
    await page.click("button[aria-label='New token of research']")
    await page.wait(".secret:has-text('Admin token of research')")
    secret = (await page.text(".secret .mono")).strip()
    assert secret.startswith("pl_")
    headers = {"authorization": f"Bearer {secret}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        body = {"query": "{ viewer { role project { name } } }"}
        async with session.post(running.graphql_url, json=body) as response:
            answer = await response.json()
    assert answer["data"]["viewer"] == {"role": "ADMIN", "project": {"name": "research"}}
    assert await page.serious() == []
    assert await page.report(page_at(running)) == {"problems": [], "otherHosts": []}


async def test_a_webhook_is_tested_before_it_is_saved(servant: Servant, running: Up, receiver: Receiver):
    id = await ready(running, "hooked")
    page = await servant.open("test-webhook", page_at(running, f"#/instances/{id}/edit"))
    await page.fill("label:has-text('Webhook URL') + input", receiver.url)
    await page.click("button:has-text('Test webhook')")
    await page.wait(".chip.good:has-text('Delivered, HTTP 204')")
    assert len(receiver.got) == 1
    await page.fill("label:has-text('Webhook URL') + input", "ftp://nowhere")
    await page.click("button:has-text('Test webhook')")
    await page.wait(".edit .chip.bad")
    assert len(receiver.got) == 1


async def _machine(running: Up, name: str) -> None:
    """A machine that was made without Pilotlight."""
    body: dict[str, Any] = {
        "name": name,
        "productId": "4090.16c62g",
        "clusterId": "us-ca-6",
        "gpuNum": 1,
        "rootfsSize": 60,
        "imageUrl": "nginx",
        "kind": "gpu",
        "ports": "80/http",
    }
    url = f"{running.ready['simulatorUrl']}/gpu-instance/openapi/v1/gpu/instance/create"
    headers = {"authorization": "Bearer any-key"}
    async with aiohttp.ClientSession(headers=headers) as session, session.post(url, json=body) as response:
        assert response.status == 200, await response.text()
