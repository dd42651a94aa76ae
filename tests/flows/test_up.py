"""`pilotlight up` starts everything, prints the addresses, keeps the data, and leaves nothing running."""

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from tests.support.processes import Up, control, has_made, is_free, made, run, up
from tests.support.watcher import EVENTS, GraphQLClient


async def test_a_first_start_makes_its_own_database_and_says_where_everything_is(tmp_path: Path):
    async with up(tmp_path / "new home") as running:
        ready = running.ready

        assert ready.keys() == {"graphqlUrl", "websocketUrl", "token", "simulatorUrl", "databaseUrl", "pid"}
        assert ready["pid"] == running.pid
        assert ready["websocketUrl"] == ready["graphqlUrl"].replace("http://", "ws://")
        assert (running.folder / "ready.json").stat().st_mode & 0o777 == 0o600
        assert await made(ready["simulatorUrl"]) == 0
        assert await GraphQLClient(running.graphql_url, running.token).ask("{ __typename }") == {"__typename": "Query"}
        for word in ("graphqlUrl", "websocketUrl", "token"):
            assert ready[word] in running.said
        assert "curl -s" in running.said
        assert "nothing real is created" in running.said


async def test_a_stop_ends_every_process_and_a_second_start_keeps_data_and_token(home: Path):
    async with up(home) as first:
        caller = GraphQLClient(first.graphql_url, first.token)
        async with caller.subscribed() as events:
            id = await caller.create("kept")
            await events.until("READY")
        async with _subscriber(first) as socket:
            took = await _stopped_by(first, signal.SIGINT)
            assert await _close_code(socket) in (1001, 1012)  # a code that makes clients resume
        assert took < 20  # the shutdown timeout is 30 s: nothing waited for it

    began = time.monotonic()
    async with up(home) as second:
        assert time.monotonic() - began < 30  # 2 s on an idle machine
        assert second.token == first.token
        instance = await GraphQLClient(second.graphql_url, second.token).instance(id)
        assert (instance["name"], instance["status"]) == ("kept", "READY")
        assert await made(second.ready["simulatorUrl"]) == 1
        assert await _stopped_by(second, signal.SIGTERM) < 20


async def test_it_stops_in_time_though_the_provider_never_answers(database_url: str, tmp_path: Path):
    """And what was accepted meanwhile is done by the next start."""
    settings = {"DATABASE_URL": database_url, "SHUTDOWN_TIMEOUT": "1s"}
    async with up(tmp_path, env=settings) as running:
        hang = {"kind": "hangAfter", "routes": ["POST /gpu/instance/create"]}
        await control(running.ready["simulatorUrl"], "faults", {"faults": [hang]})
        id = await GraphQLClient(running.graphql_url, running.token).create("hung")
        await has_made(running.ready["simulatorUrl"], 1)

        assert await _stopped_by(running, signal.SIGTERM) < 20

    async with up(tmp_path, env=settings) as again:
        await GraphQLClient(again.graphql_url, again.token).becomes(id, "READY")
        assert await made(again.ready["simulatorUrl"]) == 1


async def test_a_home_in_use_is_refused_and_the_first_goes_on(shared_up: Up):
    second = await run("up", "--port", "0", "--home", str(shared_up.home))

    assert second.code == 1
    assert f"{shared_up.home}" in second.said
    assert str(shared_up.pid) in second.said
    assert "Traceback" not in second.said
    assert await GraphQLClient(shared_up.graphql_url, shared_up.token).ask("{ __typename }") == {"__typename": "Query"}


async def _stopped_by(running: Up, number: signal.Signals) -> float:
    """Stop it, see that nothing of it is left, and give the seconds that it took."""
    began = time.monotonic()
    assert await running.stop(number) == 0
    took = time.monotonic() - began
    assert running.survivors() == []
    urls = [running.ready[name] for name in ("graphqlUrl", "simulatorUrl")]
    if (running.home / "postgres").exists():
        assert len(running.family) > 5  # PostgreSQL was among them
        urls.append(running.ready["databaseUrl"])
    assert [url for url in urls if not is_free(int(urlsplit(url).port or 0))] == []
    assert "Traceback" not in running.said
    return took


@asynccontextmanager
async def _subscriber(running: Up) -> AsyncIterator[ClientConnection]:
    """A bare WebSocket with a subscription that has begun, to see how it is closed."""
    headers = {"authorization": f"Bearer {running.token}"}
    protocol = Subprotocol("graphql-transport-ws")
    async with connect(running.ready["websocketUrl"], subprotocols=[protocol], additional_headers=headers) as socket:
        for message in (
            {"type": "connection_init"},
            {"id": "1", "type": "subscribe", "payload": {"query": EVENTS}},
            {"id": "2", "type": "subscribe", "payload": {"query": "{ __typename }"}},
        ):
            await socket.send(json.dumps(message))
        async with asyncio.timeout(20):
            while json.loads(await socket.recv())["type"] != "complete":
                pass
        yield socket


async def _close_code(socket: ClientConnection) -> int | None:
    with pytest.raises(ConnectionClosed):
        await socket.recv()
    return socket.close_code
