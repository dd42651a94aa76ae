"""The tools for agents: the official client over HTTP and over stdio, refusals, lost answers, secrets."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from decimal import ROUND_CEILING, Decimal
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import aiohttp
import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from pilotlight_client import AsyncPilotlight

from tests.server.graphql.transports.test_hostile_clients import line
from tests.support.api import Api
from tests.support.api_server import serving
from tests.support.fault_proxy import FaultProxy
from tests.support.processes import PILOTLIGHT, Up, control, made
from tests.support.waiting import until

PRODUCT = "RTX 4090 24GB"
TOOLS = {
    "find_offers", "quote", "create_instance", "get_instance", "list_instances", "wait_for", "start_instance",
    "stop_instance", "delete_instance", "extend_lifetime", "get_events", "get_log", "get_spend",
}  # fmt: skip


def mcp_url(running: Up, port: int | None = None) -> str:
    parts = urlsplit(running.graphql_url)
    return f"http://{parts.hostname}:{port or parts.port}/mcp"


@asynccontextmanager
async def over_http(running: Up, *, port: int | None = None, token: str | None = None) -> AsyncIterator[Client]:
    async with connected(mcp_url(running, port), token or running.token) as client:
        yield client


@asynccontextmanager
async def connected(url: str, token: str) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client


@asynccontextmanager
async def over_stdio(running: Up) -> AsyncIterator[Client]:
    env = {"PATH": os.environ["PATH"], "PILOTLIGHT_URL": running.graphql_url, "PILOTLIGHT_TOKEN": running.token}
    async with Client(stdio_client(StdioServerParameters(command=PILOTLIGHT[0], args=["mcp"], env=env))) as client:
        yield client


async def call(client: Client, tool: str, /, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert result.structured_content is not None
    return result.structured_content


async def refusal(client: Client, tool: str, /, **arguments: Any) -> list[dict[str, Any]]:
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    text = "".join(part.text for part in result.content if part.type == "text")
    return json.loads(text)["errors"]


@pytest.mark.parametrize("transport", [over_http, over_stdio])
async def test_every_tool_is_listed_with_title_annotations_and_schemas(running: Up, transport: Any):
    async with transport(running) as client:
        tools = {each.name: each for each in (await client.list_tools()).tools}

    assert tools.keys() == TOOLS
    assert [name for name, each in tools.items() if not (each.title and each.annotations and each.output_schema)] == []
    assert {name for name, each in tools.items() if each.annotations and each.annotations.destructive_hint} == {
        "delete_instance"
    }
    needing_key = {name for name, each in tools.items() if "operation_key" in each.input_schema.get("required", [])}
    assert needing_key == {
        name for name, each in tools.items() if each.annotations and not each.annotations.read_only_hint
    }
    assert len(needing_key) == 5


@pytest.mark.parametrize("transport", [over_http, over_stdio])
async def test_every_tool_can_be_called(running: Up, transport: Any):
    name, secret = f"agent-{uuid4().hex[:8]}", f"secret-{uuid4().hex}"
    answers: list[dict[str, Any]] = []
    async with transport(running) as client:

        async def use(tool: str, /, **arguments: Any) -> dict[str, Any]:
            answers.append(await call(client, tool, **arguments))
            return answers[-1]

        offers = await use("find_offers", name="4090")
        assert offers["result"][0]["product"].startswith("RTX 4090")
        assert (await use("quote", product=PRODUCT))["price_per_hour"].endswith(" USD")
        created = await use(
            "create_instance", operation_key=str(uuid4()), name=name, product=PRODUCT, image="nginx", ports=[80],
            max_duration_seconds=7200, env={"HF_TOKEN": secret},
        )  # fmt: skip
        assert created["max_cost"].endswith(" USD")
        waited = await use("wait_for", operation_id=created["operation"]["id"])
        assert (waited["is_over"], waited["operation"]["status"]) == (True, "SUCCEEDED")
        ready = await use("get_instance", instance=name)
        assert (ready["status"], ready["ends_with"], len(ready["endpoints"])) == ("READY", "DELETE", 1)
        listed = await use("list_instances", statuses=["READY"])
        assert name in [each["name"] for each in listed["instances"]]
        until = datetime.now(UTC) + timedelta(hours=9)
        extended = await use("extend_lifetime", operation_key=str(uuid4()), instance=name, until=until.isoformat())
        assert datetime.fromisoformat(extended["ends_at"]) == until
        whole = await use("get_events", instance=name, limit=40)
        first = await use("get_events", instance=name, limit=1)
        rest = await use("get_events", instance=name, limit=len(whole["events"]), after=first["cursor"])
        assert (first["events"][0]["type"], whole["has_more"], first["has_more"]) == ("instance.created", False, True)
        assert [*first["events"], *rest["events"]][: len(whole["events"])] == whole["events"]
        assert (await use("get_log", instance=name))["text"] != ""
        assert (await use("get_spend"))["total"].endswith(" USD")
        for verb in ("stop_instance", "start_instance", "delete_instance"):
            accepted = await use(verb, operation_key=str(uuid4()), instance=ready["id"])
            assert (await use("wait_for", operation_id=accepted["operation"]["id"]))["is_over"]
    assert secret not in json.dumps(answers)


async def test_a_create_without_a_longest_run_is_refused_unless_the_policy_has_one(running: Up):
    given: dict[str, Any] = {"name": f"agent-{uuid4().hex[:8]}", "product": PRODUCT, "image": "nginx"}
    async with over_http(running) as client:
        (error,) = await refusal(client, "create_instance", operation_key="a", **given)
        assert (error["code"], error["path"]) == ("LIFETIME_REQUIRED", ["max_duration_seconds"])
        await ask(running, "mutation { setLifetimePolicy(input: {defaultMaxDuration: 3600}) { errors { code } } }")
        try:
            created = await call(client, "create_instance", operation_key=str(uuid4()), **given)
        finally:
            await ask(running, "mutation { setLifetimePolicy(input: {defaultMaxDuration: null}) { errors { code } } }")
        assert created["max_cost"] is not None
        instance = await call(client, "get_instance", instance=given["name"])
        async with AsyncPilotlight(running.graphql_url, running.token) as other:
            lifetime = (await other.get(instance["id"])).lifetime
        await call(client, "delete_instance", operation_key=str(uuid4()), instance=given["name"])
    assert lifetime is not None
    assert (lifetime.on_end, lifetime.max_duration) == ("DELETE", timedelta(hours=1))


async def test_instances_without_an_end_are_created_if_the_setting_says_so(api: Api):
    runtime = api.server.runtime
    async with (
        serving(runtime.database_url, api.server.simulator, mcp_require_lifetime=False) as server,
        connected(f"http://{server.address}/mcp", api.token) as client,
    ):
        created = await call(client, "create_instance", operation_key="k", name="x", product=PRODUCT, image="nginx")
    assert (created["instance"]["ends_at"], created["max_cost"]) == (None, None)


async def test_the_most_that_an_instance_can_cost_is_its_limit_for_the_longest_run(running: Up):
    name = f"agent-{uuid4().hex[:8]}"
    async with over_http(running) as client:
        quoted = (await call(client, "quote", product=PRODUCT, billing="ON_DEMAND"))["candidates"]
        cheapest, *_, dearest = sorted(Decimal(each["price_per_hour"].split()[0]) for each in quoted)
        # Just above a price with four decimals for 90 minutes: rounded down, it would be too little.
        limit = ((cheapest + dearest) / 2).quantize(Decimal("0.01")) + Decimal("0.00001")
        given: dict[str, Any] = {"product": PRODUCT, "billing": "ON_DEMAND", "image": "nginx"}
        limits = {"max_duration_seconds": 5400, "max_price_per_hour": str(limit)}
        created = await call(client, "create_instance", operation_key=str(uuid4()), name=name, **given, **limits)
        await call(client, "delete_instance", operation_key=str(uuid4()), instance=name)

    most = Decimal(created["max_cost"].removesuffix(" USD"))
    assert cheapest < limit < dearest
    assert most == (limit * Decimal("1.5")).quantize(Decimal("0.0001"), ROUND_CEILING)


async def test_a_refusal_has_code_path_and_remedy(running: Up):
    async with over_http(running) as client:
        given: dict[str, Any] = {"operation_key": "b", "image": "nginx", "max_duration_seconds": 600}
        (error,) = await refusal(client, "create_instance", name="x", product="RTX 9090", **given)
        assert (error["code"], error["path"]) == ("PRODUCT_NOT_FOUND", ["input", "productName"])
        assert error["remedy"]
        (missing,) = await refusal(client, "get_instance", instance="no such instance")
        assert missing["code"] == "NOT_FOUND"


async def test_arguments_that_do_not_fit_are_refused_in_the_same_form(running: Up):
    async with over_http(running) as client:
        given: dict[str, Any] = {"operation_key": "c", "name": "x", "product": PRODUCT, "image": "nginx"}
        (unknown,) = await refusal(client, "create_instance", max_price=0.2, max_duration_seconds=600, **given)
        assert (unknown["code"], unknown["path"]) == ("INVALID_ARGUMENT", ["max_price"])
        assert unknown["remedy"] == "Did you mean max_price_per_hour?"
        missing = await refusal(client, "delete_instance")
        assert [each["path"] for each in missing] == [["operation_key"], ["instance"]]
        for wrong in ({"gpu_count": 9}, {"max_price_per_hour": 0.1234567}):
            (error,) = await refusal(client, "create_instance", max_duration_seconds=600, **given, **wrong)
            assert (error["code"], error["path"]) == ("INVALID_ARGUMENT", list(wrong))
            assert error["remedy"]
        tools = (await client.list_tools()).tools
        assert [each.name for each in tools if each.input_schema["additionalProperties"]] == []


async def test_a_wait_has_an_end_and_says_to_call_again(running: Up):
    name = f"agent-{uuid4().hex[:8]}"
    given: dict[str, Any] = {"product": PRODUCT, "image": "nginx", "max_duration_seconds": 600}
    simulator = running.ready["simulatorUrl"]
    speed = (await control(simulator, "state"))["speed"]
    async with over_http(running) as client:
        (too_long,) = await refusal(client, "wait_for", operation_id="op_x", seconds=45.1)
        assert too_long["path"] == ["seconds"]
        await control(simulator, "speed", {"speed": 0.001})  # the machine does not run before the first wait is over
        created = await call(client, "create_instance", operation_key=str(uuid4()), name=name, **given)
        operation = created["operation"]["id"]
        waited = await call(client, "wait_for", operation_id=operation, seconds=0)
        assert (waited["is_over"], waited["call_again"]) == (False, True)
        await control(simulator, "speed", {"speed": speed})
        waited = await call(client, "wait_for", operation_id=operation)
        assert (waited["is_over"], waited["call_again"]) == (True, False)
        listed = await call(client, "list_instances", statuses=["ready"], limit=100)
        assert name in [each["name"] for each in listed["instances"]]
        await call(client, "delete_instance", operation_key=str(uuid4()), instance=name)


async def test_a_repeated_delete_by_name_is_answered_as_the_first_was(running: Up):
    name, key = f"agent-{uuid4().hex[:8]}", str(uuid4())
    given: dict[str, Any] = {"name": name, "product": PRODUCT, "image": "nginx", "max_duration_seconds": 600}
    async with over_http(running) as client:
        await call(client, "create_instance", operation_key=str(uuid4()), **given)
        first = await call(client, "delete_instance", operation_key=key, instance=name)
        await call(client, "wait_for", operation_id=first["operation"]["id"])
        again = await call(client, "delete_instance", operation_key=key, instance=name)
        (unknown,) = await refusal(client, "delete_instance", operation_key=str(uuid4()), instance=name)
    assert (again["operation"]["id"], again["replayed"]) == (first["operation"]["id"], True)
    assert unknown["code"] == "NOT_FOUND"


async def test_callers_without_a_valid_token_or_of_another_origin_get_nothing(running: Up):
    async with aiohttp.ClientSession() as session:
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        accept = {"accept": "application/json, text/event-stream"}
        for wrong in ({}, {"authorization": "Bearer pl_wrong"}, {"authorization": "Basic x"}):
            async with session.post(mcp_url(running), json=body, headers={**accept, **wrong}) as response:
                assert (response.status, response.headers["www-authenticate"]) == (401, "Bearer")
        headers = {"authorization": f"Bearer {running.token}", "origin": "https://elsewhere.test"}
        async with session.post(mcp_url(running), json=body, headers=headers) as response:
            assert response.status == 403


async def test_requests_beyond_the_rate_are_refused_whatever_they_ask_for(api: Api):
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    headers = {"authorization": f"Bearer {api.token}", "accept": "application/json, text/event-stream"}
    runtime = api.server.runtime
    async with serving(runtime.database_url, api.server.simulator, request_rate_limit=2) as server:
        url = f"http://{server.address}/mcp"
        answers = [await server.http.post(url, json=body, headers=headers) for _ in range(3)]

    assert [each.status for each in answers] == [200, 200, 429]
    assert int(answers[-1].headers["retry-after"]) in range(1, 61)


async def test_no_argument_is_in_the_log(running: Up):
    secret = f"sEcReT-{uuid4().hex}"
    create: dict[str, Any] = {"operation_key": str(uuid4()), "name": "quiet", "product": PRODUCT, "image": "nginx"}
    refused: list[tuple[str, dict[str, Any]]] = [
        ("get_instance", {"instance": secret}),
        ("get_log", {"instance": secret}),
        ("quote", {"product": secret}),
        ("list_instances", {"statuses": [secret]}),
        ("wait_for", {"operation_id": secret}),
        ("create_instance", {**create, "env": {"HF_TOKEN": [secret]}}),
        ("create_instance", {**create, "max_duration_seconds": secret}),
        ("create_instance", {**create, secret: "x"}),
        (secret, {}),
    ]
    async with over_http(running) as client:
        for tool, arguments in refused:
            assert (await client.call_tool(tool, arguments)).is_error, tool
        accepted = await call(client, "create_instance", **create, max_duration_seconds=600, env={"HF_TOKEN": secret})

    await until(lambda: accepted["instance"]["id"] in running.said)  # all lines before it have been read
    assert secret not in running.said


async def test_a_client_that_leaves_in_the_middle_of_its_request_is_no_error(
    api: Api, caplog: pytest.LogCaptureFixture
):
    lines = ["POST /mcp HTTP/1.1", f"host: {api.server.address}", f"authorization: Bearer {api.token}"]
    lines += ["content-type: application/json", "accept: application/json, text/event-stream", "content-length: 99"]
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    headers = {"authorization": f"Bearer {api.token}", "accept": "application/json, text/event-stream"}
    for _ in range(5):
        async with line(api.server) as wire:
            wire.send("\r\n".join([*lines, "", "{"]).encode())
            await wire.writer.drain()
        answer = await api.server.http.post(f"http://{api.server.address}/mcp", json=body, headers=headers)
        assert answer.status == 200

    assert [each.getMessage() for each in caplog.records if each.levelname == "ERROR"] == []


@pytest.mark.parametrize("token", ["pl_wrong", None])
async def test_no_stream_is_opened_that_stays_empty(running: Up, token: str | None):
    headers = {"authorization": f"Bearer {token or running.token}", "accept": "text/event-stream"}
    async with aiohttp.ClientSession() as session, session.get(mcp_url(running), headers=headers) as response:
        assert (response.status, response.headers["allow"]) == (405, "POST")


async def test_calls_whose_answers_are_cut_make_one_machine_per_key(running: Up):
    """Thirty calls, a third of whose answers are lost; MCP_CALLS=300 is the long form."""
    calls = int(os.environ.get("MCP_CALLS", "30"))
    keys = [str(uuid4()) for _ in range(calls // 3)]
    simulator = running.ready["simulatorUrl"]
    # The simulator has 80 of them in all regions: with more keys, the rest would fail for want of stock.
    await control(simulator, "stock", {"productId": "4090.16c62g", "clusterId": "us-ca-6", "free": calls})
    before = await made(simulator)
    port = urlsplit(running.graphql_url).port
    assert port is not None
    async with over_http(running) as client:
        await client.list_tools()  # the first request imports the SDK, which takes long on a busy machine
    async with FaultProxy(port) as proxy:
        for number in range(calls):
            key = keys[number % len(keys)]
            given: dict[str, Any] = {"name": f"m-{key[:13]}", "product": PRODUCT, "image": "nginx"}
            if number % 3 == 1:
                proxy.break_after(bytes_down=1)
            try:
                async with asyncio.timeout(20), over_http(running, port=proxy.port) as client:
                    await call(client, "create_instance", operation_key=key, max_duration_seconds=600, **given)
            except Exception:  # whatever the client raises: the answer was cut
                if number % 3 != 1:
                    raise
            proxy.mend()
    async with AsyncPilotlight(running.graphql_url, running.token) as client:
        found = [each async for each in client.list(name_starts_with="m-")]
        assert sorted(each.name for each in found) == sorted(f"m-{key[:13]}" for key in keys)
        for each in found:
            if each.open_operation is not None:
                await client.wait(each.open_operation.id, timeout=120)
        machines = [(await client.get(each.id)).machines for each in found]
        assert [len(each) for each in machines] == [1] * len(keys)  # one per key, and the simulator made no other
        assert len({each[0].novita_id for each in machines}) == len(keys)
        assert await made(simulator) == before + len(keys)
        sys.stdout.write(f"{calls} calls, a third cut: {len(machines)} machines for {len(keys)} keys\n")
        await asyncio.gather(*(client.delete(each.id) for each in found))


async def ask(running: Up, document: str) -> None:
    headers = {"authorization": f"Bearer {running.token}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(running.graphql_url, json={"query": document}) as response,
    ):
        assert "errors" not in await response.json()
