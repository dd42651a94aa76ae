"""Server-sent events: the same subscriptions over one HTTP response."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import aiohttp
import pytest

from server.graphql.service import GraphQLService
from tests.server.graphql.conftest import EVENTS, picture, serving_with, shown, write_events
from tests.support.api import Api
from tests.support.api_server import Server
from tests.support.waiting import until
from tests.support.world import WITHIN


class Stream:
    """A response, read event by event."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def block(self) -> dict[str, str]:
        """The fields of the next event; a comment has none."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(WITHIN):
            while line := (await self.response.content.readline()).decode():
                if line == "\n":
                    return fields
                name, _, value = line.rstrip("\n").partition(":")
                if name:
                    fields[name] = value.removeprefix(" ")
        raise EOFError

    async def next(self) -> tuple[str | None, dict[str, Any]]:
        """The id and the result of the next message."""
        block = await self.block()
        assert block["event"] == "next", block
        return block.get("id"), json.loads(block["data"])

    async def event(self) -> dict[str, Any]:
        id, result = await self.next()
        found = result["data"]["instanceEvents"]
        assert id == found["cursor"]
        return found

    async def ends(self) -> bool:
        """Whether it is over without a word more."""
        try:
            while not await self.block():
                pass
        except EOFError:
            return True
        return False


@asynccontextmanager
async def stream(
    server: Server, token: str | None, document: str = EVENTS, *, last: str | None = None, **variables: Any
) -> AsyncIterator[Stream]:
    headers = {"accept": "text/event-stream"}
    headers |= {"authorization": f"Bearer {token}"} if token else {}
    headers |= {"last-event-id": last} if last else {}
    body = {"query": document, "variables": variables}
    async with server.http.post(f"http://{server.address}/graphql", json=body, headers=headers) as response:
        yield Stream(response)


async def test_events_come_with_their_cursor_as_id_and_a_reader_resumes_by_it(api: Api):
    start = api.server.head_cursor()
    written = await write_events(api.world.database, api.caller.project_id, 4)
    async with stream(api.server, api.token, after=start) as events:
        assert events.response.status == 200
        assert events.response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert events.response.headers["cache-control"].startswith("no-cache")
        seen = [await events.event() for _ in range(2)]
    # What the client remembers goes before what the document says.
    async with stream(api.server, api.token, last=seen[-1]["cursor"], after=start) as events:
        seen += [await events.event() for _ in range(2)]
        written += await write_events(api.world.database, api.caller.project_id, 2)
        seen += [await events.event() for _ in range(2)]
    assert [event["id"] for event in seen] == shown(written)
    await until(lambda: api.server.runtime.tail.subscribers == 0)


async def test_it_works_with_curl(api: Api):
    start = api.server.head_cursor()
    written = await write_events(api.world.database, api.caller.project_id, 2)
    query = f'subscription {{ instanceEvents(after: "{start}") {{ id cursor }} }}'
    curl = await asyncio.create_subprocess_exec(
        "curl", "-sN", f"http://{api.server.address}/graphql",
        "-H", f"authorization: Bearer {api.token}", "-H", "accept: text/event-stream",
        "-H", "content-type: application/json", "-d", json.dumps({"query": query}),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert curl.stdout is not None
    try:
        async with asyncio.timeout(WITHIN):
            lines = [(await curl.stdout.readline()).decode().rstrip() for _ in range(8)]
    finally:
        curl.kill()
        await curl.wait()
    assert [line.partition(":")[0] for line in lines] == ["id", "event", "data", ""] * 2
    sent = [json.loads(line.removeprefix("data: "))["data"]["instanceEvents"] for line in lines if "data" in line]
    assert [each["id"] for each in sent] == shown(written)
    assert lines[0] == f"id: {sent[0]['cursor']}"


async def test_a_get_can_watch_as_browsers_do(api: Api):
    start = api.server.head_cursor()
    (written,) = await write_events(api.world.database, api.caller.project_id)
    headers = {"accept": "text/event-stream", "authorization": f"Bearer {api.token}"}
    given = {"query": EVENTS, "variables": json.dumps({"after": start})}
    async with api.server.http.get(f"http://{api.server.address}/graphql", params=given, headers=headers) as response:
        assert (await Stream(response).event())["id"] == shown([written])[0]


async def test_streams_and_sockets_share_a_broadcast(api: Api):
    async with serving_with(api) as (server, service):
        async with stream(server, api.token) as events, server.watching(EVENTS, token=api.token) as socket:
            await until(lambda: service.broadcasts.subscribers == 2)
            assert len(service.broadcasts) == 1
            (written,) = await write_events(api.world.database, api.caller.project_id)
            assert await events.event() == await socket.next("instanceEvents")
            assert service.connections.operations == 2
        await until(lambda: service.connections.operations == 0)
        assert written


async def test_a_query_and_a_subscription_that_ends_are_completed(api: Api):
    async with stream(api.server, api.token, "{ __typename }") as events:
        id, answer = await events.next()
        assert (id, answer["data"]) == (None, {"__typename": "Query"})
        assert await events.block() == {"event": "complete", "data": ""}
        assert await events.ends()


@pytest.mark.parametrize(
    ("document", "variables", "code"),
    [
        ("subscription {", {}, "BAD_REQUEST"),
        ("subscription { nothing }", {}, "BAD_REQUEST"),
        (EVENTS, {"after": "nonsense"}, "INVALID_CURSOR"),
        (EVENTS, {"after": 7}, "BAD_REQUEST"),
        ('subscription { instanceUpdated(id: "inst_x") { cursor } }', {}, "INSTANCE_NOT_FOUND"),
    ],
)
async def test_errors_are_sent_inside_the_stream(api: Api, document: str, variables: Any, code: str):
    async with stream(api.server, api.token, document, **variables) as events:
        assert events.response.status == 200
        _, result = await events.next()
        assert result["errors"][0]["extensions"]["code"] == code
        assert await events.block() == {"event": "complete", "data": ""}


@pytest.mark.parametrize(
    ("raw", "media_type", "status"),
    [
        (b"{", "application/json", 400),
        (b"[]", "application/json", 400),
        (b"null", "application/json", 400),
        (b"{}", "application/json", 400),
        (b'{"query": 7}', "application/json", 400),
        (b'{"query": "{ __typename }", "variables": []}', "application/json", 400),
        (b'{"query": "{ __typename }"}', "text/plain", 415),
        (b'{"query": "' + b" " * 300_000 + b'"}', "application/json", 413),
    ],
)
async def test_what_is_no_request_gets_no_stream(api: Api, raw: bytes, media_type: str, status: int):
    headers = {"accept": "text/event-stream", "authorization": f"Bearer {api.token}", "content-type": media_type}
    async with api.server.http.post(f"http://{api.server.address}/graphql", data=raw, headers=headers) as response:
        assert response.status == status


async def test_without_a_token_there_is_no_stream(api: Api):
    async with stream(api.server, None) as events:
        assert events.response.status == 401


async def test_a_get_changes_nothing(api: Api):
    headers = {"accept": "text/event-stream", "authorization": f"Bearer {api.token}"}
    given = {"query": 'mutation { deleteInstance(input: {id: "x"}) { errors { code } } }'}
    async with api.server.http.get(f"http://{api.server.address}/graphql", params=given, headers=headers) as response:
        assert response.status == 405


async def test_a_quiet_stream_has_a_heartbeat(api: Api):
    async with (
        serving_with(api, socket_ping_interval=timedelta(milliseconds=200)) as (server, _),
        stream(server, api.token) as events,
    ):
        assert [await events.block() for _ in range(3)] == [{}, {}, {}]


async def test_a_revoked_token_and_a_process_that_stops_end_a_stream_without_completing_it(
    api: Api, short: tuple[Server, GraphQLService]
):
    server, service = short
    other, _ = await api.world.new_token()
    async with stream(server, api.token) as ending, stream(server, other) as staying:
        await api.world.execute(f"UPDATE token SET revoked_at = now() WHERE id = '{api.caller.token_id}'")
        assert await ending.ends()
        assert len(service.connections.open) == 1
        await service.stop()
        assert await staying.ends()


async def test_streams_count_as_sockets_of_their_token(api: Api, short: tuple[Server, GraphQLService]):
    server, _ = short
    async with (
        stream(server, api.token),
        stream(server, api.token),
        stream(server, api.token),
        stream(server, api.token) as fourth,
    ):
        assert fourth.response.status == 429


async def test_a_stalled_stream_stays_small_and_continues_where_it_was(api: Api):
    row = await api.world.put()
    data = {"instance": {**await picture(api, row.id), "image": "x" * 100_000}}
    document = "subscription { instanceEvents { id cursor instanceSnapshot { image } } }"
    async with serving_with(api) as (server, service), stream(server, api.token, document) as events:
        await until(lambda: service.broadcasts.subscribers == 1)
        transport = events.response.connection.transport  # pyright: ignore[reportOptionalMemberAccess]
        transport.pause_reading()  # pyright: ignore[reportOptionalMemberAccess]
        written = await write_events(api.world.database, api.caller.project_id, 150, data=data, instance_id=row.id)
        (waiting,) = service.connections.open
        await until(lambda: waiting.is_full)  # pyright: ignore[reportAttributeAccessIssue]
        assert waiting._bytes < 300_000  # of 15 MB  # pyright: ignore[reportAttributeAccessIssue]
        transport.resume_reading()  # pyright: ignore[reportOptionalMemberAccess]
        assert [(await events.event())["id"] for _ in written] == shown(written)
