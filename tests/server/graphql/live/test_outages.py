"""Subscribers get an error when the log, the database or an event fails; nothing is dropped silently."""

import asyncio
from dataclasses import fields
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from schema.context import Context, Services
from schema.ids import UNUSED_ID
from schema.root import schema
from server.auth.caller import Caller
from server.enums import InstanceStatus
from server.errors import CursorExpired
from server.graphql.documents import store as documents_module
from server.graphql.documents.core_types import core_of
from server.graphql.documents.document import Document
from server.graphql.documents.store import DocumentStore
from tests.server.graphql.conftest import EVENTS, picture, raw, serving_with, shown, write_events
from tests.support.api import Api
from tests.support.waiting import until

WHOLE = """
    subscription ($id: ID!, $after: String, $deep: Boolean!) {
      instanceEvents(after: $after, filter: {ids: [$id]}) {
        __typename id cursor type occurredAt previousStatus status causedBy { id name }
        again: type
        instanceSnapshot { instanceId ...Past labels { key value } ports { port type } }
        instance {
          ...Part labels { key value } ports { port type }
          operations(first: 2) @include(if: $deep) { id kind }
        }
        operation { id status attempts { number } }
        operationSnapshot { operationId status }
      }
    }
    fragment Past on InstanceSnapshot { name status version pricePerHour { amountMicros currency } failure { code } }
    fragment Part on Instance { id name status version pricePerHour { amountMicros currency } failure { code } }
"""


async def test_an_unreadable_event_is_an_error_in_its_place(api: Api):
    start = api.server.head_cursor()
    first = await write_events(api.world.database, api.caller.project_id)
    await write_events(api.world.database, api.caller.project_id, data={"to": "A_STATUS_OF_TOMORROW"})
    last = await write_events(api.world.database, api.caller.project_id)
    async with api.server.watching(EVENTS, token=api.token, variables={"after": start}) as socket:
        assert (await socket.next("instanceEvents"))["id"] == shown(first)[0]
        message = await socket.receive()
        assert (message["type"], message["payload"]["data"]) == ("next", None)
        (error,) = message["payload"]["errors"]
        assert (error["message"], error["extensions"]["code"]) == ("Something went wrong on our side.", "INTERNAL")
        assert (await socket.next("instanceEvents"))["id"] == shown(last)[0]


async def test_subscribers_of_a_replaced_log_get_cursor_expired(api: Api):
    async with serving_with(api) as (server, service), raw(server) as socket:
        await socket.greet(api.token)
        await socket.subscribe()
        await socket.settled()
        server.runtime.tail._fail_all(CursorExpired())  # as it does when it finds another epoch
        assert (await socket.error())["code"] == "CURSOR_EXPIRED"
        await until(lambda: len(service.broadcasts) == 0)
        # A new subscription is served by a new broadcast.
        await socket.subscribe(id="2")
        await socket.settled()
        (written,) = await write_events(api.world.database, api.caller.project_id)
        assert (await socket.next("instanceEvents"))["id"] == shown([written])[0]


async def test_a_process_that_stops_tailing_sends_its_subscribers_resume(api: Api):
    async with serving_with(api) as (server, _), raw(server) as socket:
        await socket.greet(api.token)
        await socket.subscribe()
        await socket.settled()
        await server.runtime.tail.stop()
        error = await socket.error()
        assert (error["code"], error["retryable"]) == ("RESUME", True)


async def test_without_a_database_new_connections_are_refused_and_old_ones_stay(api: Api):
    async with serving_with(api) as (server, _), raw(server) as subscriber, raw(server) as newcomer:
        await subscriber.greet(api.token)
        await subscriber.subscribe()
        await subscriber.settled()
        other, _ = await api.world.new_token()
        database = server.runtime.tokens._database
        reading = database.read

        def away() -> Any:
            raise ConnectionRefusedError("no database")

        taking = database.raw.take
        database.read = away  # pyright: ignore[reportAttributeAccessIssue]
        database.raw.take = away  # pyright: ignore[reportAttributeAccessIssue]
        try:
            await newcomer.send({"type": "connection_init", "payload": {"Authorization": f"Bearer {other}"}})
            assert await newcomer.close_code() == 1013
        finally:
            database.read, database.raw.take = reading, taking
        (written,) = await write_events(api.world.database, api.caller.project_id)
        assert (await subscriber.next("instanceEvents"))["id"] == shown([written])[0]


async def test_only_pages_of_allowed_origins_get_a_socket(api: Api):
    async with serving_with(api, allowed_origins=("https://console.example",)) as (server, _):
        for origin in ("https://console.example", f"http://{server.address}"):
            async with raw(server, origin=origin) as socket:
                await socket.greet(api.token)
        for origin in (
            "https://evil.example",
            "null",
            "https://console.example.evil.example",
            "http://console.example",
        ):
            with pytest.raises(InvalidStatus) as refusal:
                async with raw(server, origin=origin):
                    pass
            assert refusal.value.response.status_code == 403


async def test_a_broadcast_sends_exactly_what_the_library_would(api: Api):
    row = await api.world.put(InstanceStatus.READY, price_per_hour_e5=35_000, labels={"team": "vision"})
    data = {"from": "HEALTH_CHECKING", "to": "READY", "instance": await picture(api, row.id)}
    start = api.server.head_cursor()
    for each in (data, {}, {"to": "NO_SUCH_STATUS"}, {**data, "from": None}):
        await write_events(api.world.database, api.caller.project_id, data=each, instance_id=row.id)
    runtime = api.server.runtime
    services = Services(**{field.name: getattr(runtime, field.name) for field in fields(Services)})
    for deep in (True, False):
        variables = {"id": f"inst_{row.id.hex}", "after": start, "deep": deep}
        async with api.server.watching(WHOLE, token=api.token, variables=variables) as socket:
            ours = [(await socket.receive())["payload"] for _ in range(4)]
        context = Context(services, request_id="x", is_socket=True)
        context.admit(Caller(project_id=api.caller.project_id, token_id=UNUSED_ID, role=api.caller.role))
        library = await schema.subscribe(WHOLE, variable_values=variables, context_value=context)
        async with asyncio.timeout(20):
            theirs = [await anext(library) for _ in range(4)]  # pyright: ignore[reportArgumentType]
        await library.aclose()  # pyright: ignore[reportAttributeAccessIssue]
        assert [each["data"] for each in ours] == [each.data for each in theirs]
        assert [bool(each.get("errors")) for each in ours] == [bool(each.errors) for each in theirs]


def test_checked_documents_are_kept_up_to_so_many_tokens(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(documents_module, "MAX_WEIGHT", 30)
    kept = DocumentStore(core_of(schema))
    texts = [f"query Q{number} {{ __typename }}" + " " * 200 for number in range(20)]
    for text in texts:
        assert isinstance(kept.read(text), Document)
    assert len(kept) == 30 // 7  # five tokens, and two for the characters
    assert kept.read(texts[-1]) is kept.read(texts[-1])
    assert not isinstance(kept.read("{ nothing }"), Document)
    assert len(kept) == 30 // 7  # five tokens, and two for the characters


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("subscription ($a: String) { instanceEvents(after: $a) { id } }", "a"),
        ("subscription ($a: String = null) { instanceEvents(after: $a) { id } }", None),  # it may begin elsewhere
        ("subscription { instanceEvents { id } }", None),
        ('subscription { instanceEvents(after: "x") { id } }', None),
        ("subscription ($a: String) { ...F } fragment F on Subscription { instanceEvents(after: $a) { id } }", None),
        ("query ($a: String) { events(after: $a) { nodes { id } } }", None),
    ],
)
def test_the_variable_that_only_tells_where_to_begin_is_known(text: str, after: str | None):
    document = DocumentStore(core_of(schema)).read(text)
    assert isinstance(document, Document)
    assert document.operation(None).after == after
