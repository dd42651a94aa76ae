"""Limits of subscriptions: timeouts, sizes, counts, expiring tokens and a stopping process."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from server.graphql.service import GraphQLService
from tests.server.graphql.conftest import EVENTS, Raw, raw, serving_with, shown, write_events
from tests.support.api import Api
from tests.support.api_server import Server
from tests.support.waiting import until

Short = tuple[Server, GraphQLService]


@pytest.fixture
async def pinging(api: Api) -> AsyncIterator[Short]:
    """Pings each second; a client has so long to answer, which a busy one needs."""
    times = {"socket_ping_interval": timedelta(seconds=1), "socket_token_check": timedelta(milliseconds=100)}
    async with serving_with(api, **times) as server:
        yield server


async def test_a_client_without_connection_init_is_closed_with_the_protocols_code(api: Api):
    async with serving_with(api, socket_init_timeout=timedelta(seconds=1)) as (server, service):
        began = time.monotonic()
        async with raw(server) as socket:
            assert await socket.close_code() == 4408
        assert time.monotonic() - began >= 1
        await until(lambda: not service.connections.open)


async def test_a_quiet_client_is_pinged_and_stays_as_long_as_it_answers(api: Api, pinging: Short):
    server, service = pinging
    async with raw(server) as socket:
        await socket.greet(api.token)
        for _ in range(4):
            assert await socket.receive() == {"type": "ping"}
            await socket.say('{"type":"pong"}')
        assert len(service.connections.open) == 1


async def test_a_client_that_answers_no_ping_is_closed_with_a_code_for_reconnecting(api: Api, pinging: Short):
    server, service = pinging
    async with raw(server) as socket:
        await socket.greet(api.token)
        assert await socket.receive() == {"type": "ping"}
        assert await socket.close_code() == 1013
    await until(lambda: not service.connections.open)


@pytest.mark.parametrize("change", ["revoked_at = now()", "expires_at = now() - interval '1 second'"])
async def test_a_token_that_ends_takes_its_sockets_along_and_no_others(api: Api, pinging: Short, change: str):
    server, _ = pinging
    other, _ = await api.world.new_token()
    async with raw(server) as ending, raw(server) as staying:
        await ending.greet(api.token)
        await staying.greet(other)
        await api.world.execute(f"UPDATE token SET {change} WHERE id = '{api.caller.token_id}'")
        assert await ending.closes() == 4403
        assert (await staying.receive())["type"] == "ping"


async def test_a_token_expires_by_the_clock_without_another_lookup(api: Api):
    await api.world.execute(
        f"UPDATE token SET expires_at = now() + interval '1500 milliseconds' WHERE id = '{api.caller.token_id}'"
    )
    async with serving_with(api, socket_token_check=timedelta(hours=1)) as (server, _), raw(server) as socket:
        await socket.greet(api.token)
        assert await socket.closes() == 4403


async def test_all_tokens_of_a_project_share_its_sockets_and_operations(api: Api):
    other, _ = await api.world.new_token()
    async with (
        serving_with(api, sockets_per_project=2, operations_per_project=1) as (server, service),
        raw(server) as one,
        raw(server) as two,
        raw(server) as three,
    ):
        await one.greet(api.token)
        await two.greet(other)
        await three.send({"type": "connection_init", "payload": {"Authorization": f"Bearer {other}"}})
        assert await three.close_code() == 1013

        subscribe = {"id": "1", "type": "subscribe", "payload": {"query": EVENTS}}
        await one.send(subscribe)
        await until(lambda: service.connections.operations == 1)
        await two.send(subscribe)
        message = await two.receive()
        assert message["payload"][0]["extensions"]["code"] == "TOO_MANY_OPERATIONS"


async def test_a_token_has_so_many_sockets_and_no_more(api: Api, short: Short):
    server, service = short
    async with raw(server) as one, raw(server) as two, raw(server) as three, raw(server) as four:
        for socket in (one, two, three):
            await socket.greet(api.token)
        await four.send({"type": "connection_init", "payload": {"Authorization": f"Bearer {api.token}"}})
        assert await four.close_code() == 1013
        await one.connection.close()
        await until(lambda: len(service.connections.open) == 2)
        async with raw(server) as five:
            await five.greet(api.token)


async def test_a_socket_and_a_token_have_so_many_operations_and_no_more(api: Api, short: Short):
    server, service = short
    async with raw(server) as one, raw(server) as two:
        await one.greet(api.token)
        await two.greet(api.token)
        for number in range(4):
            await one.subscribe(id=str(number))
        assert await refused(one) == "TOO_MANY_OPERATIONS"  # four on this socket
        for number in range(2):
            await two.subscribe(id=str(number))
        assert await refused(two) == "TOO_MANY_OPERATIONS"  # six of this token
        await one.send({"id": "0", "type": "complete"})
        await two.subscribe("{ __typename }", id="again")
        assert (await said(two))["type"] == "next"
        assert (await said(two))["type"] == "complete"
    await until(lambda: service.connections.operations == 0)


async def test_a_process_has_so_many_sockets_and_refuses_the_handshake_of_more(api: Api):
    async with serving_with(api, sockets_per_process=2) as (server, _):
        async with raw(server), raw(server):
            with pytest.raises(InvalidStatus) as refusal:
                async with raw(server):
                    pass
        assert refusal.value.response.status_code == 503


async def test_a_message_has_so_many_bytes_and_no_more(api: Api, short: Short):
    server, _ = short
    async with raw(server) as socket:
        await socket.greet(api.token)
        await socket.subscribe("{ __typename }" + " " * 20_000)
        assert await socket.closes() == 1009


async def test_a_stopping_process_closes_subscriptions_and_resuming_misses_nothing(api: Api):
    async with serving_with(api) as (server, service), raw(server) as socket:
        await socket.greet(api.token)
        await socket.subscribe(id="1")
        await socket.settled()
        first = await write_events(api.world.database, api.caller.project_id, 3)
        seen = [await socket.next("instanceEvents") for _ in range(3)]
        stopping = asyncio.create_task(service.stop())
        assert await socket.closes() == 1012
        await stopping
        with pytest.raises(InvalidStatus) as refusal:
            async with raw(server):
                pass
        assert refusal.value.response.status_code == 503
    later = await write_events(api.world.database, api.caller.project_id, 3)
    async with api.server.watching(EVENTS, token=api.token, variables={"after": seen[-1]["cursor"]}) as socket:
        seen += [await socket.next("instanceEvents") for _ in range(3)]
    assert [each["id"] for each in seen] == shown(first + later)


async def test_a_change_that_was_begun_is_carried_through_while_the_process_stops(api: Api):
    create = """
        mutation { createInstance(input: {name: "last", productName: "RTX 4090 24GB", image: "nginx"}) {
          instance { name } errors { code } } }
    """
    async with serving_with(api) as (server, service), raw(server) as socket:
        await socket.greet(api.token)
        await socket.subscribe(create, id="m")
        await until(lambda: bool(service.connections.operations))
        stopping = asyncio.create_task(service.stop())
        answer = await socket.receive()
        assert answer["payload"]["data"]["createInstance"]["instance"] == {"name": "last"}
        assert await socket.closes() == 1012
        await stopping


async def said(socket: Raw) -> dict[str, Any]:
    """The next message that is not a ping; pings are answered."""
    while (message := await socket.receive()) == {"type": "ping"}:
        await socket.say('{"type":"pong"}')
    return message


async def refused(socket: Raw) -> str:
    """The code with which one more operation is refused."""
    await socket.subscribe("{ __typename }", id="more")
    message = await said(socket)
    assert message["type"] == "error", message
    return message["payload"][0]["extensions"]["code"]
