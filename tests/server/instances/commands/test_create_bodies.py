"""What a create's inputs become in the HTTP body that the provider gets."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web
from pydantic import SecretStr

from server.novita.client import NovitaClient
from tests.server.volumes.test_volumes import available, new_account
from tests.support.api import Api

__all__ = ["new_account"]

CREATE = "/gpu/instance/create"
TOOLS = [{"name": "SSH"}, {"name": "JUPYTER", "port": 9999}]


@pytest.fixture
async def bodies(api: Api) -> AsyncIterator[list[dict[str, Any]]]:
    """The bodies of create requests, as they come over the network; the simulator answers them."""
    world, found = api.world, list[dict[str, Any]]()
    async with recorder(world.simulator.url, found) as url:
        novita = NovitaClient(base_url=url, api_key=SecretStr(world.simulator.api_key))
        await novita.open()
        world.worker = world.worker_with(novita)
        yield found
        await novita.close()


@asynccontextmanager
async def recorder(target: str, found: list[dict[str, Any]]) -> AsyncIterator[str]:
    async with aiohttp.ClientSession() as session:

        async def relay(request: web.Request) -> web.Response:
            body = await request.read()
            if request.path.endswith(CREATE):
                found.append(orjson.loads(body))
            headers = {name: request.headers[name] for name in ("authorization", "content-type")}
            async with session.request(request.method, target + request.path_qs, data=body, headers=headers) as answer:
                kept = {name: value for name, value in answer.headers.items() if name.startswith("x-simulator")}
                content = {"body": await answer.read(), "content_type": answer.content_type}
                return web.Response(status=answer.status, headers=kept, **content)

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", relay)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()


async def sent(api: Api, bodies: list[dict[str, Any]], **input: Any) -> dict[str, Any]:
    """The body of the only create request; its name also holds a marker, and its variables two of ours."""
    payload = await api.create(**input)
    assert payload["errors"] == []
    await api.world.work_once()
    (body,) = bodies
    assert body.pop("name").startswith("web")
    own = {"PILOTLIGHT_INSTANCE_ID": payload["instance"]["id"], "PILOTLIGHT_MACHINE": "1"}
    assert {each["key"]: each["value"] for each in body["envs"][-2:]} == own
    body["envs"] = body["envs"][:-2]
    return body


async def test_every_input_of_a_gpu_create_is_sent(api: Api, bodies: list[dict[str, Any]]):
    await api.world.novita.create_network(cluster_id="us-ca-6", name="lan")
    (network,) = [each.id for each in (await api.world.novita.networks()).items if each.name == "lan"]
    volume = await available(api, region="US-CA-06")

    body = await sent(
        api,
        bodies,
        gpuCount=2,
        billing="ON_DEMAND",
        rootfsSizeGb=120,
        command="serve --fast",
        entrypoint="/bin/serve",
        env=[{"key": "MODE", "value": "fast"}],
        ports=[{"port": 80}, {"port": 2200, "type": "tcp"}],
        tools=TOOLS,
        minCudaVersion="12.4",
        networkId=network,
        volumes=[{"id": volume["id"], "mountPath": "/models"}],
    )

    assert body == {
        "productId": "4090.16c62g",
        "rootfsSize": 120,
        "imageUrl": "nginx",
        "kind": "gpu",
        "gpuNum": 2,
        "clusterId": "us-ca-6",
        "billingMode": "onDemand",
        "ports": "80/http,2200/tcp",
        "envs": [{"key": "MODE", "value": "fast"}],
        "tools": [
            {"name": "SSH", "port": "22", "type": "tcp"},
            {"name": "Jupyter", "port": "9999", "type": "http"},
        ],
        "command": "serve --fast",
        "entrypoint": "/bin/serve",
        "networkStorages": [{"Id": volume["novitaId"], "mountPoint": "/models"}],
        "networkId": network,
        "minCudaVersion": "12.4",
    }


async def test_a_cpu_create_names_no_gpu(api: Api, bodies: list[dict[str, Any]]):
    body = await sent(
        api, bodies, productName="CPU 4C 8GB", kind="CPU", entrypoint="run", tools=TOOLS[1:], region="AS-SGP-02"
    )

    assert body == {
        "productId": "cpu.4c8g",
        "rootfsSize": 60,
        "imageUrl": "nginx",
        "kind": "cpu",
        "clusterId": "as-sgp-2",
        "billingMode": "onDemand",
        "envs": [],
        "tools": [{"name": "Jupyter", "port": "9999", "type": "http"}],
        "command": "",
        "entrypoint": "run",
    }


async def test_what_is_left_out_is_not_sent_or_sent_empty(api: Api, bodies: list[dict[str, Any]]):
    body = await sent(api, bodies, billing="ON_DEMAND", region="AS-SGP-02")

    assert body == {
        "productId": "26",
        "rootfsSize": 60,
        "imageUrl": "nginx",
        "kind": "gpu",
        "gpuNum": 1,
        "clusterId": "as-sgp-2",
        "billingMode": "onDemand",
        "envs": [],
        "command": "",  # the image's
        "entrypoint": "",
    }
