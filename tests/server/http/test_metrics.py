"""/metrics of a real API and worker: complete, documented, well-formed and without customers' names."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from server.enums import Role
from tests.flows.deployment import new_token
from tests.support.processes import Pilotlight, Up, pilotlight, up
from tests.support.waiting import until

ROOT = Path(__file__).parents[3]
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \|([^|]*)\|", re.MULTILINE)
CREATE = """
    mutation ZanzibarName {
      createInstance(input: {name: "zanzibar-machine", productName: "RTX 4090 24GB", image: "nginx"}) {
        instance { id } errors { code }
      }
    }
"""


@pytest.fixture(scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Up]:
    async with up(tmp_path_factory.mktemp("scraped") / "home", env={"LOG_FORMAT": "json"}) as running:
        yield running


@pytest.fixture(scope="module")
async def worker(running: Up) -> AsyncIterator[Pilotlight]:
    env = {
        "DATABASE_URL": str(running.ready["databaseUrl"]),
        "NOVITA_API_KEY": "sk_x",
        "NOVITA_API_BASE_URL": str(running.ready["simulatorUrl"]),
        "WORKER_PORT": "0",
        "LOG_FORMAT": "json",
    }
    async with pilotlight("worker", env=env) as worker:
        await worker.says("worker.ready")
        yield worker


async def get(url: str, **headers: str) -> tuple[int, str]:
    async with aiohttp.ClientSession(headers=headers) as http, http.get(url) as response:
        return response.status, await response.text()


async def scraped(url: str) -> dict[str, Metric]:
    status, body = await get(f"{url}/metrics")
    assert status == 200, body
    found = list(text_string_to_metric_families(body))
    names = [each.name for each in found]
    assert len(names) == len(set(names))
    return {each.name: each for each in found}


def api_of(running: Up) -> str:
    return running.graphql_url.removesuffix("/graphql")


def worker_of(worker: Pilotlight) -> str:
    [url] = re.findall(r'"url":"(http://[^"]+)"', worker.said)
    return url


async def ask(running: Up, document: str) -> None:
    headers = {"authorization": f"Bearer {running.token}"}
    async with (
        aiohttp.ClientSession(headers=headers) as http,
        http.post(running.graphql_url, json={"query": document}) as response,
    ):
        assert response.status == 200, await response.text()


def value(metrics: dict[str, Metric], family: str, sample: str, **labels: str) -> float:
    return sum(
        each.value for each in metrics[family].samples if each.name == sample and labels.items() <= each.labels.items()
    )


def documented() -> dict[str, tuple[str, frozenset[str]]]:
    """By the name of its family, which of a counter is without its end: its type, and its labels."""
    rows = ROW.findall((ROOT / "docs" / "metrics.md").read_text())
    assert len({name for name, _, _ in rows}) == len(rows)
    assert all(name.endswith("_total") == (kind == "counter") for name, kind, _ in rows)
    return {
        name.removesuffix("_total"): (kind, frozenset(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows
    }


async def test_every_metric_is_documented_and_every_documented_one_is_there(running: Up, worker: Pilotlight):
    await ask(running, CREATE)
    docs = documented()

    for url in (api_of(running), worker_of(worker)):
        found = await scraped(url)
        assert {name: each.type for name, each in found.items()} == {name: kind for name, (kind, _) in docs.items()}
        for name, metric in found.items():
            used = {label for sample in metric.samples for label in sample.labels} - {"le", "quantile"}
            assert used <= docs[name][1], name
            assert metric.documentation, name


async def test_what_callers_choose_is_in_no_label(running: Up):
    await ask(running, CREATE.replace("zanzibar-machine", "zanzibar-other"))
    await ask(running, "query ZanzibarQuery { aliased: instances(first: 1) { nodes { id } } }")

    _, body = await get(f"{api_of(running)}/metrics")

    for word in ("anzibar", "aliased", "inst_", "op_0", "req_", "tok_", "nginx", running.token):
        assert word not in body
    found = await scraped(api_of(running))
    assert value(found, "pilotlight_graphql_fields", "pilotlight_graphql_fields_total", field="instances") >= 1


async def test_an_accepted_create_is_counted_from_the_request_to_its_end(running: Up, worker: Pilotlight):
    """By whichever process did that part of it."""
    processes = [api_of(running), worker_of(worker)]

    async def is_quiet() -> bool:
        """What other tests asked for is over."""
        return (await scraped(processes[0]))["pilotlight_operations_open"].samples == []

    await until(is_quiet, within=60)
    before = [await scraped(each) for each in processes]
    await ask(running, CREATE.replace("zanzibar-machine", "counted"))

    async def change(family: str, sample: str, **labels: str) -> float:
        after = [await scraped(each) for each in processes]
        return sum(
            value(late, family, sample, **labels) - value(early, family, sample, **labels)
            for late, early in zip(after, before, strict=True)
        )

    ends = ("pilotlight_operation_seconds", "pilotlight_operation_seconds_count")

    async def is_over() -> bool:
        return await change(*ends, kind="CREATE", status="SUCCEEDED") == 1

    await until(is_over, within=60)
    requests = ("pilotlight_request_seconds", "pilotlight_request_seconds_count")
    assert await change(*requests, transport="http", kind="mutation", status="200") == 1
    accepted = ("pilotlight_operations_accepted", "pilotlight_operations_accepted_total")
    assert await change(*accepted, kind="CREATE") == 1
    calls = ("pilotlight_provider_call_seconds", "pilotlight_provider_call_seconds_count")
    assert await change(*calls, route="POST /gpu/instance/create", outcome="OK") == 1


async def test_a_worker_says_that_it_is_well_until_it_is_stopped(running: Up, worker: Pilotlight):
    url = worker_of(worker)
    assert (await get(f"{url}/healthz"))[0] == 200

    async def is_ready() -> bool:
        return (await get(f"{url}/readyz"))[0] == 200

    await until(is_ready)
    assert '"jobs":"ok"' in (await get(f"{url}/readyz"))[1]
    found = await scraped(url)
    assert value(found, "pilotlight_workers_working", "pilotlight_workers_working") == 2
    assert value(found, "pilotlight_database_up", "pilotlight_database_up") == 1
    assert found["pilotlight_sockets_open"].samples == []


async def test_on_a_public_address_metrics_need_a_token_of_the_servers_own_project(running: Up):
    env = {
        "DATABASE_URL": str(running.ready["databaseUrl"]),
        "NOVITA_API_KEY": "sk_x",
        "NOVITA_API_BASE_URL": "http://127.0.0.1:1",
        "HOST": "0.0.0.0",
        "WORKER_PORT": "0",
        "LOG_FORMAT": "json",
    }
    token = await new_token(env["DATABASE_URL"], Role.READER)
    other = await new_token(env["DATABASE_URL"], Role.ADMIN, project="another")
    async with pilotlight("worker", env=env) as worker:
        await worker.says("worker.ready")
        await until(lambda: '"url"' in worker.said)
        url = worker_of(worker).replace("0.0.0.0", "127.0.0.1")
        assert (await get(f"{url}/metrics"))[0] == 401
        assert (await get(f"{url}/metrics", authorization=f"Bearer {other}"))[0] == 401
        assert (await get(f"{url}/metrics", authorization=f"Bearer {token}"))[0] == 200
        assert (await get(f"{url}/healthz"))[0] == 200
