"""The real application on a real socket, and clients that call it over HTTP and WebSocket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import aiohttp
import orjson
import pytest
from pydantic import SecretStr
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from server.config import Settings
from server.http.listener import address_of, bind
from server.http.serve import serve_http
from server.novita.transport.retry import RetryPolicy
from server.runtime import Runtime
from server.simulator.server import Simulator
from tests.support.waiting import until
from tests.support.world import QUICK, WITHIN

PROTOCOL = "graphql-transport-ws"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Any
    body: dict[str, Any]

    @property
    def data(self) -> dict[str, Any]:
        """What was asked for; there must be no error."""
        assert self.status == 200, self.body
        assert "errors" not in self.body, self.body
        return self.body["data"]

    @property
    def error(self) -> dict[str, Any]:
        """The one error's extensions, with its message."""
        (error,) = self.body["errors"]
        return {"message": error["message"], **error["extensions"]}


@dataclass(frozen=True, slots=True)
class Server:
    runtime: Runtime
    simulator: Simulator
    http: aiohttp.ClientSession
    address: str

    def head_cursor(self) -> str:
        """The cursor behind the newest event that this process has read."""
        return self.runtime.cursors.of_event(self.runtime.tail.head())

    async def ask(
        self, document: str, *, token: str | None, variables: dict[str, Any] | None = None, raw: bytes | None = None
    ) -> Answer:
        body = raw if raw is not None else orjson.dumps({"query": document, "variables": variables or {}})
        headers = {"content-type": "application/json"}
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        async with self.http.post(f"http://{self.address}/graphql", data=body, headers=headers) as response:
            return Answer(response.status, response.headers, orjson.loads(await response.read()))

    @asynccontextmanager
    async def socket(
        self,
        token: str | None,
        *,
        by_header: bool = False,
        origin: str | None = None,
        init: dict[str, Any] | None = None,
    ) -> AsyncIterator["Socket"]:
        """Connected and introduced; the answer to that is not read yet."""
        headers = {"authorization": f"Bearer {token}"} if by_header and token else {}
        async with connect(
            f"ws://{self.address}/graphql",
            subprotocols=[PROTOCOL],  # pyright: ignore[reportArgumentType]
            additional_headers=headers,
            origin=origin,  # pyright: ignore[reportArgumentType]
            open_timeout=WITHIN,
            close_timeout=1,
        ) as connection:
            socket = Socket(connection)
            given = {"Authorization": f"Bearer {token}"} if token and not by_header else {}
            await socket.send({"type": "connection_init", "payload": {**(init or {}), **given}})
            yield socket

    @asynccontextmanager
    async def watching(
        self, document: str, *, token: str, variables: dict[str, Any] | None = None
    ) -> AsyncIterator["Socket"]:
        """Subscribed over a socket of its own."""
        async with self.socket(token) as socket:
            assert (await socket.receive())["type"] == "connection_ack"
            payload = {"query": document, "variables": variables or {}}
            await socket.send({"id": "1", "type": "subscribe", "payload": payload})
            yield socket


class Socket:
    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    async def send(self, message: dict[str, Any]) -> None:
        await self._connection.send(orjson.dumps(message).decode())

    async def receive(self) -> dict[str, Any]:
        async with asyncio.timeout(WITHIN):
            return orjson.loads(await self._connection.recv())

    async def next(self, field: str) -> dict[str, Any]:
        """The next result of that field. Pings are answered, as every client does."""
        while (message := await self.receive())["type"] == "ping":
            await self.send({"type": "pong"})
        assert message["type"] == "next", message
        assert not message["payload"].get("errors"), message
        return message["payload"]["data"][field]

    async def error(self) -> dict[str, Any]:
        """What it ended with: the extensions and the message."""
        message = await self.receive()
        errors = message["payload"] if message["type"] == "error" else message["payload"]["errors"]
        return {"message": errors[0]["message"], **errors[0]["extensions"]}

    async def close_code(self) -> int | None:
        try:
            message = await self.receive()
        except ConnectionClosed:
            return self._connection.close_code
        raise AssertionError(f"it said {message} instead of closing")

    async def is_silent(self) -> bool:
        """Whether nothing more comes, as far as a short wait can tell."""
        try:
            async with asyncio.timeout(0.3):
                await self._connection.recv()
        except TimeoutError:
            return True
        return False


# For tests that send every request there is.
NO_LIMITS: dict[str, Any] = {"live_reads_per_token": 0, "live_reads_per_project": 0}


def new_runtime(settings: Settings, database_url: str, simulator: Simulator) -> Runtime:
    """Its calls to the provider are repeated as often as usual, but sooner."""
    soon = partial(RetryPolicy, first_wait=timedelta(milliseconds=50))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("server.runtime.RetryPolicy", soon)
        return Runtime(
            settings, database_url=database_url, novita_url=simulator.url, novita_key=SecretStr(simulator.api_key)
        )


@asynccontextmanager
async def serving(database_url: str, simulator: Simulator, **overrides: Any) -> AsyncIterator[Server]:
    settings = Settings(**{**QUICK, "host": "127.0.0.1", "port": 0, **overrides})
    listener = bind(settings.host, settings.port)
    runtime = new_runtime(settings, database_url, simulator)
    # The server closes a connection that was idle for 5 s: one that was just closed must not be used once more.
    connector = aiohttp.TCPConnector(keepalive_timeout=2)
    async with runtime, aiohttp.ClientSession(connector=connector) as session:
        runtime.follow_events()
        await runtime.seals.load()
        async with serve_http(runtime, listener):
            yield Server(runtime, simulator, session, address_of(listener))


async def until_tailed(server: Server, position: int) -> None:
    """Waits until the server's tail has read the log up to `position`."""
    await until(lambda: server.runtime.tail.head().position >= position)
