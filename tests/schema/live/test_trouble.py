"""When the log, the database or an event is not as it should be, watchers are told; nothing is left out in silence."""

import asyncio
from dataclasses import fields
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from schema.context import Context, Services
from schema.documents import documents as documents_module
from schema.documents.core import core_of
from schema.documents.document import Document
from schema.documents.documents import Documents
from schema.ids import NOBODY
from schema.root import schema
from server.auth.caller import Caller
from server.errors import CursorExpired
from server.words import InstanceStatus
from tests.schema.conftest import Api
from tests.schema.live.conftest import EVENTS, announce, picture, raw, serving_with, shown
from tests.world import until

WHOLE = """
    subscription ($id: ID!, $after: String, $deep: Boolean!) {
      instanceEvents(after: $after, filter: {ids: [$id]}) {
        __typename id cursor type occurredAt previousStatus status causedBy { id name }
        again: type
        instance {
          ...Part labels { key value } ports { port type }
          operations(first: 2) @include(if: $deep) { id kind }
        }
        operation { id status attempts { number } }
      }
    }
    fragment Part on Instance { id name status version pricePerHour { amountMicros currency } failure { code } }
"""


async def test_an_event_that_nobody_can_read_is_told_as_an_error_in_its_place(api: Api):
    start = str(api.server.runtime.tail.head())
    first = await announce(api.world.database, api.caller.project_id)
    await announce(api.world.database, api.caller.project_id, data={"to": "A_STATUS_OF_TOMORROW"})
    last = await announce(api.world.database, api.caller.project_id)
    async with api.server.watching(EVENTS, token=api.token, variables={"after": start}) as socket:
        assert (await socket.next("instanceEvents"))["id"] == shown(first)[0]
        message = await socket.receive()
        assert (message["type"], message["payload"]["data"]) == ("next", None)
        (error,) = message["payload"]["errors"]
        assert (error["message"], error["extensions"]["code"]) == ("Something went wrong on our side.", "INTERNAL")
        assert (await socket.next("instanceEvents"))["id"] == shown(last)[0]


async def test_watchers_of_a_log_that_is_another_now_are_told_that_their_cursor_has_expired(api: Api):
    async with serving_with(api) as (server, hub), raw(server) as socket:
        await socket.greet(api.token)
        await socket.subscribe()
        await socket.settled()
        server.runtime.tail._fail_all(CursorExpired())  # as it does when it finds another epoch
        assert (await socket.error())["code"] == "CURSOR_EXPIRED"
        await until(lambda: len(hub.cohorts) == 0)
        # And whoever comes now is served by a new cohort.
        await socket.subscribe(id="2")
        await socket.settled()
        (written,) = await announce(api.world.database, api.caller.project_id)
        assert (await socket.next("instanceEvents"))["id"] == shown([written])[0]


async def test_a_process_that_no_longer_follows_the_log_tells_its_watchers_to_resume(api: Api):
    async with serving_with(api) as (server, _), raw(server) as socket:
        await socket.greet(api.token)
        await socket.subscribe()
        await socket.settled()
        await server.runtime.tail.stop()
        error = await socket.error()
        assert (error["code"], error["retryable"]) == ("RESUME", True)


async def test_without_a_database_a_newcomer_is_told_to_try_again_and_watchers_stay(api: Api):
    async with serving_with(api) as (server, _), raw(server) as watcher, raw(server) as newcomer:
        await watcher.greet(api.token)
        await watcher.subscribe()
        await watcher.settled()
        other, _ = await api.world.new_token()
        database = server.runtime.tokens._database
        reading = database.read

        def away() -> Any:
            raise ConnectionRefusedError("no database")

        database.read = away  # pyright: ignore[reportAttributeAccessIssue]
        try:
            await newcomer.send({"type": "connection_init", "payload": {"Authorization": f"Bearer {other}"}})
            assert await newcomer.close_code() == 1013
        finally:
            database.read = reading
        (written,) = await announce(api.world.database, api.caller.project_id)
        assert (await watcher.next("instanceEvents"))["id"] == shown([written])[0]


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


async def test_a_cohort_answers_exactly_as_the_library_would(api: Api):
    row = await api.world.put(InstanceStatus.READY, price_per_hour_e5=35_000, labels={"team": "vision"})
    data = {"from": "HEALTH_CHECKING", "to": "READY", "instance": await picture(api, row.id)}
    start = str(api.server.runtime.tail.head())
    for each in (data, {}, {"to": "NO_SUCH_STATUS"}, {**data, "from": None}):
        await announce(api.world.database, api.caller.project_id, data=each, instance_id=row.id)
    runtime = api.server.runtime
    services = Services(**{field.name: getattr(runtime, field.name) for field in fields(Services)})
    for deep in (True, False):
        variables = {"id": f"inst_{row.id.hex}", "after": start, "deep": deep}
        async with api.server.watching(WHOLE, token=api.token, variables=variables) as socket:
            ours = [(await socket.receive())["payload"] for _ in range(4)]
        context = Context(services, request_id="x", is_socket=True)
        context.admit(Caller(project_id=api.caller.project_id, token_id=NOBODY, role=api.caller.role))
        stock = await schema.subscribe(WHOLE, variable_values=variables, context_value=context)
        async with asyncio.timeout(20):
            theirs = [await anext(stock) for _ in range(4)]  # pyright: ignore[reportArgumentType]
        await stock.aclose()  # pyright: ignore[reportAttributeAccessIssue]
        assert [each["data"] for each in ours] == [each.data for each in theirs]
        assert [bool(each.get("errors")) for each in ours] == [bool(each.errors) for each in theirs]


def test_checked_documents_are_kept_up_to_so_many_tokens(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(documents_module, "MOST_KEPT", 30)
    kept = Documents(core_of(schema))
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
    document = Documents(core_of(schema)).read(text)
    assert isinstance(document, Document)
    assert document.operation(None).after == after
