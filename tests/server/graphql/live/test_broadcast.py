"""Equal subscriptions share one execution, and each still gets every event once and in order."""

import asyncio
import gc
from contextlib import AsyncExitStack
from typing import Any

import psutil
import pytest

from server.enums import Role
from server.graphql.live import broadcast as broadcast_module
from server.graphql.live.source import SubscriptionExecution
from tests.server.graphql.conftest import EVENTS, Raw, picture, raw, serving_with, shown, write_events
from tests.support.api import Api
from tests.support.api_server import Server
from tests.support.waiting import until


@pytest.fixture
def executions(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """One entry for each execution of a message; the real one runs."""
    counted: list[object] = []
    execute = SubscriptionExecution.result_of

    async def result_of(self: SubscriptionExecution, item: object) -> Any:
        counted.append(item)
        return await execute(self, item)

    monkeypatch.setattr(SubscriptionExecution, "result_of", result_of)
    return counted


async def test_fifty_equal_subscriptions_cost_one_execution_per_event(api: Api, executions: list[object]):
    async with serving_with(api) as (server, service), AsyncExitStack() as stack:
        sockets = [await stack.enter_async_context(raw(server)) for _ in range(50)]
        for number, socket in enumerate(sockets):
            await socket.greet(api.token)
            await socket.subscribe(id=f"own-{number}")
            await socket.settled()
        assert (len(service.broadcasts), service.broadcasts.subscribers) == (1, 50)
        assert server.runtime.tail.subscribers == 1

        written = await write_events(api.world.database, api.caller.project_id, 4)
        for number, socket in enumerate(sockets):
            for id in shown(written):
                message = await socket.receive()
                assert message["id"] == f"own-{number}"
                assert message["payload"]["data"]["instanceEvents"]["id"] == id
        assert len(executions) == 4
    assert (len(service.broadcasts), service.broadcasts.subscribers) == (0, 0)


async def test_another_project_role_selection_name_or_variable_is_another_broadcast(api: Api):
    reader, _ = await api.world.new_token(role=Role.READER)
    stranger, stranger_caller = await api.world.new_token("elsewhere")
    other = "subscription Other { instanceEvents { id } }"
    async with serving_with(api) as (server, service), AsyncExitStack() as stack:

        async def watch(token: str, document: str = EVENTS, **variables: Any) -> Raw:
            socket = await stack.enter_async_context(raw(server))
            await socket.greet(token)
            await socket.subscribe(document, **variables)
            await socket.settled()
            return socket

        mine = await watch(api.token)
        theirs = await watch(stranger)
        sizes = [len(service.broadcasts)]
        for token, document, variables in (
            (api.token, EVENTS, {}),  # the same
            (api.token, EVENTS, {"after": server.head_cursor()}),  # the same from elsewhere
            (reader, EVENTS, {}),
            (api.token, other, {}),
            (api.token, EVENTS, {"filter": {"types": ["instance.changed"]}}),
        ):
            await watch(token, document, **variables)
            sizes.append(len(service.broadcasts))
        assert sizes == [2, 2, 2, 3, 4, 5]

        await write_events(api.world.database, stranger_caller.project_id)
        written = await write_events(api.world.database, api.caller.project_id)
        assert (await mine.next("instanceEvents"))["id"] == shown(written)[0]
        assert await mine.is_silent()
        assert (await theirs.next("instanceEvents"))["id"] != shown(written)[0]


async def test_a_resumed_subscriber_gets_the_rest_once_and_joins_the_others(api: Api):
    start = api.server.head_cursor()
    written = await write_events(api.world.database, api.caller.project_id, 30)
    async with serving_with(api) as (server, service), AsyncExitStack() as stack:
        whole = await read(server, api.token, start, 30)
        assert [event["id"] for event in whole] == shown(written)
        for place in (0, 10, 28, 29):
            socket = await stack.enter_async_context(raw(server))
            await socket.greet(api.token)
            await socket.subscribe(after=whole[place]["cursor"])
            rest = [(await socket.next("instanceEvents"))["id"] for _ in whole[place + 1 :]]
            assert rest == shown(written[place + 1 :])
        await until(lambda: server.runtime.tail.subscribers == 1)  # all of them are live in one broadcast
        assert len(service.broadcasts) == 1


async def test_events_during_a_catch_up_are_neither_lost_nor_duplicated(api: Api):
    start = api.server.head_cursor()
    past = await write_events(api.world.database, api.caller.project_id, 40)
    async with serving_with(api) as (server, _), AsyncExitStack() as stack:
        sockets: list[Raw] = []
        writing = asyncio.create_task(write_events(api.world.database, api.caller.project_id, 60))
        for _ in range(10):
            socket = await stack.enter_async_context(raw(server))
            await socket.greet(api.token)
            await socket.subscribe(after=start)
            sockets.append(socket)
        expected = shown(past + await writing)
        for socket in sockets:
            assert [(await socket.next("instanceEvents"))["id"] for _ in expected] == expected
        assert all(await asyncio.gather(*(socket.is_silent() for socket in sockets)))


async def test_old_messages_are_not_served_again_as_news_of_now(api: Api, executions: list[object]):
    """A message may show things as they are now: who resumes long after gets it made anew."""
    async with serving_with(api) as (server, _), raw(server) as first, raw(server) as second:
        await first.greet(api.token)
        await second.greet(api.token)
        start = server.head_cursor()
        await first.subscribe()
        await first.settled()
        await write_events(api.world.database, api.caller.project_id)
        await first.next("instanceEvents")
        for fresh_for, made in ((1000.0, 1), (-1.0, 2)):
            broadcast_module.WINDOW_TTL = fresh_for
            try:
                await second.subscribe(id=str(made), after=start)
                await second.next("instanceEvents")
            finally:
                broadcast_module.WINDOW_TTL = 30.0
            assert len(executions) == made


async def test_a_stalled_subscriber_costs_little_slows_no_other_and_can_resume(api: Api):
    """Two hundred large events, more than any buffer of the operating system on the way."""
    async with serving_with(api) as (server, service), raw(server, max_queue=1) as slow, raw(server) as quick:
        await slow.greet(api.token)
        await quick.greet(api.token)
        document = "subscription { instanceEvents { id type cursor instanceSnapshot { image } } }"
        for socket in (slow, quick):
            await socket.subscribe(document)
            await socket.settled()
        row = await api.world.put()
        data = {"instance": {**await picture(api, row.id), "image": "x" * 100_000}}
        process = psutil.Process()
        gc.collect()
        before = process.memory_info().rss
        written = []
        slow.connection.transport.pause_reading()
        for _ in range(20):
            written += await write_events(api.world.database, api.caller.project_id, 10, data=data, instance_id=row.id)
            for id in shown(written[-10:]):
                assert (await quick.next("instanceEvents"))["id"] == id
        (full,) = [each.transport for each in service.connections.open if each.transport.is_full]  # pyright: ignore[reportAttributeAccessIssue]
        assert full.transport.get_write_buffer_size() < 1_000_000  # of the 20 MB that it has not read
        assert process.memory_info().rss - before < 150_000_000
        slow.connection.transport.resume_reading()
        for id in shown(written):
            assert (await slow.next("instanceEvents"))["id"] == id
        assert await slow.is_silent()
        after = await write_events(api.world.database, api.caller.project_id)
        for socket in (slow, quick):
            assert (await socket.next("instanceEvents"))["id"] == shown(after)[0]


@pytest.mark.slow
async def test_connecting_and_disconnecting_leaves_nothing_behind(api: Api):
    """Clean and abrupt, in the middle of everything; see `bench.live --cycles` for ten thousand."""
    async with serving_with(api, sockets_per_token=2000) as (server, service):
        await cycles(server, api.token, 100)
        await until(lambda: not service.connections.open)
        gc.collect()
        tasks, memory = len(asyncio.all_tasks()), psutil.Process().memory_info().rss
        await cycles(server, api.token, 600)
        await until(lambda: not service.connections.open)
        gc.collect()
        assert (
            len(service.broadcasts),
            service.broadcasts.subscribers,
            service.connections.operations,
            service.connections.tokens(),
        ) == (0, 0, 0, [])
        assert server.runtime.tail.subscribers == 0
        await until(lambda: len(asyncio.all_tasks()) <= tasks)
        assert psutil.Process().memory_info().rss - memory < 20_000_000


async def cycles(server: Server, token: str, times: int) -> None:
    start = server.head_cursor()

    async def one(number: int) -> None:
        async with raw(server) as socket:
            if number % 5 == 0:
                return
            await socket.greet(token)
            await socket.subscribe(id="1", **({"after": start} if number % 2 else {}))
            await socket.subscribe("{ __typename }", id="2")
            if number % 3 == 0:
                await socket.send({"id": "1", "type": "complete"})
            if number % 4 == 0:
                socket.connection.transport.abort()
            elif number % 4 == 1:
                while (await socket.receive())["type"] != "complete":
                    pass

    for batch in range(0, times, 20):
        await asyncio.gather(*(one(number) for number in range(batch, batch + 20)))


async def read(server: Server, token: str, after: str, count: int) -> list[dict[str, Any]]:
    async with raw(server) as socket:
        await socket.greet(token)
        await socket.subscribe(after=after)
        return [await socket.next("instanceEvents") for _ in range(count)]
