"""Subscribers that are disconnected and resume with their cursors, over WebSocket and server-sent events."""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, WebSocketException

EVENTS = "subscription ($after: String) { instanceEvents(after: $after) { id cursor } }"
LONGEST_QUIET = 60.0  # seconds in which a subscriber must make progress, once no fault is active
GONE = (OSError, TimeoutError, WebSocketException, InvalidHandshake, aiohttp.ClientError, EOFError)


@dataclass
class Subscriber:
    """The events that one subscriber has received, over all its connections."""

    number: int
    start: str
    seen: list[str] = field(default_factory=list[str])
    cursor: str = ""

    @property
    def uses_streams(self) -> bool:
        return self.number % 4 == 0

    def note(self, event: dict[str, Any]) -> None:
        self.seen.append(event["id"])
        self.cursor = event["cursor"]


class SubscriberPool:
    """Keeps subscribers connected: to a random API process, for a random time, then again with the last cursor."""

    def __init__(
        self,
        token: str,
        ports: Sequence[int],
        chance: random.Random,
        counts: Counter[str],
        is_over: asyncio.Event,
        *,
        cut_every: float,
    ) -> None:
        self._token, self._ports, self._random, self.counts = token, ports, chance, counts
        self._is_over, self._cut_every = is_over, cut_every
        self.problems: list[str] = []

    async def follow(self, subscriber: Subscriber) -> None:
        """Runs until cancelled. After the load has ended, a connection is cut only if nothing arrives."""
        while True:
            port = self._random.choice(self._ports)
            patience = self._random.uniform(0.1, 2 * self._cut_every)
            how = self._read_stream if subscriber.uses_streams else self._read_socket
            try:
                async with asyncio.timeout(patience if not self._is_over.is_set() else LONGEST_QUIET):
                    await how(subscriber, port)
            except TimeoutError:
                self.counts["connections cut by their subscriber"] += 1
            except ConnectionClosed as closed:
                self.counts[f"sockets closed with {closed.rcvd.code if closed.rcvd else 'nothing'}"] += 1
                await asyncio.sleep(0.1)
            except GONE:
                self.counts["connections that the server lost"] += 1
                await asyncio.sleep(0.1)

    async def _read_socket(self, subscriber: Subscriber, port: int) -> None:
        async with connect(
            f"ws://127.0.0.1:{port}/graphql",
            subprotocols=["graphql-transport-ws"],  # pyright: ignore[reportArgumentType]
            close_timeout=0.1,
            ping_interval=None,
        ) as socket:
            greeting = {"type": "connection_init", "payload": {"Authorization": f"Bearer {self._token}"}}
            await socket.send(orjson.dumps(greeting).decode())
            payload = {"query": EVENTS, "variables": {"after": subscriber.cursor}}
            await socket.recv()
            await socket.send(orjson.dumps({"id": "1", "type": "subscribe", "payload": payload}).decode())
            self.counts["subscriptions over WebSocket"] += 1
            try:
                while True:
                    message = orjson.loads(await socket.recv())
                    if message["type"] == "next":
                        subscriber.note(message["payload"]["data"]["instanceEvents"])
                    elif message["type"] == "ping":
                        await socket.send('{"type":"pong"}')
                    elif message["type"] == "error":
                        self._check(message["payload"])
                        return
            finally:
                if self._random.random() < 0.5:
                    socket.transport.abort()

    async def _read_stream(self, subscriber: Subscriber, port: int) -> None:
        headers = {"authorization": f"Bearer {self._token}", "accept": "text/event-stream"}
        headers["last-event-id"] = subscriber.cursor
        async with (
            aiohttp.ClientSession(read_bufsize=2**20) as session,
            session.post(f"http://127.0.0.1:{port}/graphql", json={"query": EVENTS}, headers=headers) as response,
        ):
            if response.status != 200:
                raise EOFError
            self.counts["subscriptions over server-sent events"] += 1
            async for line in response.content:
                if line.startswith(b"data: {"):
                    result = orjson.loads(line[6:])
                    if "errors" in result:
                        self._check(result["errors"])
                        return
                    subscriber.note(result["data"]["instanceEvents"])
        raise EOFError

    def _check(self, errors: list[dict[str, Any]]) -> None:
        """RESUME and UNAVAILABLE are expected while faults are active; anything else is a problem."""
        code = errors[0]["extensions"]["code"]
        if code not in ("RESUME", "UNAVAILABLE"):
            self.problems.append(f"a subscriber got {errors}")
        self.counts["subscriptions that got RESUME or UNAVAILABLE"] += 1
