"""Two real API processes behind haproxy with the deployed configuration; one of them is killed."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from tests.flows.deployment import new_token
from tests.ha.haproxy import CONFIG, front
from tests.support.processes import Pilotlight, free_port, pilotlight
from tests.support.waiting import until
from tests.support.watcher import EVENTS, Event, GraphQLClient, Stream, positions

pytestmark = pytest.mark.skipif(shutil.which("haproxy") is None, reason="haproxy is not installed here")

ADDRESSES = ["127.0.0.2", "127.0.0.3"]


@dataclass
class FrontedApis:
    url: str
    caller: GraphQLClient
    token: str
    apis: dict[str, Pilotlight]
    port: int

    async def status(self, path: str) -> int:
        async with aiohttp.ClientSession() as http, http.get(self.url + path) as response:
            return response.status

    async def ready(self) -> bool:
        return await self.status("/readyz") == 200


@pytest.fixture(scope="module")
async def stage(new_database: Any, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FrontedApis]:
    folder = tmp_path_factory.mktemp("front")
    settings = {"DATABASE_URL": await new_database.migrated(), "NOVITA_API_KEY": "sk_x", "LOG_FORMAT": "json"}
    settings |= {"TRUSTED_PROXIES": "127.0.0.1", "WRONG_TOKEN_LIMIT": "5", "SOCKET_PING_INTERVAL": "2s"}
    async with AsyncExitStack() as stack:
        simulator = await stack.enter_async_context(pilotlight("simulate", "--port", "0"))
        token = await new_token(settings["DATABASE_URL"])
        await simulator.says("http://")
        settings["NOVITA_API_BASE_URL"] = next(word for word in simulator.said.split() if word.startswith("http://"))
        port = free_port()
        apis = {
            address: await stack.enter_async_context(
                pilotlight("serve", "--host", address, "--port", str(port), env=settings)
            )
            for address in ADDRESSES
        }
        for api in apis.values():
            await api.says("api.ready")
        url = await stack.enter_async_context(front(ADDRESSES, port, folder))
        made = FrontedApis(url, GraphQLClient(f"{url}/graphql", token), token, apis, port)
        await until(made.ready)
        yield made


def test_the_configuration_is_one_that_haproxy_takes():
    environment = {"FRONT_BIND": "127.0.0.1:8000", "API_ADDRESS": "api:8000", "DNS_ADDRESS": "127.0.0.11:53"}
    checked = subprocess.run(
        [str(shutil.which("haproxy")), "-c", "-f", CONFIG], env=environment, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr
    assert "warning" not in checked.stderr.lower()


async def test_sockets_are_spread_over_both_and_metrics_stay_inside(stage: FrontedApis):
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(aiohttp.ClientSession())

        async def both_have_some() -> bool:
            await stack.enter_async_context(http.ws_connect(f"{stage.url}/graphql", protocols=["graphql-transport-ws"]))
            return all([await _sockets(stage, address) >= 2 for address in ADDRESSES])

        await until(both_have_some)
    assert await stage.status("/metrics") == 404


async def test_a_stream_passes_event_by_event(stage: FrontedApis):
    headers = {"authorization": f"Bearer {stage.token}", "accept": "text/event-stream"}
    place = await stage.caller.ask("{ events(first: 100) { pageInfo { endCursor } } }")
    variables = {"after": place["events"]["pageInfo"]["endCursor"]}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{stage.url}/graphql", json={"query": EVENTS, "variables": variables}, headers=headers) as response,
    ):
        assert response.status == 200
        id = await stage.caller.create("streamed")
        line = ""
        async with asyncio.timeout(30):
            while not (line.startswith("data:") and id in line):
                line = (await response.content.readline()).decode()

    assert json.loads(line.removeprefix("data:"))["data"]["instanceEvents"]["instanceId"] == id


async def test_a_subscriber_of_a_killed_api_resumes_at_the_other_and_requests_succeed(stage: FrontedApis):
    async with stage.caller.subscribed() as events:
        before = await stage.caller.create("before")
        seen = [await events.next()]
        while seen[-1]["instanceId"] != before:
            seen.append(await events.next())

        watched = await _serving(stage)
        await stage.apis.pop(watched).kill_tree()
        await _to_its_end(events, seen)

    async def accepts() -> bool:
        try:
            after.append(await stage.caller.create("after"))
        except Exception:  # noqa: BLE001 - the moment in which it died
            return False
        return True

    after: list[str] = []
    await until(accepts)
    async with stage.caller.subscribed(after=seen[-1]["cursor"]) as resumed:
        more = [await resumed.next()]
        while more[-1]["instanceId"] != after[0]:
            more.append(await resumed.next())
    places = positions(seen + more, await stage.caller.log())
    assert places == list(range(places[0], places[-1] + 1))


async def test_a_clients_wrong_tokens_count_for_its_own_address(stage: FrontedApis):
    async def statuses(client: str, times: int) -> set[int]:
        found: set[int] = set()
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(local_addr=(client, 0))) as http:
            for n in range(times):
                headers = {"authorization": f"Bearer pl_{client}_{n}", "x-forwarded-for": f"203.0.113.{n}"}
                async with http.post(f"{stage.url}/graphql", json={"query": "{x}"}, headers=headers) as response:
                    found.add(response.status)
        return found

    assert await statuses("127.0.0.9", 20) == {401, 429}
    assert await statuses("127.0.0.10", 3) == {401}


async def _to_its_end(events: Stream, seen: list[Event]) -> None:
    """Whatever the client makes of a cut connection; only not silence."""
    try:
        while True:
            seen.append(await events.next())
    except TimeoutError:
        raise
    except Exception:  # noqa: BLE001
        return


async def _serving(stage: FrontedApis) -> str:
    """The one that has the WebSocket, after those of earlier tests have ended."""
    counts: dict[str, int] = {}

    async def is_alone() -> bool:
        counts.update({address: await _sockets(stage, address) for address in ADDRESSES})
        return sum(counts.values()) == 1

    await until(is_alone)
    return max(counts, key=lambda address: counts[address])


async def _sockets(stage: FrontedApis, address: str) -> int:
    """The open WebSockets and streams of one API, as it counts them itself."""
    async with aiohttp.ClientSession() as http, http.get(f"http://{address}:{stage.port}/metrics") as response:
        [line] = [each for each in (await response.text()).splitlines() if each.startswith("pilotlight_sockets_open ")]
    return int(float(line.split()[1]))
