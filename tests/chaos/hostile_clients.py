"""Clients that must get nothing: with another project's token, from another origin, or flooding the server."""

import asyncio
import contextlib
import io
import random
from collections import Counter
from typing import Any

import aiohttp
import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, WebSocketException

from tests.chaos.load import Accounts

SPY = """
    query ($id: ID!, $operation: ID!) {
      instance(id: $id) { id name }
      operation(id: $operation) { id }
      node(id: $id) { id }
      instances(first: 10) { totalCount nodes { id } }
      operations(first: 10) { nodes { id } }
    }
"""
MEDDLE = "mutation ($id: ID!) { deleteInstance(input: {id: $id}) { instance { id } operation { id } errors { code } } }"
EVENTS = "subscription ($after: String) { instanceEvents(after: $after) { id cursor } }"
GONE = (OSError, TimeoutError, WebSocketException, InvalidHandshake, aiohttp.ClientError, ValueError, EOFError)


class HostileClient:
    """Has a valid token of another project, and knows the ids of ours."""

    def __init__(self, urls: list[str], token: str, accounts: Accounts, *, seed: int) -> None:
        self._urls, self._token, self._accounts = urls, token, accounts
        self._chance = random.Random(f"{seed}:stranger")
        self.counts: Counter[str] = Counter()
        self.saw: list[str] = []

    async def run(self) -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as http:
            while True:
                await asyncio.sleep(self._chance.uniform(0.5, 1.5))
                if not self._accounts.accepted:
                    continue
                id = self._chance.choice(list(self._accounts.accepted.values()))
                operation = self._chance.choice(sorted(self._accounts.operations))
                with contextlib.suppress(*GONE):
                    await self._spy(http, id, operation)
                with contextlib.suppress(*GONE):
                    await self._meddle(http, id)
                with contextlib.suppress(*GONE):
                    await self._come_from_elsewhere()

    async def watch(self, cursor: str) -> None:
        """Our log from its beginning: nothing of it may come."""
        while True:
            with contextlib.suppress(*GONE):
                async with socket_to(self._chance.choice(self._urls), self._token) as socket:
                    await subscribe(socket, cursor)
                    self.counts["subscriptions"] += 1
                    async with asyncio.timeout(self._chance.uniform(2, 8)):
                        while True:
                            message = orjson.loads(await socket.recv())
                            if message["type"] == "next":
                                self.saw.append(f"the stranger was sent {message}")
            await asyncio.sleep(0.5)

    async def _spy(self, http: aiohttp.ClientSession, id: str, operation: str) -> None:
        body = await self._ask(http, SPY, {"id": id, "operation": operation})
        data: dict[str, Any] | None = body.get("data")
        if body.get("errors") or data is None:
            return
        self.counts["spied"] += 1
        things = [data["instance"], data["operation"], data["node"], *data["instances"]["nodes"]]
        if any(things) or data["instances"]["totalCount"] or data["operations"]["nodes"]:
            self.saw.append(f"the stranger saw {data}")

    async def _meddle(self, http: aiohttp.ClientSession, id: str) -> None:
        body = await self._ask(http, MEDDLE, {"id": id})
        if body.get("errors") or not body.get("data"):
            return
        self.counts["meddled"] += 1
        payload = body["data"]["deleteInstance"]
        if (
            payload["operation"]
            or payload["instance"]
            or [e["code"] for e in payload["errors"]] != ["INSTANCE_NOT_FOUND"]
        ):
            self.saw.append(f"the stranger's delete was answered {payload}")

    async def _come_from_elsewhere(self) -> None:
        url = self._chance.choice(self._urls).replace("http", "ws", 1)
        try:
            async with asyncio.timeout(5), connect(url, origin="http://evil.example", close_timeout=0.1):  # pyright: ignore[reportArgumentType]
                self.saw.append("a page of another origin opened a socket")
        except InvalidHandshake:
            self.counts["other origins refused"] += 1

    async def _ask(self, http: aiohttp.ClientSession, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        async with http.post(
            self._chance.choice(self._urls),
            json={"query": query, "variables": variables},
            headers={"authorization": f"Bearer {self._token}"},
        ) as response:
            return await response.json(content_type=None)


HOSTILE: list[Any] = [
    {"query": "{ a" * 5000 + "}" * 5000},
    {"query": "query { " + " ".join(f"a{n}: instances(first: 100) {{ nodes {{ id }} }}" for n in range(500)) + " }"},
    {"query": "{ instances(first: 100) { nodes { operations(first: 100) { nodes { instance { operations(first: 100) "
              "{ nodes { id } } } } } } } }"},
    {"query": "query ($a: " + "[" * 3000 + "Int" + "]" * 3000 + ") { __typename }"},
    [{"query": "{ __typename }"}] * 200,
    {"query": "{ __typename }", "variables": {"x": "y" * 3_000_000}},
    {"query": "fragment a on Query { ...b } fragment b on Query { ...a } { ...a }"},
    {"query": "{ __typename " + "@skip(if: false) " * 3000 + "}"},
    "not an object",
    {"query": 7},
]  # fmt: skip


async def hostile_queries(url: str, token: str, seconds: float) -> None:
    """As many as are answered."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as http:

        async def send(first: int) -> None:
            for number in range(first, 10_000):
                with contextlib.suppress(*GONE):
                    async with http.post(
                        url,
                        data=io.BytesIO(orjson.dumps(HOSTILE[number % len(HOSTILE)])),
                        headers={"authorization": f"Bearer {token}", "content-type": "application/json"},
                    ) as response:
                        await response.read()

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.gather(*(send(number) for number in range(4)))


async def socket_flood(url: str, token: str, seconds: float) -> None:
    """More sockets than a token may have, some of which never introduce themselves."""
    sockets: list[ClientConnection] = []

    async def open_one(number: int) -> None:
        with contextlib.suppress(*GONE):
            socket = await connect(
                url.replace("http", "ws", 1),
                subprotocols=["graphql-transport-ws"],  # pyright: ignore[reportArgumentType]
                ping_interval=None,
                open_timeout=5,
            )
            sockets.append(socket)
            if number % 2:
                await greet(socket, token)

    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for first in range(0, 150, 15):
                    await asyncio.gather(*(open_one(number) for number in range(first, first + 15)))
                await asyncio.sleep(seconds)
    finally:
        for socket in sockets:
            socket.transport.abort()


async def slow_readers(url: str, token: str, cursor: str, seconds: float) -> None:
    """They want everything from the beginning, and take nothing of it."""
    sockets: list[ClientConnection] = []
    try:
        for _ in range(4):
            with contextlib.suppress(*GONE):
                socket = await connect(
                    url.replace("http", "ws", 1),
                    subprotocols=["graphql-transport-ws"],  # pyright: ignore[reportArgumentType]
                    ping_interval=None,
                    open_timeout=5,
                )
                sockets.append(socket)
                await greet(socket, token)
                for id in range(20):
                    await subscribe(socket, cursor, id=str(id))
                socket.transport.pause_reading()
        await asyncio.sleep(seconds)
    finally:
        for socket in sockets:
            socket.transport.abort()


def socket_to(url: str, token: str) -> "Greeted":
    return Greeted(url, token)


class Greeted:
    """A socket that has introduced itself."""

    def __init__(self, url: str, token: str) -> None:
        self._opening = connect(
            url.replace("http", "ws", 1),
            subprotocols=["graphql-transport-ws"],  # pyright: ignore[reportArgumentType]
            ping_interval=None,
            close_timeout=0.1,
            open_timeout=5,
        )
        self._token = token

    async def __aenter__(self) -> ClientConnection:
        socket = await self._opening.__aenter__()
        try:
            await greet(socket, self._token)
        except BaseException:
            socket.transport.abort()
            raise
        return socket

    async def __aexit__(self, *error: Any) -> None:
        await self._opening.__aexit__(*error)


async def greet(socket: ClientConnection, token: str) -> None:
    await socket.send(
        orjson.dumps({"type": "connection_init", "payload": {"Authorization": f"Bearer {token}"}}).decode()
    )
    async with asyncio.timeout(5):
        await socket.recv()


async def subscribe(socket: ClientConnection, cursor: str, *, id: str = "1") -> None:
    payload = {"query": EVENTS, "variables": {"after": cursor}}
    await socket.send(orjson.dumps({"id": id, "type": "subscribe", "payload": payload}).decode())
