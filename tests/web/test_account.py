"""The account's objects, project webhooks and project events on the dashboard, in a real browser."""

import json
from typing import Any

import aiohttp
import pytest

from tests.support.processes import Up
from tests.support.receiver import Receiver
from tests.support.waiting import until
from tests.web.browser import WEB, Browser, Servant
from tests.web.requests import ask
from tests.web.seed import announce
from tests.web.test_strangers import new_token, page_of, signed_in


@pytest.fixture
def base(running: Up) -> str:
    return running.graphql_url.removesuffix("/graphql")


async def test_templates_credentials_networks_and_images_are_created_and_deleted(
    servant: Servant, running: Up, base: str
):
    page = await servant.open("account", f"{base}/#/account")
    await page.wait(".summary .figure:has-text('$')")  # the balance, for an administrator of the server
    await page.wait(".tab-panel tbody tr")  # the simulated account has some
    await page.fill("input[name=name]", "serving")
    await page.fill("input[name=image]", "nginx:1.27")
    await page.fill("input[name=ports]", "80, 99999")
    await page.click("button:has-text('Create template')")
    await page.wait(".field.wrong:has-text('Ports')")
    await page.fill("input[name=ports]", "80, 8080")
    await page.click("button:has-text('Create template')")
    await page.wait("td:has-text('serving')")
    await page.wait("td:has-text('80, 8080')")
    assert await _serious(page) == []

    await page.click("[data-tab=registries]")
    await page.fill("input[name=name]", "images.example.test")
    await page.fill("input[name=username]", "ana")
    await page.fill("input[name=password]", "correct-horse-battery")
    await page.click("button:has-text('Store credential')")
    await page.wait("td:has-text('images.example.test')")
    assert await page.evaluate("document.querySelector('input[name=password]').value") == ""
    assert await _serious(page) == []

    await page.click("[data-tab=networks]")
    await page.fill("input[name=name]", "inner")
    await page.click("button:has-text('Create network')")
    await page.click("button[aria-label='Edit inner']")
    await page.fill("input[name=name]", "inner-2")
    await page.click("button:has-text('Save network')")
    await page.wait("td:has-text('inner-2')")
    await page.wait(".panel:has-text('New network')")
    assert await _serious(page) == []

    await page.click("[data-tab=prewarms]")
    await page.fill("input[name=image]", "nginx:1.27")
    await page.click("form button[type=submit]")
    await page.wait("td:has-text('nginx:1.27')")
    await page.wait("header:has-text('1 of')")
    await page.click("button[aria-label='Edit nginx:1.27']")
    await page.fill("input[name=note]", "for monday")
    await page.click("button:has-text('Save note')")
    await page.wait("td:has-text('for monday')")
    assert await _serious(page) == []

    for tab, name in (("templates", "serving"), ("registries", "images.example.test"), ("networks", "inner-2")):
        await page.goto(f"{base}/#/account/{tab}")  # an address of its own
        await page.click(f"button[aria-label='Delete {name}']")
        await page.click("dialog button:has-text('Delete')")
        await page.wait(f"td:has-text('{name}')", state="detached")
    left = await ask(running, "{ templates { nodes { name } } registryAuths { name } networks { nodes { name } } }")
    assert not any(name in str(left) for name in ("serving", "images.example.test", "inner"))
    assert await page.report(base) == {"problems": [], "otherHosts": []}
    assert "correct-horse-battery" not in running.said


TEMPLATES = """{ templates(channels: [PRIVATE]) { nodes {
    id name image registryAuthId entrypoint command rootfsSizeGb minCudaVersion ports { port type } tools { name }
    env { key value } } } }"""
NEW_TEMPLATE = "mutation ($input: CreateTemplateInput!) { createTemplate(input: $input) { errors { code } } }"


async def template(running: Up, name: str) -> dict[str, Any]:
    (found,) = [each for each in (await ask(running, TEMPLATES))["templates"]["nodes"] if each["name"] == name]
    return dict(found)


async def test_a_template_is_edited_and_keeps_what_the_form_does_not_show(servant: Servant, running: Up, base: str):
    given = {"name": "to-edit", "image": "nginx:1.27", "command": "serve", "ports": [{"port": 80}], "rootfsSizeGb": 70}
    more = {"tools": [{"name": "JUPYTER"}], "env": [{"key": "MODE", "value": "slow"}]}
    assert (await ask(running, NEW_TEMPLATE, input={**given, **more}))["createTemplate"]["errors"] == []
    before = await template(running, "to-edit")
    page = await servant.open("templates", f"{base}/#/account/templates")

    await page.click("button[aria-label='Edit to-edit']")
    await page.wait(".panel:has-text('Edit to-edit')")
    await page.fill("input[name=image]", " ")
    await page.wait("button:has-text('Save template')[disabled]")
    await page.fill("input[name=image]", "nginx:1.28")
    await page.fill("input[name=command]", "")
    await page.fill("input[name=ports]", "80, 22/tcp")
    await page.fill("input[name=rootfsSizeGb]", "5")
    await page.fill("textarea[name=env]", "MODE=fast\nSIZE=2")
    assert await page.serious() == []
    await page.click("button:has-text('Save template')")
    await page.wait(".field.wrong:has-text('Root disk')")
    assert await template(running, "to-edit") == before
    await page.fill("input[name=rootfsSizeGb]", "80")
    await page.click("button:has-text('Save template')")
    await page.wait(".toast:has-text('Template changed')")
    await page.wait(".panel:has-text('New template')")
    await page.wait("tr:has-text('to-edit'):has-text('nginx:1.28')")

    assert await template(running, "to-edit") == {
        **before,
        "image": "nginx:1.28",
        "command": None,
        "rootfsSizeGb": 80,
        "ports": [{"port": 80, "type": "http"}, {"port": 22, "type": "tcp"}],
        "env": [{"key": "MODE", "value": "fast"}, {"key": "SIZE", "value": "2"}],
    }
    assert before["tools"] == [{"name": "JUPYTER"}]
    assert await page.report(base) == {"problems": [], "otherHosts": []}


NEW_CREDENTIAL = """mutation {
    createRegistryAuth(input: {name: "private.example.test", username: "a", password: "p"}) { registryAuth { id } } }"""


async def test_a_template_of_a_private_image_has_a_credential_tools_and_a_cuda_version(
    servant: Servant, running: Up, base: str
):
    credential = (await ask(running, NEW_CREDENTIAL))["createRegistryAuth"]["registryAuth"]["id"]
    page = await servant.open("private-template", f"{base}/#/account/templates")
    await page.fill("input[name=name]", "of-private")
    await page.fill("input[name=image]", "private.example.test/trainer:1")
    await page.choose("label:has-text('Registry credential') + select", credential)
    await page.fill("input[name=entrypoint]", "/bin/serve")
    await page.choose("label:has-text('Tools') + select", "SSH JUPYTER")
    await page.fill("input[name=minCudaVersion]", "new")
    await page.click("button:has-text('Create template')")
    await page.wait(".field.wrong:has-text('Lowest CUDA version')")
    await page.fill("input[name=minCudaVersion]", "12.4")
    await page.click("button:has-text('Create template')")
    await page.wait("td:has-text('of-private')")
    made = await template(running, "of-private")
    assert (made["registryAuthId"], made["entrypoint"], made["minCudaVersion"]) == (credential, "/bin/serve", "12.4")
    assert [tool["name"] for tool in made["tools"]] == ["SSH", "JUPYTER"]

    await page.click("button[aria-label='Edit of-private']")
    await page.choose("label:has-text('Registry credential') + select", "")
    await page.choose("label:has-text('Tools') + select", "")
    await page.fill("input[name=minCudaVersion]", "")
    await page.click("button:has-text('Save template')")
    await page.wait(".toast:has-text('Template changed')")
    now = await template(running, "of-private")
    assert now == {**made, "registryAuthId": None, "tools": [], "minCudaVersion": None}
    assert await page.report(base) == {"problems": [], "otherHosts": []}


async def test_the_environment_of_a_template_with_a_secret_is_not_offered_for_edit(
    servant: Servant, running: Up, base: str
):
    secret = [{"key": "API_TOKEN", "value": "correct-horse"}]
    given = {"name": "with-secret", "image": "nginx:1.27", "env": secret}
    assert (await ask(running, NEW_TEMPLATE, input=given))["createTemplate"]["errors"] == []
    page = await servant.open("secret", f"{base}/#/account/templates")

    await page.click("button[aria-label='Edit with-secret']")
    await page.wait("form:has-text('the values of API_TOKEN are secret')")
    assert await page.texts("textarea") == []
    await page.fill("input[name=image]", "nginx:1.28")
    await page.click("button:has-text('Save template')")
    await page.wait("tr:has-text('with-secret'):has-text('nginx:1.28')")

    url = f"{running.ready['simulatorUrl']}/gpu-instance/openapi/v1/templates?name=with-secret"
    headers = {"authorization": "Bearer any-key"}
    async with aiohttp.ClientSession(headers=headers) as http, http.get(url) as response:
        stored = (await response.json())["template"]
    assert [(each["image"], each["envs"]) for each in stored] == [("nginx:1.28", secret)]


async def test_an_exited_instance_is_saved_and_its_job_is_shown(servant: Servant, running: Up, base: str):
    id = await _exited(running, "to-save")
    page = await servant.open("images", f"{base}/#/account/images")
    await page.wait(".empty:has-text('Images that are saved')")
    await page.fill("input[name=image]", "registry.example.test/me/work:1")
    await page.click("button:has-text('Save image')")
    await page.wait(".toast:has-text('The image is being saved')")
    read = "query ($id: ID!) { instance(id: $id) { operations(first: 1) { action } } providerJobs { totalCount } }"

    async def has_job() -> bool:
        return bool((await ask(running, read, id=id))["providerJobs"]["totalCount"])

    await until(has_job, within=60, pause=2)  # the live reads of a token are limited
    await page.click("button[aria-label=Refresh]")
    await page.wait("td:has-text('Save image')")
    await page.wait("td a:has-text('to-save')")
    assert await _serious(page) == []
    assert await page.report(base) == {"problems": [], "otherHosts": []}


async def test_a_webhook_gets_project_events_and_both_are_shown_as_they_happen(
    servant: Servant, running: Up, base: str, receiver: Receiver
):
    page = await servant.open("webhooks", f"{base}/#/events/webhooks")
    await page.wait(".empty:has-text('A webhook gets every event')")
    await page.fill("input[name=url]", receiver.url)
    await page.fill("input[name=types]", "balance.low, balance.high")
    await page.click("button:has-text('Create webhook')")
    await page.wait(".field.wrong:has-text('Event types')")
    await page.fill("input[name=types]", "balance.low")
    await page.click("button:has-text('Create webhook')")
    await page.wait("td .chip:has-text('Enabled')")
    await page.click("[data-tab=project]")
    await page.wait(".empty:has-text('No events yet'), td:has-text('template.')")  # those of the test before, if any
    assert await _serious(page) == []

    await announce(running)
    await page.wait("td:has-text('balance.low')")
    await page.wait("td:has-text('balance $50.00, runway 2h 30m')")
    await until(lambda: receiver.types == ["balance.low"], within=60)

    await page.click("[data-tab=webhooks]")
    await page.click("button:has-text('Show')")
    await page.wait("td .chip:has-text('Delivered')")
    assert await _serious(page) == []
    await page.click("button:has-text('Redeliver')")
    await until(lambda: len(receiver.got) == 2, within=60)
    await page.click("button.danger:has-text('Delete')")
    await page.click("dialog button:has-text('Delete')")
    await page.wait(".empty")
    assert (await ask(running, "{ webhooks { totalCount } }"))["webhooks"]["totalCount"] == 0
    assert await page.report(base) == {"problems": [], "otherHosts": []}


async def test_a_reader_sees_them_and_is_offered_no_change(servant: Servant, running: Up):
    _, secret = await new_token(running, "looks", "READER")
    page = await signed_in(servant, running, "reader", secret)
    for hash in ("account/templates", "account/registries", "account/images", "events/webhooks"):
        await page.goto(f"{page_of(running)}/#/{hash}")
        await page.wait(".empty, tbody tr")
        assert await page.texts("main form, main button.danger, .summary") == [], hash


async def _exited(running: Up, name: str) -> str:
    create = """mutation ($name: String!) { createInstance(input: {name: $name, productName: "RTX 4090 24GB",
        image: "nginx", ports: []}) { instance { id } errors { code } } }"""
    id = (await ask(running, create, name=name))["createInstance"]["instance"]["id"]
    for status, verb in (("READY", "stopInstance"), ("EXITED", None)):

        async def is_there(wanted: str = status) -> bool:
            found = await ask(running, "query ($id: ID!) { instance(id: $id) { status } }", id=id)
            return found["instance"]["status"] == wanted

        await until(is_there, within=60)
        if verb:
            await ask(running, f"mutation ($id: ID!) {{ {verb}(input: {{id: $id}}) {{ errors {{ code }} }} }}", id=id)
    return str(id)


async def _serious(page: Browser) -> list[Any]:
    await page.evaluate((WEB / "node_modules/axe-core/axe.min.js").read_text())
    found = await page.evaluate("axe.run().then((all) => JSON.stringify(all.violations))")
    return [each["id"] for each in json.loads(found) if each["impact"] in ("serious", "critical")]
