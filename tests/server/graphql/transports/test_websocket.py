"""graphql-transport-ws frame by frame: accepted messages and close codes."""

import asyncio
import time
from typing import Any

import pytest

from tests.server.graphql.conftest import parse, raw, shown, write_events
from tests.support.api import Api

DEEP = '{"type":"ping","payload":' + '{"a":' * 5000 + "1" + "}" * 5000 + "}"
BAD_SHAPES = [
    "",
    "nonsense",
    "[]",
    '[{"type":"ping"}]',
    "null",
    "42",
    '"ping"',
    "true",
    "{}",
    '{"type":null}',
    '{"type":7}',
    '{"type":["ping"]}',
    '{"type":"nobody"}',
    '{"type":"connection_ack"}',
    '{"type":"next","id":"1","payload":{}}',
    '{"type":"error","id":"1","payload":[]}',
    '{"type":"connection_init","payload":7}',
    '{"type":"connection_init","payload":[]}',
    '{"type":"ping","payload":"x"}',
    '{"type":"ping","payload":[]}',
    '{"type":"pong","payload":true}',
    DEEP,
]
BAD_REQUESTS: list[dict[str, Any]] = [
    {"payload": {"query": "{ __typename }"}},
    {"id": 1, "payload": {"query": "{ __typename }"}},
    {"id": None, "payload": {"query": "{ __typename }"}},
    {"id": "", "payload": {"query": "{ __typename }"}},
    {"id": ["1"], "payload": {"query": "{ __typename }"}},
    {"id": "x" * 129, "payload": {"query": "{ __typename }"}},
    {"id": "1"},
    {"id": "1", "payload": None},
    {"id": "1", "payload": []},
    {"id": "1", "payload": "{ __typename }"},
    {"id": "1", "payload": {}},
    {"id": "1", "payload": {"query": None}},
    {"id": "1", "payload": {"query": 7}},
    {"id": "1", "payload": {"query": ""}},
    {"id": "1", "payload": {"query": "{ __typename }", "operationName": 7}},
    {"id": "1", "payload": {"query": "{ __typename }", "variables": []}},
    {"id": "1", "payload": {"query": "{ __typename }", "variables": "x"}},
    {"id": "1", "payload": {"query": "{ __typename }", "extensions": []}},
    {"id": "1", "payload": {"query": "{ __typename }", "extensions": 7}},
]


@pytest.mark.parametrize("text", BAD_SHAPES, ids=lambda text: text[:40] or "empty")
async def test_what_is_no_message_closes_the_socket_as_a_bad_request(api: Api, text: str):
    for is_greeted in (False, True):
        async with raw(api.server) as socket:
            if is_greeted:
                await socket.greet(api.token)
            await socket.say(text)
            assert await socket.close_code() == 4400


@pytest.mark.parametrize("fields", BAD_REQUESTS, ids=lambda fields: str(fields)[:60])
async def test_a_request_of_wrong_types_closes_the_socket_as_a_bad_request(api: Api, fields: dict[str, Any]):
    async with raw(api.server) as socket:
        await socket.greet(api.token)
        await socket.send({"type": "subscribe", **fields})
        assert await socket.close_code() == 4400


async def test_variables_that_are_nested_without_end_are_a_bad_request(api: Api):
    nested = '{"a":' * 500 + "1" + "}" * 500
    async with raw(api.server) as socket:
        await socket.greet(api.token)
        await socket.say(
            '{"id":"1","type":"subscribe","payload":{"query":"{ __typename }","variables":' + nested + "}}"
        )
        assert await socket.close_code() == 4400


async def test_a_binary_message_closes_the_socket_as_a_bad_request(api: Api):
    async with raw(api.server) as socket:
        await socket.say(b'{"type":"ping"}')
        assert await socket.close_code() == 4400


async def test_a_message_in_fragments_is_one_message(api: Api):
    async with raw(api.server) as socket:
        await socket.connection.send(iter(['{"type"', ':"pi', 'ng"}']))
        assert await socket.receive() == {"type": "pong"}


@pytest.mark.parametrize("protocols", [[], ["graphql-ws"], ["soap", "graphql-ws"]])
async def test_another_subprotocol_is_refused_with_a_close_code(api: Api, protocols: list[str]):
    async with raw(api.server, protocols=protocols) as socket:
        assert await socket.close_code() == 4406


async def test_our_protocol_is_chosen_among_several(api: Api):
    async with raw(api.server, protocols=["graphql-ws", "graphql-transport-ws"]) as socket:
        assert socket.connection.subprotocol == "graphql-transport-ws"
        await socket.greet(api.token)


async def test_a_subscribe_before_connection_init_is_unauthorized(api: Api):
    async with raw(api.server) as socket:
        await socket.subscribe("{ __typename }")
        assert await socket.close_code() == 4401


async def test_a_token_in_the_header_is_not_enough_without_the_introduction(api: Api):
    async with raw(api.server, additional_headers={"authorization": f"Bearer {api.token}"}) as socket:
        await socket.subscribe("{ __typename }")
        assert await socket.close_code() == 4401


@pytest.mark.parametrize(
    "payload", [None, {}, {"Authorization": "pl_x"}, {"Authorization": 7}, {"authorization": "Bearer "}]
)
async def test_an_introduction_without_a_good_token_is_forbidden(api: Api, payload: Any):
    async with raw(api.server) as socket:
        await socket.send({"type": "connection_init", "payload": payload})
        assert await socket.close_code() == 4403


async def test_a_bad_token_in_the_introduction_is_not_saved_by_a_good_one_in_the_header(api: Api):
    async with raw(api.server, additional_headers={"authorization": f"Bearer {api.token}"}) as socket:
        await socket.send({"type": "connection_init", "payload": {"Authorization": "Bearer pl_wrong"}})
        assert await socket.close_code() == 4403


@pytest.mark.parametrize("is_acknowledged", [True, False])
async def test_a_second_introduction_is_one_too_many(api: Api, is_acknowledged: bool):
    greeting = {"type": "connection_init", "payload": {"Authorization": f"Bearer {api.token}"}}
    async with raw(api.server) as socket:
        await socket.send(greeting)
        if is_acknowledged:
            await socket.receive()
        await socket.send(greeting)
        assert await socket.closes() == 4429


async def test_pings_are_answered_with_their_payload_also_before_the_introduction(api: Api):
    async with raw(api.server) as socket:
        await socket.say('{"type":"ping"}')
        assert await socket.receive() == {"type": "pong"}
        await socket.say('{"type":"ping","payload":{"at":1}}')
        assert await socket.receive() == {"type": "pong", "payload": {"at": 1}}
        await socket.say('{"type":"pong"}')
        await socket.greet(api.token)


async def test_an_id_in_use_closes_the_socket_and_one_that_is_free_again_does_not(api: Api):
    async with raw(api.server) as socket:
        await socket.greet(api.token)
        await socket.subscribe(id="1")
        await socket.send({"id": "1", "type": "complete"})
        await socket.subscribe(id="1")
        await socket.settled()
        await socket.subscribe(id="1")
        assert await socket.close_code() == 4409
        assert socket.connection.close_reason == "Subscriber for 1 already exists"


@pytest.mark.parametrize(
    ("document", "name"),
    [
        ("subscription {", None),
        ("{ nothing }", None),
        ("subscription { nothing }", None),
        ("subscription { instanceEvents { id } fleetStats { total } }", None),
        ("query A { __typename } query B { __typename }", None),
        ("query A { __typename } query B { __typename }", "C"),
        ("query A { __typename }", ""),
        ("subscription ($n: Int!) { instanceEvents { id } }", None),
        ("fragment F on Query { __typename }", None),
        ("{" * 3000, None),
    ],
)
async def test_a_document_that_is_wrong_ends_only_its_own_operation(api: Api, document: str, name: str | None):
    async with raw(api.server) as socket:
        await socket.greet(api.token)
        await socket.send({"id": "x", "type": "subscribe", "payload": {"query": document, "operationName": name}})
        answer = await socket.receive()
        assert (answer["id"], answer["type"]) == ("x", "error")
        assert {error["extensions"]["code"] for error in answer["payload"]} == {"BAD_REQUEST"}
        # The socket is as good as before, and so is the id.
        await socket.subscribe("{ __typename }", id="x")
        answer = await socket.receive()
        assert (answer["id"], answer["type"], answer["payload"]["data"]) == ("x", "next", {"__typename": "Query"})
        assert await socket.receive() == {"id": "x", "type": "complete"}


async def test_wrong_variables_end_only_their_own_operation(api: Api):
    async with raw(api.server) as socket:
        await socket.greet(api.token)
        for variables in ({"after": 7}, {"filter": []}, {"filter": {"statuses": ["NEVER"]}}, {"filter": {"x": 1}}):
            await socket.subscribe(**variables)
            assert (await socket.receive())["type"] == "error"
        await socket.settled()


async def test_queries_and_mutations_are_answered_once_and_completed(api: Api):
    create = """
        mutation { createInstance(input: {name: "over-ws", productName: "RTX 4090 24GB", image: "nginx"}) {
          instance { name status } errors { code } } }
    """
    async with raw(api.server) as socket:
        await socket.greet(api.token)
        await socket.subscribe(create, id="m")
        answer = await socket.receive()
        assert answer["payload"]["data"]["createInstance"]["instance"] == {"name": "over-ws", "status": "CREATING"}
        assert await socket.receive() == {"id": "m", "type": "complete"}
        await socket.subscribe("{ instances { nodes { name } } }", id="q")
        assert (await socket.receive())["payload"]["data"] == {"instances": {"nodes": [{"name": "over-ws"}]}}
        assert await socket.receive() == {"id": "q", "type": "complete"}


async def test_a_named_operation_among_several_is_the_one_that_runs(api: Api):
    async with raw(api.server) as socket:
        await socket.greet(api.token)
        payload = {"query": "query A { a: __typename } query B { b: __typename }", "operationName": "B"}
        await socket.send({"id": "1", "type": "subscribe", "payload": payload})
        assert (await socket.receive())["payload"]["data"] == {"b": "Query"}


async def test_completing_what_is_not_there_is_no_mistake(api: Api):
    async with raw(api.server) as socket:
        await socket.greet(api.token)
        await socket.send({"id": "never", "type": "complete"})
        await socket.subscribe("{ __typename }", id="q")
        await socket.receive()
        await socket.receive()
        await socket.send({"id": "q", "type": "complete"})
        await socket.settled()


async def test_nothing_comes_after_a_complete_however_the_two_cross(api: Api):
    async with raw(api.server) as socket:
        await socket.greet(api.token)
        for number in range(20):
            id = str(number)
            await socket.subscribe(id=id)
            writing = asyncio.create_task(write_events(api.world.database, api.caller.project_id, 3))
            await socket.send({"id": id, "type": "complete"})
            await socket.send({"type": "ping", "payload": {"n": number}})
            # Whatever was under way comes before the pong, and nothing of that id behind it.
            while (answer := await socket.receive())["type"] != "pong":
                assert answer["id"] == id
            await writing
        assert await socket.is_silent()


async def test_a_thousand_operations_on_one_socket_each_get_every_event_once(api: Api):
    async with raw(api.server, max_queue=None) as socket:
        await socket.greet(api.token)
        for number in range(1000):
            await socket.subscribe(id=f"op-{number}")
        await socket.subscribe("{ __typename }", id="one-more")
        refusal = await socket.receive()
        assert (refusal["type"], refusal["payload"][0]["extensions"]["code"]) == ("error", "TOO_MANY_OPERATIONS")
        written = await write_events(api.world.database, api.caller.project_id, 3)
        seen: dict[str, list[str]] = {}
        for _ in range(3000):
            message = await socket.receive()
            seen.setdefault(message["id"], []).append(message["payload"]["data"]["instanceEvents"]["id"])
        assert len(seen) == 1000
        assert all(ids == shown(written) for ids in seen.values())


async def test_ids_come_back_as_they_were_sent(api: Api):
    odd = 'a "quoted" \\ id with ü, 😀 and \n'
    async with raw(api.server) as socket:
        await socket.greet(api.token)
        await socket.subscribe(id=odd)
        await socket.settled()
        await write_events(api.world.database, api.caller.project_id)
        message = parse(await socket.connection.recv(decode=False))
        assert message["id"] == odd


async def test_a_message_that_is_too_large_closes_the_socket(api: Api):
    async with raw(api.server) as socket:
        await socket.greet(api.token)
        await socket.subscribe("{ __typename }" + " " * 300_000)
        assert await socket.closes() == 1009


async def test_text_that_is_not_utf_8_closes_the_socket(api: Api):
    async with raw(api.server) as socket:
        await socket.connection.send(b'{"type":"p\xff\xfe"}', text=True)
        assert await socket.closes() == 1007


async def test_large_messages_arrive_whole(api: Api):
    """Each length has a header of its own kind."""
    async with raw(api.server, max_size=None) as socket:
        await socket.greet(api.token)
        for size in (1, 100, 125, 126, 1000, 65_535, 65_536, 200_000):
            await socket.send({"type": "ping", "payload": {"x": "y" * size}})
            assert await socket.receive() == {"type": "pong", "payload": {"x": "y" * size}}


async def test_a_flooding_client_does_not_delay_the_others(api: Api):
    """A few thousand messages in one write, each of which costs something."""
    async with raw(api.server) as flooding, raw(api.server) as other:
        await flooding.greet(api.token)
        await other.greet(api.token)
        for number in range(1500):
            payload = {"query": f"{{ wrong{number} }}"}
            await flooding.send({"id": str(number), "type": "subscribe", "payload": payload})
        waits: list[float] = []
        for _ in range(10):
            began = time.perf_counter()
            await other.settled()
            waits.append(time.perf_counter() - began)
        answers = [(await flooding.receive())["type"] for _ in range(1500)]
    assert answers == ["error"] * 1500
    assert sorted(waits)[5] < 5  # the flood itself takes longer than that on the slowest machine


async def test_a_document_of_too_many_words_is_refused_before_it_is_checked(api: Api):
    async with raw(api.server) as socket:
        await socket.greet(api.token)
        await socket.subscribe("{" + " __typename" * 4000 + "}")
        message = await socket.receive()
        assert message["type"] == "error"
        assert message["payload"][0]["message"] == "The document may have at most 1000 tokens."
