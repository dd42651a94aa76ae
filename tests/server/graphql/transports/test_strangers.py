"""Clients whose caller is not known yet: whatever they send, they cost little and are answered or cut off."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import orjson
import psutil
import pytest
from structlog.testing import capture_logs

from server.clock import new_id
from server.http.connection_limits import DESCRIPTORS_RESERVED_MIN, ConnectionLimits, Visit, connections_max
from server.http.protocols import HEADERS_MAX, BoundedHttpProtocol
from server.http.websocket import FRAGMENTS_MAX, FRAMES_BEFORE_ADMISSION
from tests.server.auth.test_tokens import counted
from tests.server.graphql.transports.test_hostile_clients import Line, code_of, line
from tests.support.api import Api
from tests.support.api_server import Server, serving
from tests.support.waiting import until
from tests.support.world import WITHIN

MB = 1024 * 1024
INIT = orjson.dumps({"type": "connection_init"})


def get(server: Server, path: str = "/healthz", *more: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", f"host: {server.address}", *more, "", ""]).encode()


def upgrade(server: Server, *more: str) -> bytes:
    return get(
        server, "/graphql", "connection: upgrade", "upgrade: websocket", "sec-websocket-version: 13",
        "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==", "sec-websocket-protocol: graphql-transport-ws", *more,
    )  # fmt: skip


def frame(opcode: int, payload: bytes = b"", *, fin: bool = True) -> bytes:
    size = bytes([0x80 | len(payload)]) if len(payload) < 126 else b"\xfe" + struct.pack("!H", len(payload))
    return bytes([(0x80 if fin else 0) | opcode]) + size + b"\0\0\0\0" + payload


@asynccontextmanager
async def bare_socket(server: Server, token: str | None = None) -> AsyncGenerator[Line]:
    """A WebSocket after its handshake, and with a token after its admission; every byte is the test's own affair."""
    async with line(server) as wire:
        wire.send(upgrade(server))
        head = await asyncio.wait_for(wire.reader.readuntil(b"\r\n\r\n"), WITHIN)
        assert head.startswith(b"HTTP/1.1 101")
        if token is not None:
            payload = {"type": "connection_init", "payload": {"Authorization": f"Bearer {token}"}}
            wire.send(frame(1, orjson.dumps(payload)))
            assert (await wire.reader.readexactly(2))[0] == 0x81
            assert b"connection_ack" in await wire.reader.readexactly(25)
        yield wire


async def close_code(wire: Line) -> int:
    """Of the close frame that comes after any pongs."""
    async with asyncio.timeout(WITHIN):
        while True:
            kind, size = await wire.reader.readexactly(2)
            payload = await wire.reader.readexactly(size)
            if kind == 0x88:
                return int.from_bytes(payload[:2], "big")


async def flood(wire: Line, piece: bytes, times: int) -> int:
    """Send until the other side takes no more for a moment; the bytes that it took."""
    sent = 0
    with contextlib.suppress(ConnectionError, TimeoutError):
        for _ in range(times):
            wire.send(piece)
            async with asyncio.timeout(0.5):
                await wire.writer.drain()
            sent += len(piece)
    return sent


async def test_empty_fragments_end_a_strangers_socket_after_a_hundred_frames(api: Api):
    async with bare_socket(api.server) as wire:
        wire.send(frame(1, fin=False) + frame(0, fin=False) * FRAMES_BEFORE_ADMISSION)
        assert await close_code(wire) == 1008


async def test_a_message_of_too_many_fragments_ends_the_socket(api: Api):
    async with bare_socket(api.server, api.token) as wire:
        wire.send(frame(1, b" ", fin=False) + frame(0, fin=False) * (FRAGMENTS_MAX - 2) + frame(0, b"{}"))
        assert await close_code(wire) == 4400  # it was read whole: no type
    async with bare_socket(api.server, api.token) as wire:
        wire.send(frame(1, b" ", fin=False) + frame(0, fin=False) * FRAGMENTS_MAX)
        assert await close_code(wire) == 1008


async def test_pings_whose_pongs_are_not_read_are_not_read_either(api: Api):
    me = psutil.Process()
    async with bare_socket(api.server, api.token) as wire:
        wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
        before = me.memory_info().rss
        sent = await flood(wire, frame(9, b"x" * 125) * 500, 400)  # 26 MB, if they were read
        assert sent < 20 * MB
        assert me.memory_info().rss - before < 15 * MB


async def test_frames_that_arrive_at_once_leave_room_for_other_requests(api: Api):
    """A quarter of a megabyte of empty pongs is 40,000 frames: they are read at the pace of a limit."""
    async with bare_socket(api.server, api.token) as wire:
        wire.send(frame(10) * 40_000)
        for _ in range(5):
            assert (await api.ask("{ __typename }")).data == {"__typename": "Query"}
        wire.send(frame(1, b"nonsense"))  # behind all pongs; it would close the socket at once
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await wire.reader.readexactly(1)


async def test_pipelined_requests_are_answered_in_order_and_not_read_far_ahead(api: Api):
    me = psutil.Process()
    async with line(api.server) as many:
        many.writer.transport.pause_reading()  # type: ignore[attr-defined]
        before = me.memory_info().rss
        sent = await flood(many, get(api.server) * 1_000, 300)
        assert sent < 16 * MB
        assert me.memory_info().rss - before < 20 * MB
    async with line(api.server) as some:
        paths = ["/healthz", "/nowhere", "/healthz", "/graphql", "/nowhere"] * 40
        some.send(b"".join(get(api.server, path) for path in paths))
        statuses = {"/healthz": 200, "/nowhere": 404, "/graphql": 401}
        assert [(await some.answer())[0] for _ in paths] == [statuses[path] for path in paths]


async def test_connections_full_of_pipelined_requests_let_another_request_pass(api: Api):
    """It takes a few iterations of the event loop, in each of which every connection would start a request."""
    answered = 0

    async def read(some: Line) -> None:
        nonlocal answered
        while True:
            await some.answer()
            answered += 1

    async with contextlib.AsyncExitStack() as stack:
        full = [await stack.enter_async_context(line(api.server)) for _ in range(20)]
        other = await stack.enter_async_context(line(api.server))
        for some in full:
            some.send(get(api.server) * 1_000)
        async with asyncio.TaskGroup() as group:
            reading = [group.create_task(read(some)) for some in full]
            await until(lambda: answered > len(full))
            before = answered
            other.send(get(api.server))
            assert (await other.answer())[0] == 200
            assert answered - before < len(full)
            for task in reading:
                task.cancel()


async def test_a_refusal_comes_after_the_answers_to_earlier_requests(api: Api):
    async with line(api.server) as some:
        some.send(get(api.server) * 3 + get(api.server, "/healthz", "x: " + "y" * 9000))
        assert [(await some.answer())[0] for _ in range(4)] == [200, 200, 200, 431]
        assert await some.ends()
    async with line(api.server) as some:
        some.send(get(api.server) * 3 + b"nonsense\r\n\r\n")
        assert [(await some.answer())[0] for _ in range(4)] == [200, 200, 200, 400]
        assert await some.ends()


async def test_a_pipelined_body_is_read_when_its_turn_comes(api: Api):
    body = orjson.dumps({"query": "{ __typename }", "extensions": {"x": "y" * 200_000}})
    post = "\r\n".join(
        [
            "POST /graphql HTTP/1.1",
            f"host: {api.server.address}",
            f"authorization: Bearer {api.token}",
            "content-type: application/json",
            f"content-length: {len(body)}",
            "",
            "",
        ]
    ).encode()
    async with line(api.server) as some:
        some.send((post + body) * 5 + get(api.server))
        assert [(await some.answer())[0] for _ in range(6)] == [200] * 6


@pytest.mark.parametrize(
    "headers", [[f"x-{n}: y" for n in range(200)], ["x: " + "y" * 8200], [f"x-{n}: {'y' * 8000}" for n in range(7)]]
)
@pytest.mark.parametrize("is_handshake", [False, True])
async def test_too_many_or_too_long_headers_are_answered(api: Api, headers: list[str], is_handshake: bool):
    async with line(api.server) as wide:
        wide.send(upgrade(api.server, *headers) if is_handshake else get(api.server, "/healthz", *headers))
        status, _, body = await wide.answer()
        if len(headers) == 7:  # 56 KiB in lines that are short enough
            assert status == (200 if not is_handshake else 101) or status == 431
        else:
            assert (status, code_of(body)) == (431, "HEAD_TOO_LARGE")
            assert await wide.ends()


async def test_a_head_of_many_short_lines_is_refused_before_it_ends(api: Api):
    """As tuples of Python they take 25 times their bytes."""
    async with line(api.server) as many:
        many.send(get(api.server).removesuffix(b"\r\n") + b"x: y\r\n" * (HEADERS_MAX + 1))
        status, _, body = await many.answer()
        assert (status, code_of(body)) == (431, "HEAD_TOO_LARGE")


async def test_bytes_that_wait_in_all_connections_of_an_address_are_limited(api: Api, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("server.http.connection_limits.WAITING_PER_OWNER_MAX", 40_000)
    head = get(api.server).removesuffix(b"\r\n") + b"x: " + b"y" * 7_000 + b"\r\nz: " + b"y" * 7_000
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(api.server.runtime.database_url, api.server.simulator))
        over_http = [await stack.enter_async_context(line(server)) for _ in range(2)]
        over_socket = await stack.enter_async_context(bare_socket(server))
        for some in over_http:
            some.send(head)
        over_socket.send(frame(1, b"x" * 14_000)[:-1])
        assert await close_code(over_socket) == 1008
        async with line(server) as small:  # of the same address
            small.send(get(server))
            assert (await small.answer())[0] == 200
        third = await stack.enter_async_context(line(server))
        third.send(head)
        status, _, body = await third.answer()
        assert (status, code_of(body)) == (503, "TOO_MANY_CONNECTIONS")

        over_http[0].writer.close()
        await over_http[0].writer.wait_closed()

        async def has_room() -> bool:
            async with line(server) as fourth, line(server) as small:
                fourth.send(head)
                small.send(get(server))
                await small.answer()  # by now the head has been read
                fourth.send(b"\r\n\r\n")
                return (await fourth.answer())[0] == 200

        await until(has_room)


async def test_a_pipelining_client_has_one_request_ahead(api: Api, monkeypatch: pytest.MonkeyPatch):
    """Each that is parsed takes some kilobytes, and the shortest one has 26 bytes."""
    longest = 0
    hold_reading = BoundedHttpProtocol._hold_reading

    def noting(protocol: BoundedHttpProtocol) -> None:
        nonlocal longest
        longest = max(longest, len(protocol.pipeline))
        hold_reading(protocol)

    monkeypatch.setattr(BoundedHttpProtocol, "_hold_reading", noting)
    async with line(api.server) as some:
        some.send(get(api.server) * 50)
        assert [(await some.answer())[0] for _ in range(50)] == [200] * 50
    assert longest == 1


def test_a_project_has_a_quarter_of_all_connections():
    """Beyond it, its callers' connections stay those of their address."""
    limits = ConnectionLimits(strangers_per_address=2, most=8)
    project, visits = new_id(), list[Visit]()
    for address in "aabbcc":
        assert limits.enter(address)
        visits.append(Visit(limits, address))
        visits[-1].admit(project)
        visits[-1].admit(project)
    assert [limits.enter(address) for address in "abc"] == [True, False, False]
    for visit in visits:
        visit.end()
        visit.end()
    assert limits.open == 1
    assert [limits.enter(address) for address in "bbb"] == [True, True, False]


def test_waiting_bytes_follow_a_connection_to_its_project_and_to_the_next_client(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("server.http.connection_limits.WAITING_PER_OWNER_MAX", 10_000)
    limits = ConnectionLimits(strangers_per_address=0)
    first, second = Visit(limits, "a"), Visit(limits, "a")
    assert first.hold(9_000)
    assert second.hold(4_000)  # few are never refused
    assert not second.hold(5_000)
    assert second.hold(4_500)  # it has become less
    first.admit(new_id())
    assert second.hold(5_500)
    assert second.pass_to("b")
    assert Visit(limits, "a").hold(9_500)
    assert not first.hold(11_000)
    monkeypatch.setattr("server.http.connection_limits.WAITING_MAX", 22_000)
    third = Visit(limits, "c")
    assert not third.hold(5_000)
    first.end()
    assert third.hold(5_001)


async def test_strangers_of_one_address_are_limited_and_callers_are_not_counted(api: Api):
    url, simulator = api.server.runtime.database_url, api.server.simulator
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(url, simulator, strangers_per_address=3))
        known = [await stack.enter_async_context(bare_socket(server, api.token)) for _ in range(5)]
        strangers = [await stack.enter_async_context(line(server)) for _ in range(3)]
        await asyncio.sleep(0)
        async with line(server) as fourth:
            status, headers, body = await fourth.answer()
            assert (status, code_of(body), headers["connection"]) == (503, "TOO_MANY_CONNECTIONS", "close")
            assert await fourth.ends()
        known[0].send(frame(9, b"still there"))
        assert await known[0].reader.readexactly(13) == b"\x8a\x0bstill there"
        strangers[0].writer.close()
        await strangers[0].writer.wait_closed()

        async def is_served() -> bool:
            async with line(server) as next_one:
                next_one.send(get(server))
                return (await next_one.answer())[0] == 200

        await until(is_served)


def limit_of_files(limit: int) -> Callable[[int], tuple[int, int]]:
    return lambda _: (limit, limit)


def test_descriptors_are_kept_in_reserve(monkeypatch: pytest.MonkeyPatch):
    for limit, most in ((400, 400 - DESCRIPTORS_RESERVED_MIN), (65_536, 49_152), (100, 1)):
        monkeypatch.setattr("resource.getrlimit", limit_of_files(limit))
        assert connections_max() == most
    limits = ConnectionLimits(strangers_per_address=0, most=2)
    assert [limits.enter("a"), limits.enter("b"), limits.enter("c")] == [True, True, False]
    limits.leave("a", was_admitted=False)
    assert limits.enter("c")


async def test_wrong_tokens_are_limited_per_address_before_a_query_is_spent(api: Api):
    url, simulator = api.server.runtime.database_url, api.server.simulator
    async with serving(url, simulator, wrong_token_limit=3) as server:
        assert (await server.ask("{ __typename }", token=api.token)).status == 200
        for n in range(3):
            assert (await server.ask("{ __typename }", token=f"pl_wrong{n}")).status == 401
        with counted(server.runtime.database) as statements:
            answer = await server.ask("{ __typename }", token="pl_another")
            assert (answer.status, answer.error["code"]) == (429, "RATE_LIMITED")
            assert 0 < answer.error["retryAfterMs"] <= 20_000
            async with server.socket("pl_yet-another") as stranger:
                assert await stranger.close_code() == 1013
            assert [each for each in statements if "FROM token" in each] == []
        server.runtime.tokens.forget()  # the cache, as after CALLER_TTL
        assert (await server.ask("{ __typename }", token=api.token)).status == 200


async def test_a_revoked_token_is_a_wrong_one(api: Api):
    url, simulator = api.server.runtime.database_url, api.server.simulator
    async with serving(url, simulator, wrong_token_limit=2) as server:
        token, caller = await api.world.new_token()
        assert (await server.ask("{ __typename }", token=token)).status == 200
        await api.world.execute("UPDATE token SET revoked_at = now() WHERE id = $1", caller.token_id)
        server.runtime.tokens.forget()
        statuses = [(await server.ask("{ __typename }", token=token)).status for _ in range(4)]
        assert statuses == [401, 401, 401, 429]  # it was known once
        with counted(server.runtime.database) as statements:
            assert (await server.ask("{ __typename }", token=token)).status == 429
            assert [each for each in statements if "FROM token" in each] == []


async def test_a_client_that_leaves_takes_its_waiting_requests_with_it(api: Api):
    """uvicorn tells only the last request: a stream with another request behind it was served for ever."""
    second = timedelta(seconds=1)  # it is not read from, so that it has left is noticed by a ping
    url, simulator = api.server.runtime.database_url, api.server.simulator
    async with serving(url, simulator, socket_ping_interval=second) as server:
        stream = get(
            server,
            "/graphql?query=subscription%7BinstanceEvents%7Bid%7D%7D",
            f"authorization: Bearer {api.token}",
            "accept: text/event-stream",
        )
        async with line(server) as leaving:
            leaving.send(stream + get(server))
            assert (await asyncio.wait_for(leaving.reader.readline(), WITHIN)).split()[1] == b"200"
            wire: socket.socket = leaving.writer.get_extra_info("socket")
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            leaving.writer.transport.abort()

        async def is_gone() -> bool:
            async with server.http.get(f"http://{server.address}/metrics") as response:
                return "pilotlight_sockets_open 0.0" in await response.text()

        await until(is_gone)


async def test_a_flood_of_bad_requests_does_not_fill_the_log(api: Api, caplog: pytest.LogCaptureFixture):
    async with serving(api.server.runtime.database_url, api.server.simulator) as server:
        with capture_logs() as logged:
            for _ in range(20):
                async with line(server) as client:
                    client.send(b"GET / HTTP/1.1\r\nhost: x\r\n" + b"x: y\r\n" * 200 + b"\r\n")
                    status, _, _ = await client.answer()
                    assert status == 431

    refused = [each for each in logged if each["event"] == "http.request_refused"]
    assert [(each["code"], each["refused"]) for each in refused] == [("HEAD_TOO_LARGE", 1)]
    assert not [each for each in caplog.records if each.name.startswith("uvicorn") and each.levelname == "WARNING"]


@pytest.mark.parametrize("trailer", ["authorization: Bearer {token}", "host: elsewhere.example"])
async def test_fields_behind_a_body_are_no_headers(api: Api, trailer: str):
    """They come after everything has been checked, and only the last proxy may have seen them."""
    body = b'{"query": "{ __typename }"}'
    async with line(api.server) as wire:
        wire.send(
            get(api.server, "/graphql", "content-type: application/json", "transfer-encoding: chunked").replace(
                b"GET", b"POST", 1
            )
            + b"%x\r\n%s\r\n0\r\n" % (len(body), body)
            + trailer.format(token=api.token).encode()
            + b"\r\n\r\n"
        )
        status, _, _ = await wire.answer()
        assert status == 401
        wire.send(get(api.server))
        assert (await wire.answer())[0] == 200  # the connection goes on


@pytest.mark.parametrize("piece", [b"y" * 4096, b"x: y\r\n" * 700], ids=["one line", "many lines"])
async def test_fields_behind_a_body_have_an_end(api: Api, piece: bytes):
    async with line(api.server) as wire:
        wire.send(get(api.server, "/graphql", "transfer-encoding: chunked").replace(b"GET", b"POST", 1) + b"0\r\nx: ")
        me = psutil.Process()
        before = me.memory_info().rss
        assert (await wire.answer())[0] == 401
        sent = await flood(wire, piece, 10_000)
        assert sent < 16 * MB
        assert me.memory_info().rss - before < 16 * MB
        assert await wire.ends()


@pytest.mark.parametrize("has_token", [False, True])
async def test_small_chunks_have_an_end(api: Api, has_token: bool):
    """Each costs as much as a kilobyte, and twenty connections full of them kept all other clients waiting."""
    more = [f"authorization: Bearer {api.token}"] if has_token else []
    head = get(api.server, "/graphql", "content-type: application/json", "transfer-encoding: chunked", *more)
    async with line(api.server) as wire:
        wire.send(head.replace(b"GET", b"POST", 1))
        sent = await flood(wire, b"1\r\n \r\n" * 10_000, 1_000)
        assert sent < 16 * MB  # of 60
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):  # cut off before the answer was read
            assert (await wire.answer())[0] == (413 if has_token else 401)
        assert await wire.ends()


@pytest.mark.parametrize(("size", "times"), [(1, 200), (256, 2_000)])
async def test_a_body_may_have_a_few_small_chunks_or_many_larger_ones(api: Api, size: int, times: int):
    head = get(
        api.server, "/graphql", "content-type: application/json", "accept: application/json",
        "transfer-encoding: chunked", f"authorization: Bearer {api.token}",
    )  # fmt: skip
    query = b'{"query": "{ __typename }"}'
    chunks = [b" " * size] * (times - 2) + [query]
    async with line(api.server) as wire:
        wire.send(head.replace(b"GET", b"POST", 1))
        wire.send(b"".join(b"%x\r\n%s\r\n" % (len(each), each) for each in chunks) + b"0\r\n\r\n")
        status, _, body = await wire.answer()
        assert (status, orjson.loads(body)["data"]) == (200, {"__typename": "Query"})
