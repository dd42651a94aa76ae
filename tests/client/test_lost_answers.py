"""The client while answers get lost, connections are cut and the server is away."""

import asyncio
import json
from decimal import Decimal
from urllib.parse import urlsplit
from uuid import uuid4

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from pilotlight_client import AsyncPilotlight, RequestFailed, Unreachable
from pilotlight_client.models import InstanceEvent

from tests.support.fault_proxy import FaultProxy
from tests.support.processes import Up, free_port, made
from tests.support.waiting import until

PRODUCT = "RTX 4090 24GB"


def through(proxy: FaultProxy, running: Up, **options: float) -> AsyncPilotlight:
    return AsyncPilotlight(f"http://127.0.0.1:{proxy.port}/graphql", running.token, **options)


def port_of(running: Up) -> int:
    port = urlsplit(running.graphql_url).port
    assert port is not None
    return port


async def test_a_create_whose_answer_is_lost_is_sent_again_with_its_key(running: Up, client: AsyncPilotlight):
    before = await made(running.ready["simulatorUrl"])
    name = f"lost-{uuid4().hex[:12]}"
    async with FaultProxy(port_of(running)) as proxy, through(proxy, running) as cut:
        proxy.break_after(bytes_down=1)  # the first answer
        accepted = await cut.create(name=name, product=PRODUCT, image="nginx")

    assert accepted.replayed
    await client.wait(accepted.operation.id, timeout=60)
    assert await made(running.ready["simulatorUrl"]) == before + 1
    await client.delete(name)


async def test_an_alert_whose_answer_is_lost_is_created_and_deleted_once(running: Up, client: AsyncPilotlight):
    async with FaultProxy(port_of(running)) as proxy, through(proxy, running) as cut:
        proxy.break_after(bytes_down=1)
        alert = await cut.create_alert(product_names=[PRODUCT], price_at_most=Decimal("0.001"))
        assert [each.id async for each in client.alerts()] == [alert.id]
        proxy.break_after(bytes_down=1)
        await cut.delete_alert(alert.id)
    assert [each async for each in client.alerts()] == []


async def test_an_extension_whose_answer_is_lost_moves_the_end_once(
    running: Up, client: AsyncPilotlight, caplog: pytest.LogCaptureFixture
):
    accepted = await client.create(
        name=f"extend-{uuid4().hex[:12]}", product=PRODUCT, image="nginx", lifetime={"max_duration": 3600}
    )
    await client.wait(accepted, timeout=60)
    before = await client.get(accepted.instance.id)
    async with FaultProxy(port_of(running)) as proxy, through(proxy, running) as cut:
        proxy.break_after(bytes_down=1)
        after = await cut.extend(accepted.instance.name, by=600)
    assert "trying again" in caplog.text

    assert before.lifetime is not None
    assert before.lifetime.next is not None
    assert after.lifetime is not None
    assert after.lifetime.next is not None
    assert (after.lifetime.next.at - before.lifetime.next.at).total_seconds() == 600
    await client.delete(accepted.instance.id)


async def test_a_retryable_error_is_repeated_with_the_same_key_after_its_time(running: Up, client: AsyncPilotlight):
    """The first two answers are errors; the third request goes to the server."""
    keys, times = list[str](), list[float]()
    errors = [("RATE_LIMITED", 900), ("UNAVAILABLE", 1300)]

    async def answer(request: web.Request) -> web.Response:
        body = await request.json()
        keys.append(body["variables"]["input"]["idempotencyKey"])
        times.append(asyncio.get_running_loop().time())
        if errors:
            code, pause = errors.pop(0)
            extensions = {"code": code, "retryable": True, "retryAfterMs": pause}
            return web.json_response({"errors": [{"message": "Later.", "extensions": extensions}]})
        headers = {"authorization": request.headers["authorization"]}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.post(running.graphql_url, json=body) as response,
        ):
            return web.json_response(await response.json())

    app = web.Application()
    app.router.add_post("/graphql", answer)
    async with TestServer(app) as server, AsyncPilotlight(str(server.make_url("")), running.token) as retrying:
        accepted = await retrying.create(name=f"retried-{uuid4().hex[:12]}", product=PRODUCT, image="nginx")
        # A pause that is longer than the client waits is not begun.
        errors.append(("RATE_LIMITED", 60_000))
        retrying._transport._retry_for = 5.0  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(RequestFailed):
            await retrying.delete(accepted.instance.id)

    assert not accepted.replayed
    assert (len(set(keys[:3])), len(keys)) == (1, 4)
    assert (times[1] - times[0] >= 0.9, times[2] - times[1] >= 1.3) == (True, True)  # never earlier than asked
    await client.delete(accepted.instance.id)


async def test_events_resume_by_themselves_and_come_once(running: Up, client: AsyncPilotlight):
    names = [f"event-{uuid4().hex[:12]}" for _ in range(6)]
    seen: list[InstanceEvent] = []

    async def watch(watcher: AsyncPilotlight) -> None:
        async for event in watcher.events():
            seen.append(event)  # noqa: PERF401  one by one: the test looks at the list meanwhile

    async with FaultProxy(port_of(running)) as proxy, through(proxy, running) as watcher:
        watching = asyncio.create_task(watch(watcher))
        await until(lambda: proxy.connections > 0)
        first = await client.create(name=names[0], product=PRODUCT, image="nginx")
        await until(lambda: bool(seen))
        for name in names[1:]:
            proxy.reset()  # every connection is cut; new ones get through
            await client.create(name=name, product=PRODUCT, image="nginx")
        gone = [await client.delete(name) for name in names]
        for each in gone:
            await client.wait(each, timeout=60)

        ours = {each.instance.id for each in gone}

        def ended() -> set[str]:
            return {event.instance_id for event in seen if event.status == "DELETED"}

        await until(lambda: ended() >= ours)
        watching.cancel()
    assert first.instance.id in ours
    cursors = [event.cursor for event in seen]
    assert len(set(cursors)) == len(cursors)
    for id in ours:
        versions = [e.instance_snapshot.version for e in seen if e.instance_id == id and e.instance_snapshot]
        assert versions == sorted(versions)
    log = [event async for event in _until_last(client, seen[0], seen[-1])]
    assert [event.id for event in seen[1:]] == [event.id for event in log]


async def _until_last(client: AsyncPilotlight, first: InstanceEvent, last: InstanceEvent):
    async for event in client.events(after=first.cursor):
        yield event
        if event.id == last.id:
            return


async def test_a_server_that_is_not_there_is_said_after_the_retries():
    async with AsyncPilotlight(f"http://127.0.0.1:{free_port()}", "pl_any", retry_for=0.2) as client:
        with pytest.raises(Unreachable):
            await client.get("web")
        with pytest.raises(Unreachable):
            await anext(client.watch("inst_" + "0" * 32))


async def test_a_followed_log_begins_with_its_last_lines_and_follows_a_new_log():
    """The first connection is cut after the second part; the next begins with the last lines once more."""
    connections = [
        [("one\ntwö\nthree\n", 0), ("four\n", 15)],
        [("twö\nthree\nfour\nfive\n", 4), ("again\n", 0), ("more\n", 6)],
    ]

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for text, begin in connections.pop(0):
            part = {"text": text, "begin": begin, "end": begin + len(text.encode())}
            message = json.dumps({"data": {"instanceLog": part}})
            await response.write(f"event: next\ndata: {message}\n\n".encode())
        if not connections:
            await response.write(b"event: complete\ndata:\n\n")
        return response

    app = web.Application()
    app.router.add_post("/graphql", answer)
    async with TestServer(app) as server, AsyncPilotlight(str(server.make_url("")), "pl_any") as client:
        told = [part async for part in client.follow_log("inst_" + "0" * 32, tail=2)]

    assert told == ["twö\nthree\n", "four\n", "five\n", "again\n", "more\n"]
