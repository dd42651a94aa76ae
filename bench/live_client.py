"""A WebSocket client that costs little CPU, so that thousands of them leave the machine to the server."""

import asyncio
import base64
import json
import os
import time
from collections.abc import Callable

EVENTS = """
subscription {
  instanceEvents { id cursor type occurredAt status instanceSnapshot { instanceId name status version image } }
}
"""


class Subscriber(asyncio.Protocol):
    """One socket with one subscription: counts what it gets and remembers when."""

    def __init__(
        self,
        address: str,
        token: str,
        on_message: Callable[["Subscriber", bytes], None] | None,
        *,
        is_bare: bool,
        query: str = EVENTS,
    ) -> None:
        self._query = query
        self._is_bare = is_bare
        self._address = address
        self._token = token
        self._on_message = on_message
        self._buffer = b""
        self._is_open = False
        self.transport: asyncio.Transport | None = None
        self.received = 0
        self.last_at = 0.0
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.id = base64.b32encode(os.urandom(20)).decode()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # pyright: ignore[reportAttributeAccessIssue]
        key = base64.b64encode(os.urandom(16)).decode()
        transport.write(  # pyright: ignore[reportAttributeAccessIssue]
            f"GET /graphql HTTP/1.1\r\nHost: {self._address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Protocol: graphql-transport-ws\r\n\r\n".encode()
        )

    def say(self, message: dict[str, object]) -> None:
        data = json.dumps(message).encode()
        size = bytes((0x80 | len(data),)) if len(data) < 126 else b"\xfe" + len(data).to_bytes(2, "big")
        if self.transport is not None:
            self.transport.write(b"\x81" + size + bytes(4) + data)  # a mask of zeros changes nothing

    def data_received(self, data: bytes) -> None:
        data = self._buffer + data
        if not self._is_open:
            head, found, data = data.partition(b"\r\n\r\n")
            if not found:
                self._buffer = head
                return
            assert b" 101 " in head, head
            self._is_open = True
            if self._is_bare:
                self.ready.set_result(None)
                return
            self.say({"type": "connection_init", "payload": {"Authorization": f"Bearer {self._token}"}})
            self.say({"id": self.id, "type": "subscribe", "payload": {"query": self._query}})
            self.say({"type": "ping"})  # answered once what came before it is done
        place = 0
        while True:
            frame = _frame(data, place)
            if frame is None:
                break
            start, place = frame
            self._heard(data, start, place)
        self._buffer = data[place:]

    def _heard(self, data: bytes, start: int, end: int) -> None:
        if data.find(b'"next"', start, end) >= 0:
            self.received += 1
            self.last_at = time.perf_counter()
            if self._on_message is not None:
                self._on_message(self, data[start:end])
        elif data.find(b'"pong"', start, end) >= 0 and not self.ready.done():
            self.ready.set_result(None)
        elif data.find(b'"error"', start, end) >= 0 and not self.ready.done():
            self.ready.set_exception(RuntimeError(data[start:end].decode(errors="replace")))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ready.done():
            self.ready.set_exception(exc or ConnectionError("closed"))


def _frame(data: bytes, place: int) -> tuple[int, int] | None:
    """Where the text of the next frame begins and ends, if it is there as a whole."""
    if len(data) < place + 2:
        return None
    size, start = data[place + 1] & 0x7F, place + 2
    if size == 126:
        if len(data) < place + 4:
            return None
        size, start = int.from_bytes(data[place + 2 : place + 4], "big"), place + 4
    elif size == 127:
        if len(data) < place + 10:
            return None
        size, start = int.from_bytes(data[place + 2 : place + 10], "big"), place + 10
    return (start, start + size) if len(data) >= start + size else None


async def connect(
    address: str,
    token: str,
    count: int,
    *,
    at_once: int = 64,
    is_bare: bool = False,
    on_message: Callable[[Subscriber, bytes], None] | None = None,
    query_of: Callable[[int], str] = lambda _: EVENTS,
) -> list[Subscriber]:
    """Connects and subscribes `count` clients; a bare server sends nothing, so there the handshake is enough.

    `query_of` gives each client, by its number, what it subscribes to.
    """
    host, port = address.rsplit(":", 1)
    gate = asyncio.Semaphore(at_once)
    loop = asyncio.get_running_loop()

    async def one(number: int) -> Subscriber:
        def made() -> Subscriber:
            return Subscriber(address, token, on_message, is_bare=is_bare, query=query_of(number))

        async with gate:
            _, subscriber = await loop.create_connection(made, host, int(port))
            await subscriber.ready
            return subscriber

    return list(await asyncio.gather(*(one(number) for number in range(count))))
