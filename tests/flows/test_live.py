"""Subscriptions survive kills of API processes and PostgreSQL; `python -m tests.chaos.live` does it for longer."""

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
from tests.support.processes import up
from tests.support.watcher import GraphQLClient

WATCH = {"id": "1", "type": "subscribe", "payload": {"query": "subscription { instanceEvents { id cursor } }"}}


@pytest.mark.slow
async def test_every_subscriber_gets_the_whole_log_across_kills():
    plan = Plan(seed=3, seconds=8, subscribers=12, kill_api_every=2.5, kill_postgres_every=4.0, pause=0.05)

    report = await chaos(plan)

    report_text = "\n".join(report.lines())
    assert report.problems == [], report_text
    assert report.counts["events in the log"] > 50, report_text
    assert report.counts["API processes killed"] >= 2, report_text
    assert report.counts["PostgreSQL killed"] >= 1, report_text
    assert report.counts["messages received"] == 12 * report.counts["events in the log"], report_text


@pytest.mark.slow
async def test_a_stopping_process_closes_subscriptions_at_once_even_stalled_ones(home: Path):
    async with up(home) as running:
        caller = GraphQLClient(running.graphql_url, running.token)
        watching, stalled = [await subscriber(running.ready["websocketUrl"], running.token) for _ in range(2)]
        stalled.transport.pause_reading()
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
        stalled.transport.abort()
    # What was accepted is still there, and a subscriber that resumes with its cursor misses nothing.
    async with up(home) as running:
        caller = GraphQLClient(running.graphql_url, running.token)
        cursor = first["payload"]["data"]["instanceEvents"]["cursor"]
        async with caller.subscribed(after=cursor) as events:
            seen = await events.until("READY", id)
        assert first["payload"]["data"]["instanceEvents"]["id"] not in {event["id"] for event in seen}


async def subscriber(url: str, token: str) -> ClientConnection:
    socket = await connect(url, subprotocols=["graphql-transport-ws"], ping_interval=None)  # pyright: ignore[reportArgumentType]
    await socket.send(
        orjson.dumps({"type": "connection_init", "payload": {"Authorization": f"Bearer {token}"}}).decode()
    )
    assert (await heard(socket))["type"] == "connection_ack"
    await socket.send(orjson.dumps(WATCH).decode())
    return socket


async def heard(socket: ClientConnection) -> dict[str, Any]:
    return orjson.loads(await socket.recv())
