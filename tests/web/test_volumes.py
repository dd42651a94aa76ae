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


CREATE_VOLUME = "mutation ($input: CreateVolumeInput!) { createVolume(input: $input) { volume { id } } }"
MOUNTS = """query ($name: String!) { instanceByName(name: $name) { id region regions status
    volumes { volumeId mountPath } } }"""


async def test_the_create_form_mounts_a_volume_in_its_region(servant: Servant, running: Up):
    ids = {
        name: await available(running, name, region)
        for name, region in (("near data", "EU-GB-01"), ("more", "EU-GB-01"), ("far", "AS-SGP-02"))
    }
    page = await servant.open("mounts", f"{base_of(running)}/#/create?product=RTX%204090%2024GB&region=AS-SGP-02")
    await page.wait(".mounts button:has-text('Add a volume'):not([disabled])")
    await page.click("button:has-text('Add a volume')")
    elsewhere = "near data · 10 GB · EU-GB-01 · not in AS-SGP-02"
    await page.wait(f".mount option[disabled]:has-text('{elsewhere}')", state="attached")
    await page.click("button[aria-label='Remove volume 1']")
    region = "label:has-text('Preferred region') + select"
    await page.choose(region, "")

    await page.click("button:has-text('Add a volume')")
    await page.choose("label:text-is('Volume') + select", ids["near data"])
    await page.wait(f"{region}[disabled]")
    assert await page.evaluate("document.querySelector('select[disabled]').value") == "EU-GB-01"
    assert await page.evaluate("document.querySelector('.mount input').value") == "/near-data"
    await page.fill(".mount input", "data")
    await page.wait(".mount .field.wrong:has-text('absolute')")
    await page.fill(".mount input", "/data")
    await page.wait(".mount .field:not(.wrong):has-text('Mount path')")
    await page.wait(".candidates li:has-text('EU-GB-01')")
    assert not any("AS-SGP-02" in each for each in await page.texts(".candidates li"))

    await page.click("button:has-text('Add a volume')")
    assert await page.evaluate("document.querySelectorAll('.mount select')[1].value") == ids["more"]
    await page.wait(".mounts:has-text('no other free volume in this region')")
    await page.wait(".quote:not(.pending)")
    assert await page.serious() == []
    await page.click("button[aria-label='Remove volume 2']")

    await page.fill("label:has-text('Name') + input", "mounted")
    await page.click("button:has-text('Create instance')")
    await page.click("dialog[open] button[type=submit]")
    await page.wait(".instance-head h1:has-text('mounted')")
    made = (await ask(running, MOUNTS, name="mounted"))["instanceByName"]
    assert made["volumes"] == [{"volumeId": ids["near data"], "mountPath": "/data"}]
    assert made["regions"] == ["EU-GB-01"]

    # It is used now; another one can be chosen.
    await page.goto(f"{base_of(running)}/#/create")
    await page.click("button:has-text('Add a volume')")
    await page.wait(".mount option[disabled]:has-text('used by mounted')", state="attached")
    assert await page.report(base_of(running)) == {"problems": [], "otherHosts": []}


async def available(running: Up, name: str, region: str) -> str:
    """The id of a new volume that can be mounted."""
    given = {"name": name, "region": region, "sizeGb": 10}
    id = str((await ask(running, CREATE_VOLUME, input=given))["createVolume"]["volume"]["id"])

    async def is_available() -> bool:
        shown = (await ask(running, LIST))["volumes"]["nodes"]
        return any(each["id"] == id and each["status"] == "AVAILABLE" for each in shown)

    await until(is_available, within=60)
    return id


def base_of(running: Up) -> str:
    return running.graphql_url.removesuffix("/graphql")


async def serious(page: Browser) -> list[Any]:
    await page.evaluate((WEB / "node_modules/axe-core/axe.min.js").read_text())
    found = await page.evaluate("axe.run().then((all) => JSON.stringify(all.violations))")
    return [each["id"] for each in json.loads(found) if each["impact"] in ("serious", "critical")]
