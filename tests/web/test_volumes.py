"""Network volumes in the dashboard: created, enlarged, used, adopted and deleted, without a reload."""

import json
from typing import Any

import aiohttp

from tests.support.processes import Up, control
from tests.support.waiting import until
from tests.web.browser import WEB, Browser, Servant
from tests.web.requests import ask

CREATE = "mutation ($input: CreateInstanceInput!) { createInstance(input: $input) { instance { id } errors { code } } }"
DELETE = "mutation ($id: ID!) { deleteInstance(input: {id: $id}) { errors { code } } }"
LIST = "{ volumes { nodes { id name sizeGb status } } }"


async def test_a_volume_is_created_enlarged_used_and_deleted(servant: Servant, running: Up):
    page = await servant.open("volumes", f"{base_of(running)}/#/volumes")
    await page.wait(".empty:has-text('No volumes yet')")
    await page.fill("input[placeholder=models]", "models")
    await page.choose("form select", "US-CA-06")
    await page.click("button[aria-label='Create volume']")
    await page.wait(".volumes tr:has-text('models') .chip.good:has-text('Available')")
    await page.wait(".volumes tr:has-text('$0.007/h')")

    await page.fill("input[placeholder=models]", "models")
    await page.click("button[aria-label='Create volume']")
    await page.wait(".field.wrong:has-text('Another volume has this name')")

    await page.click("button[aria-label='Enlarge models']")
    await page.fill(".grow input", "250")
    await page.click(".grow button[type=submit]")
    await page.wait(".volumes tr:has-text('250 GB')")
    [volume] = (await ask(running, LIST))["volumes"]["nodes"]
    assert volume["sizeGb"] == 250

    mounts = [{"id": volume["id"], "mountPath": "/models"}]
    given = {"name": "user", "productName": "RTX 4090 24GB", "image": "nginx", "ports": [], "volumes": mounts}
    instance = (await ask(running, CREATE, input=given))["createInstance"]["instance"]["id"]
    await page.goto(f"{base_of(running)}/#/jobs")
    await page.goto(f"{base_of(running)}/#/volumes")
    await page.wait(".volumes a:has-text('user')")
    assert await page.evaluate("document.querySelector('[aria-label=\"Delete models\"]').disabled")
    await page.click(".volumes a:has-text('user')")
    await page.wait(".facts a:has-text('/models')")
    await ask(running, DELETE, id=instance)

    async def is_free() -> bool:
        shown = (await ask(running, "{ volumes { nodes { attachedTo { id } } } }"))["volumes"]["nodes"]
        return shown == [{"attachedTo": []}]

    await until(is_free, within=60)
    await page.goto(f"{base_of(running)}/#/jobs")
    await page.goto(f"{base_of(running)}/#/volumes")
    await page.wait("[aria-label='Delete models']:not([disabled])")
    assert await serious(page) == []
    await page.click("[aria-label='Delete models']")
    await page.wait("dialog button:has-text('Delete')[disabled]")  # what can't be undone is typed
    await page.fill("dialog input", "models")
    await page.click("dialog button:has-text('Delete')")
    await page.wait(".empty:has-text('No volumes yet')")  # by the event, without a reload
    assert (await control(running.ready["simulatorUrl"], "volumes"))["volumes"] == []
    assert await page.report(base_of(running)) == {"problems": [], "otherHosts": []}


async def test_a_volume_that_was_created_elsewhere_is_adopted(servant: Servant, running: Up):
    url = f"{running.ready['simulatorUrl']}/gpu-instance/openapi/v1/networkstorage/create"
    body = {"clusterId": "us-ca-6", "storageName": "by-hand", "storageSize": 20}
    key = {"authorization": "Bearer sk_x"}
    async with aiohttp.ClientSession(headers=key) as http, http.post(url, json=body) as made:
        assert made.status == 200
    page = await servant.open("adopt", f"{base_of(running)}/#/volumes")
    await page.click("button:has-text('Look at the provider')")
    await page.click("button[aria-label='Adopt by-hand']")
    await page.wait(".toast:has-text('by-hand belongs to this project now')")
    await page.wait(".volumes tr:has-text('by-hand') .chip.good")
    await page.wait(".panel:has-text('The account has none')")
    assert await page.report(base_of(running)) == {"problems": [], "otherHosts": []}


def base_of(running: Up) -> str:
    return running.graphql_url.removesuffix("/graphql")


async def serious(page: Browser) -> list[Any]:
    await page.evaluate((WEB / "node_modules/axe-core/axe.min.js").read_text())
    found = await page.evaluate("axe.run().then((all) => JSON.stringify(all.violations))")
    return [each["id"] for each in json.loads(found) if each["impact"] in ("serious", "critical")]
