"""Fixtures and WebSocket clients for the real application, some with limits that a test can reach."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import aiohttp
import orjson
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from server.clock import new_id
from server.config import Settings
from server.db.database import Database
from server.db.tables import Instance
from server.events.event import EventType
from server.events.outbox import append
from server.graphql.service import GraphQLService
from server.http.listener import address_of, bind
from server.http.serve import serve_http
from server.instances.events import snapshot_of
from tests.support.api import Api
from tests.support.api_server import PROTOCOL, Server, Socket, new_runtime
from tests.support.waiting import until
from tests.support.world import QUICK, WITHIN

EVENTS = """
    subscription ($after: String, $filter: InstanceEventFilter) {
      instanceEvents(after: $after, filter: $filter) { id cursor type }
    }
"""
SHORT: dict[str, Any] = {
    "socket_init_timeout": timedelta(seconds=3),
    "socket_ping_interval": timedelta(seconds=2),
    "socket_token_check": timedelta(milliseconds=100),
    "socket_message_bytes": 20_000,
    "sockets_per_token": 3,
    "operations_per_socket": 4,
    "operations_per_token": 6,
}


class Tuned(Settings):
    """The settings, with every limit of subscriptions."""

    socket_init_timeout: timedelta = timedelta(seconds=10)
    socket_ping_interval: timedelta = timedelta(seconds=25)
    socket_token_check: timedelta = timedelta(seconds=5)
    socket_message_bytes: int = 256 * 1024
    sockets_per_process: int = 20_000
    sockets_per_token: int = 1_000
    operations_per_socket: int = 1_000
    operations_per_token: int = 5_000


class Raw(Socket):
    """A socket of which every byte is the test's own affair."""

    def __init__(self, connection: ClientConnection) -> None:
        super().__init__(connection)
        self.connection = connection

    async def say(self, text: str | bytes) -> None:
        await self.connection.send(text)

    async def greet(self, token: str) -> None:
        await self.send({"type": "connection_init", "payload": {"Authorization": f"Bearer {token}"}})
        assert await self.receive() == {"type": "connection_ack"}

    async def subscribe(self, document: str = EVENTS, *, id: str = "1", **variables: Any) -> None:
        await self.send({"id": id, "type": "subscribe", "payload": {"query": document, "variables": variables}})

    async def settled(self) -> None:
        """What was sent before is done: it is answered in order."""
        await self.send({"type": "ping", "payload": {"settled": True}})
        assert await self.receive() == {"type": "pong", "payload": {"settled": True}}

    async def closes(self) -> int | None:
        """Its close code; what it still says before is left out."""
        try:
            while True:
                await self.receive()
        except ConnectionClosed:
            return self.connection.close_code


@asynccontextmanager
async def raw(server: Server, *, protocols: list[str] | None = None, **options: Any) -> AsyncIterator[Raw]:
    async with connect(
        f"ws://{server.address}/graphql",
        subprotocols=[PROTOCOL] if protocols is None else protocols or None,  # pyright: ignore[reportArgumentType]
        open_timeout=WITHIN,
        close_timeout=1,
        **options,
    ) as connection:
        yield Raw(connection)


async def write_events(database: Database, project_id: UUID, times: int = 1, **fields: Any) -> list[UUID]:
    """Writes `times` events, each in its own transaction."""
    instance_id = fields.pop("instance_id", None) or new_id()
    written: list[UUID] = []
    for _ in range(times):
        async with database.write() as session:
            written.append(
                await append(
                    session,
                    type=EventType.INSTANCE_CHANGED,
                    project_id=project_id,
                    instance_id=instance_id,
                    data=fields.get("data", {}),
                )
            )
    return written


async def picture(api: Api, instance_id: Any) -> dict[str, Any]:
    """The instance as events carry it."""
    async with api.world.database.read() as session:
        return snapshot_of(await session.get_one(Instance, instance_id))


def shown(ids: list[UUID]) -> list[str]:
    return [f"evt_{id.hex}" for id in ids]


@asynccontextmanager
async def serving_with(api: Api, **limits: Any) -> AsyncIterator[tuple[Server, GraphQLService]]:
    """Another process's worth of API over the same database."""
    settings = Tuned(**{**QUICK, "host": "127.0.0.1", "port": 0, **limits})
    listener = bind(settings.host, settings.port)
    simulator = api.server.simulator
    runtime = new_runtime(settings, api.server.runtime.database_url, simulator)
    async with runtime, aiohttp.ClientSession() as session:
        runtime.follow_events()
        await runtime.seals.load()
        async with serve_http(runtime, listener) as app:
            await until(lambda: runtime.tail.is_following)
            yield Server(runtime, simulator, session, address_of(listener)), app.state.service


@pytest.fixture
async def short(api: Api) -> AsyncIterator[tuple[Server, GraphQLService]]:
    async with serving_with(api, **SHORT) as server:
        yield server


def parse(text: str | bytes) -> dict[str, Any]:
    return orjson.loads(text)
