"""Values of variables: in no log, trace, metric or error, whether they fit or not, over every transport."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from server.enums import Role
from tests.flows.deployment import deployment, new_token
from tests.flows.input_positions import FORMS, PREFIX, Request, requests
from tests.support.databases import DatabaseMaker
from tests.support.waiting import until

AT_ONCE = 8
# `make secret-values` sends all; so many fit into every run.
EACH_FORM_OVER_ALL = "EACH_FORM_OVER_ALL" in os.environ
UNLIMITED = {"REQUEST_RATE_LIMIT": "0", "REQUEST_RATE_LIMIT_PER_PROJECT": "0"}
# References by a public name: a refusal names what was not found.
NAMES = {"region", "regions", "productName", "networkId", "registryAuthId", "templateId"}
Answers = list[tuple[Request, str]]


async def test_no_value_of_a_variable_is_logged_traced_measured_or_returned_in_an_error(
    new_database: DatabaseMaker, tmp_path: Path
):
    url = await new_database.migrated()
    everything = list(requests())
    assert len({(each.field, each.position) for each in everything}) > 150
    async with deployment(url, tmp_path, **UNLIMITED) as running:
        token = await new_token(url, Role.ADMIN)
        async with aiohttp.ClientSession(headers={"authorization": f"Bearer {token}"}) as http:
            # Each position over each transport, each time in another form; a mutation's secret itself over all of them.
            calls = [
                (transport, each)
                for n, each in enumerate(everything)
                for m, transport in enumerate((over_http, over_sse, over_socket))
                if EACH_FORM_OVER_ALL or (each.kind == "mutation" and n % FORMS == 0) or (n + m) % 3 == 0
            ]
            answers: Answers = []
            queue = iter(calls)

            async def work() -> None:
                for transport, request in queue:
                    answers.append((request, await transport(http, running.graphql_url, request)))

            await asyncio.gather(*(work() for _ in range(AT_ONCE)))
            base = running.graphql_url.removesuffix("/graphql")
            async with http.get(f"{base}/metrics") as response:
                metrics = await response.text()
        assert "pilotlight_" in metrics
        # What was accepted has gone through a worker, to the provider and back.
        await until(lambda: "novita POST /gpu/instance/create" in {span.name for span in running.collector.spans})
        places = {
            "the API's log": running.api.said,
            "the worker's log": running.worker.said,
            "metrics": metrics,
            "traces": b"\n".join(running.collector.raw).decode("latin-1"),
        }

    assert places["the API's log"].count("\n") > 1000  # so there was something to search
    found = {place: lines_with(PREFIX, text)[:5] for place, text in places.items() if PREFIX in text}
    leaks = [
        (each.field, each.position, text) for each, answer in answers if PREFIX in (text := errors_of(each, answer))
    ]
    internal = [(each.field, each.position) for each, answer in answers if '"INTERNAL"' in answer]
    assert (found, leaks[:10], internal[:10]) == ({}, [], [])


def lines_with(word: str, text: str) -> list[str]:
    return [line[max(0, line.index(word) - 300) : line.index(word) + 60] for line in text.splitlines() if word in line]


def errors_of(request: Request, answer: str) -> str:
    """The errors of a response and of its payload; its data may repeat what was sent."""
    body: Any = orjson.loads(answer)
    if isinstance(body, list):  # of a WebSocket
        return answer
    refusals: list[Any] = [] if request.position[-1] in NAMES else list((body.get("data") or {}).values())
    return orjson.dumps(
        [body.get("errors"), [each.get("errors") for each in refusals if isinstance(each, dict)]]
    ).decode()


async def over_http(http: aiohttp.ClientSession, url: str, request: Request) -> str:
    body = {"query": request.document, "variables": request.variables}
    async with http.post(url, json=body) as response:
        return await response.text()


async def over_sse(http: aiohttp.ClientSession, url: str, request: Request) -> str:
    body = {"query": request.document, "variables": request.variables}
    async with http.post(url, json=body, headers={"accept": "text/event-stream"}) as response:
        if response.content_type != "text/event-stream":
            return await response.text()
        try:
            async with asyncio.timeout(0.2 if request.kind == "subscription" else 20):
                async for raw in response.content:
                    if raw.startswith(b"data:") and raw.strip() != b"data:":
                        return raw.removeprefix(b"data:").decode()
        except TimeoutError:
            pass  # the subscription was accepted
    return "{}"


async def over_socket(http: aiohttp.ClientSession, url: str, request: Request) -> str:
    async with socket_to(http, url) as socket:
        payload = {"query": request.document, "variables": request.variables}
        await socket.send_json({"id": "1", "type": "subscribe", "payload": payload})
        try:
            async with asyncio.timeout(0.2 if request.kind == "subscription" else 20):
                message = await socket.receive_json()
        except TimeoutError:
            return "{}"
    return orjson.dumps(message.get("payload") or {}).decode()


@asynccontextmanager
async def socket_to(http: aiohttp.ClientSession, url: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    async with http.ws_connect(url, protocols=["graphql-transport-ws"]) as socket:
        await socket.send_json({"type": "connection_init"})
        assert (await socket.receive_json())["type"] == "connection_ack"
        yield socket


def test_every_mutation_is_among_the_generated_requests():
    fields = {each.field for each in requests() if each.kind == "mutation"}
    assert {"createInstance", "updateInstance", "createToken", "syncFleet"} <= fields
