"""Clients that send too much, send too slowly or do not read: each is answered or cut off, at little cost."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from io import BytesIO
from typing import Any

import orjson
import psutil
import pytest

from server.graphql import respond
from tests.support.api import Api
from tests.support.api_server import Server, serving
from tests.support.world import WITHIN

SHORT: dict[str, Any] = {
    "request_header_timeout": timedelta(milliseconds=400),
    "request_body_timeout": timedelta(milliseconds=400),
    "response_timeout": timedelta(milliseconds=400),
}


@pytest.fixture
async def impatient(api: Api) -> AsyncIterator[Server]:
    async with serving(api.server.runtime.database_url, api.server.simulator, **SHORT) as server:
        yield server


class Line:
    """A connection of which every byte is the test's own affair."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, raw: bytes) -> None:
        self.writer.write(raw)

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        async with asyncio.timeout(WITHIN):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
            body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return int(head[0].split()[1]), headers, body

    async def ends(self) -> bool:
        """Whether the server closes it."""
        async with asyncio.timeout(WITHIN):
            with contextlib.suppress(ConnectionError):
                while await self.reader.read(65536):
                    pass
            return True


@asynccontextmanager
async def line(server: Server) -> AsyncIterator[Line]:
    host, port = server.address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield Line(reader, writer)
    finally:
        if writer.transport.get_write_buffer_size():
            writer.transport.abort()  # a flood: the server will never read the rest
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def head(server: Server, token: str, *more: str) -> bytes:
    lines = ["POST /graphql HTTP/1.1", f"host: {server.address}", f"authorization: Bearer {token}"]
    lines += ["content-type: application/json", "accept: application/json", *more]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def code_of(body: bytes) -> str:
    return orjson.loads(body)["errors"][0]["extensions"]["code"]


@pytest.mark.parametrize("begun", [b"", b"POST /graphql HT", b"POST /graphql HTTP/1.1\r\nhost: x\r\nx: "])
async def test_a_request_head_that_does_not_arrive_times_out(impatient: Server, begun: bytes):
    async with line(impatient) as slow:
        slow.send(begun)
        status, headers, body = await slow.answer()
        assert (status, headers["connection"], code_of(body)) == (408, "close", "REQUEST_TIMEOUT")
        assert await slow.ends()


async def test_a_head_that_trickles_is_cut_off_all_the_same(impatient: Server):
    async with line(impatient) as slow:
        slow.send(b"POST /graphql HTTP/1.1\r\n")

        async def trickle() -> None:
            with contextlib.suppress(ConnectionError):
                while True:
                    slow.send(b"x-a: b\r\n")
                    await slow.writer.drain()
                    await asyncio.sleep(0.05)

        trickling = asyncio.create_task(trickle())
        assert (await slow.answer())[0] == 408
        trickling.cancel()


async def test_the_second_head_of_a_connection_is_not_waited_for_either(impatient: Server):
    for _ in range(50):
        async with line(impatient) as slow:
            slow.send(f"GET /healthz HTTP/1.1\r\nhost: {impatient.address}\r\n\r\n".encode())
            if (await slow.answer())[0] == 408:
                continue  # this machine was too slow for the first one
            slow.send(b"GET /healthz HTTP/1.1\r\nx")
            assert (await slow.answer())[0] == 408
            return
    raise AssertionError("no first request came in time")


async def test_a_body_that_trickles_is_cut_off(api: Api, impatient: Server):
    async with line(impatient) as slow:
        slow.send(head(impatient, api.token, "content-length: 1000") + b'{"query": "')
        status, _, body = await slow.answer()
        assert (status, code_of(body)) == (408, "REQUEST_TIMEOUT")
        assert await slow.ends()


async def test_a_head_without_an_end_is_refused_while_it_comes(api: Api):
    async with line(api.server) as long:
        long.send(b"POST /graphql HTTP/1.1\r\nhost: x\r\n")
        with contextlib.suppress(ConnectionError):
            for _ in range(40):
                long.send(b"x-a: " + b"b" * 8000 + b"\r\n")
                await long.writer.drain()
        assert (await long.answer())[0] == 431


async def test_an_address_without_an_end_is_refused(api: Api):
    async with line(api.server) as long:
        with contextlib.suppress(ConnectionError):
            long.send(b"GET /graphql?query=" + b"a" * 200_000)
            await long.writer.drain()
        assert (await long.answer())[0] == 414


async def test_a_client_that_stops_reading_a_response_is_cut_off(api: Api, impatient: Server):
    """Pipelined responses that the client does not read fill the buffers, and no more."""
    query = orjson.dumps({"query": "{ __schema { types { name description fields { name description } } } }"})
    async with line(impatient) as deaf:
        deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]
        request = head(impatient, api.token, f"content-length: {len(query)}") + query
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(WITHIN):
                for _ in range(300):
                    deaf.send(request)
                    await deaf.writer.drain()
                while not deaf.writer.is_closing():
                    deaf.send(b"\r\n")
                    await deaf.writer.drain()
                    await asyncio.sleep(0.05)


async def test_fifty_megabytes_are_refused_by_what_they_say_about_themselves(api: Api):
    async with line(api.server) as big:
        big.send(head(api.server, api.token, "content-length: 52428800"))
        status, _, body = await big.answer()
        assert (status, code_of(body)) == (413, "BODY_TOO_LARGE")


async def test_a_body_of_50_mb_in_chunks_is_refused_at_the_limit_and_not_buffered(api: Api):
    me = psutil.Process()
    piece = b"10000\r\n" + b" " * 65536 + b"\r\n"
    async with line(api.server) as big:
        big.send(head(api.server, api.token, "transfer-encoding: chunked"))
        before = me.memory_info().rss
        with contextlib.suppress(ConnectionError):
            for _ in range(800):
                big.send(piece)
                await big.writer.drain()
        assert (await big.answer())[0] == 413
        assert me.memory_info().rss - before < 30 * 1024 * 1024


@pytest.mark.parametrize("length", [1024 * 1024, 1024 * 1024 + 1])
async def test_the_limit_of_a_body_is_exact(api: Api, length: int):
    start, end = b'{"query": "{ __typename }", "extensions": {"x": "', b'"}}'
    body = start + b"x" * (length - len(start) - len(end)) + end
    headers = {"authorization": f"Bearer {api.token}", "content-type": "application/json"}
    url = f"http://{api.server.address}/graphql"
    async with api.server.http.post(url, data=BytesIO(body), headers=headers) as response:
        assert response.status == (200 if length == 1024 * 1024 else 413)


async def test_nonsense_is_no_http(api: Api):
    async with line(api.server) as broken:
        broken.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 10 + b"\r\n\r\n")
        status, headers, body = await broken.answer()
        assert (status, code_of(body)) == (400, "BAD_REQUEST")
        assert orjson.loads(body)["errors"][0]["extensions"]["requestId"] == headers["x-request-id"]


async def test_a_query_that_takes_too_long_is_ended_and_a_change_is_carried_through(
    api: Api, monkeypatch: pytest.MonkeyPatch
):
    real = respond.execute

    async def slow(*given: Any) -> Any:
        await asyncio.sleep(1.5)
        return await real(*given)

    url, simulator = api.server.runtime.database_url, api.server.simulator
    async with serving(url, simulator, query_timeout=timedelta(milliseconds=200)) as server:
        monkeypatch.setattr(respond, "execute", slow)
        answer = await server.ask("{ instances { totalCount } }", token=api.token)
        assert (answer.status, answer.error["code"], answer.error["retryable"]) == (503, "TIMEOUT", True)

        create = (
            'mutation { createInstance(input: {name: "late", productName: "RTX 4090 24GB", image: "i"}) { replayed } }'
        )
        answer = await server.ask(create, token=api.token)
        assert (answer.status, answer.error["code"]) == (503, "TIMEOUT")
        assert "idempotency key" in answer.error["message"]

        began = time.monotonic()
        while (await api.world.counts())["instance"] == 0:
            assert time.monotonic() - began < WITHIN
            await asyncio.sleep(0.05)
