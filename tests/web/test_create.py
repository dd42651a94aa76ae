"""The create form: private images, networks, tools and how the container starts; machines without GPUs."""

from tests.support.processes import Up
from tests.support.waiting import until
from tests.web.browser import Servant
from tests.web.requests import ask, page_at

CREDENTIAL = """mutation {
    createRegistryAuth(input: {name: "images.example.test", username: "jo", password: "p"}) { registryAuth { id } } }"""
NETWORK = """mutation { createNetwork(input: {name: "training", region: "US-CA-06"}) { network { id } } }"""
NETWORKS = "{ networks { nodes { id status } } }"
MADE = """query ($name: String!) { instanceByName(name: $name) { kind productName gpuCount image command entrypoint
    minCudaVersion networkId regions billing tools { name port } } }"""
DELETE_AUTH = "mutation ($id: ID!) { deleteRegistryAuth(input: {id: $id}) { errors { code } } }"


async def test_a_private_image_is_created_in_a_network_with_its_tools(servant: Servant, running: Up):
    credential = (await ask(running, CREDENTIAL))["createRegistryAuth"]["registryAuth"]["id"]
    network = (await ask(running, NETWORK))["createNetwork"]["network"]["id"]

    async def is_ready() -> bool:
        nodes = (await ask(running, NETWORKS))["networks"]["nodes"]
        return any(each["id"] == network and each["status"] == "READY" for each in nodes)

    await until(is_ready, within=60)
    page = await servant.open("private", page_at(running, "#/create?product=RTX%204090%2024GB&region=AS-SGP-02"))
    await page.fill("label:has-text('Name') + input", "private")
    await page.click(".segments label:has-text('Image')")
    await page.fill("label:text-is('Image') + input", "images.example.test/team/trainer:1")
    await page.choose("label:has-text('Registry credential') + select", credential)
    await page.choose("label:has-text('Private network') + select", network)
    await page.wait("label:has-text('Preferred region') + select[disabled]")
    await page.wait(".candidates li:has-text('AS-SGP-02')", state="detached")  # other regions are not tried
    await page.wait(".candidates li:has-text('US-CA-06')")
    await page.click("summary:has-text('Options')")
    await page.fill("label:has-text('Entrypoint') + input", "/bin/serve")
    await page.fill("label:has-text('Command') + input", "--fast")
    await page.click(".check:has-text('SSH server')")
    await page.click(".check:has-text('Jupyter')")
    await page.click(".check:has-text('SSH server')")
    await page.fill("label:has-text('Lowest CUDA version') + input", "newest")
    await page.wait(".field.wrong:has-text('Lowest CUDA version')")
    await page.fill("label:has-text('Lowest CUDA version') + input", "12.4")
    await page.wait(".field:not(.wrong):has-text('Lowest CUDA version')")
    assert await page.serious() == []
    await page.click("button:has-text('Create instance')")
    await page.click("dialog[open] button[type=submit]")
    await page.wait(".instance-head h1:has-text('private')")

    made = (await ask(running, MADE, name="private"))["instanceByName"]
    assert network.endswith(made.pop("networkId"))
    assert made == {
        "kind": "GPU",
        "productName": "RTX 4090 24GB",
        "gpuCount": 1,
        "image": "images.example.test/team/trainer:1",
        "command": "--fast",
        "entrypoint": "/bin/serve",
        "minCudaVersion": "12.4",
        "regions": ["US-CA-06"],
        "billing": "SPOT_THEN_ON_DEMAND",
        "tools": [{"name": "JUPYTER", "port": 8888}],
    }
    await page.wait("dt:has-text('Novita ID')")  # its machine is made, with the credential
    refused = (await ask(running, DELETE_AUTH, id=credential))["deleteRegistryAuth"]["errors"]
    assert refused == [{"code": "REGISTRY_AUTH_IN_USE"}]
    details = await page.text(".panel:has-text('Details')")
    assert [word for word in ("/bin/serve", "--fast", "Jupyter on 8888", "12.4") if word not in details] == []
    assert await page.report(page_at(running)) == {"problems": [], "otherHosts": []}


async def test_a_machine_without_gpus_is_chosen_among_the_products(servant: Servant, running: Up):
    page = await servant.open("cpu", page_at(running, "#/create"))
    await page.wait("label:has-text('GPUs') + input")
    await page.choose("label:has-text('Product') + select", "CPU 4C 8GB")
    assert await page.texts("label:has-text('GPUs'), .field:has-text('Billing'), label:has-text('CUDA')") == []
    await page.wait(".quote .figure:has-text('$0.0')")
    await page.fill("label:has-text('Name') + input", "without-gpus")
    await page.click(".segments label:has-text('Image')")
    await page.fill("label:text-is('Image') + input", "nginx")
    await page.wait(".quote:not(.pending) .candidates li:has-text('on-demand')")
    assert await page.serious() == []
    await page.click("button:has-text('Create instance')")
    await page.wait("dialog[open]:has-text('on-demand')")
    await page.click("dialog[open] button[type=submit]")
    await page.wait(".instance-head h1:has-text('without-gpus')")

    made = (await ask(running, MADE, name="without-gpus"))["instanceByName"]
    assert (made["kind"], made["productName"], made["gpuCount"]) == ("CPU", "CPU 4C 8GB", 0)
    await page.click("a:has-text('Duplicate')")
    await page.wait("h1:has-text('Create one like without-gpus')")
    await page.wait(".quote .figure:has-text('$0.0')")
    assert await page.report(page_at(running)) == {"problems": [], "otherHosts": []}
