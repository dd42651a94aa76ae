"""What watchers rely on, while everything around them breaks. `python -m tests.chaos.live` does it for longer."""

import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.chaos.live import Plan, chaos
from tests.flows.watcher import Caller
from tests.processes import up

WATCH = {"id": "1", "type": "subscribe", "payload": {"query": "subscription { instanceEvents { id cursor } }"}}


@pytest.mark.slow
async def test_every_watchers_record_equals_the_log_while_processes_and_postgresql_are_killed():
    plan = Plan(seed=3, seconds=8, watchers=12, kill_api_every=2.5, kill_postgres_every=4.0, pause=0.05)

    report = await chaos(plan)

    told = "\n".join(report.lines())
    assert report.problems == [], told
    assert report.counts["events in the log"] > 50, told
    assert report.counts["API processes killed"] >= 2, told
    assert report.counts["PostgreSQL killed"] >= 1, told
    assert report.counts["messages received"] == 12 * report.counts["events in the log"], told


@pytest.mark.slow
async def test_a_process_told_to_stop_sends_its_watchers_away_at_once_even_those_who_do_not_read(home: Path):
    async with up(home) as running:
        caller = Caller(running.graphql_url, running.token)
        watching, deaf = [await watcher(running.ready["websocketUrl"], running.token) for _ in range(2)]
        deaf.transport.pause_reading()
        id = await caller.create("last-seen")
        first = await heard(watching)
        assert first["type"] == "next"

        began = time.monotonic()
        code = await running.stop(signal.SIGTERM)

        assert code == 0
        assert time.monotonic() - began < 25
        with suppress(ConnectionClosed):
            while await heard(watching):
                pass
        assert watching.close_code == 1012
        deaf.transport.abort()
    # What was accepted is there again, and whoever comes back with a cursor misses nothing.
    async with up(home) as running:
        caller = Caller(running.graphql_url, running.token)
        cursor = first["payload"]["data"]["instanceEvents"]["cursor"]
        async with caller.subscribed(after=cursor) as events:
            seen = await events.until("READY", id)
        assert first["payload"]["data"]["instanceEvents"]["id"] not in {event["id"] for event in seen}


async def watcher(url: str, token: str) -> ClientConnection:
    socket = await connect(url, subprotocols=["graphql-transport-ws"], ping_interval=None)  # pyright: ignore[reportArgumentType]
    await socket.send(
        orjson.dumps({"type": "connection_init", "payload": {"Authorization": f"Bearer {token}"}}).decode()
    )
    assert (await heard(socket))["type"] == "connection_ack"
    await socket.send(orjson.dumps(WATCH).decode())
    return socket


async def heard(socket: ClientConnection) -> dict[str, Any]:
    return orjson.loads(await socket.recv())
