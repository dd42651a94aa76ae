"""An HTTP client that costs little CPU, so that the servers get most of the machine."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import urlsplit


@dataclass(slots=True)
class Load:
    """What the connections of one round have in common: the bodies to send, and the times of the responses."""

    bodies: Iterator[bytes]
    until: float
    seconds: list[float] = field(default_factory=list[float])
    refused: bytes = b""


class HttpConnection(asyncio.Protocol):
    """Sends the next body when the response to the last one is complete, until the round is over."""

    def __init__(self, head: bytes, load: Load) -> None:
        self._head = head
        self._load = load
        self._received = bytearray()
        self._expected = 0
        self._sent = 0.0
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._send()

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._expected:
            head = _head_of(self._received)
            if not head:
                return
            if not head.startswith(b"http/1.1 200"):
                self._load.refused = bytes(self._received[:500])
            self._expected = _length(head)
        if len(self._received) >= self._expected:
            now = time.perf_counter()
            self._load.seconds.append(now - self._sent)
            self._received.clear()
            self._expected = 0
            if now < self._load.until and not self._load.refused:
                self._send()
            else:
                self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.over.done():
            self.over.set_result(None)

    def _send(self) -> None:
        body = next(self._load.bodies)
        self._sent = time.perf_counter()
        self._transport.write(b"%b%d\r\n\r\n%b" % (self._head, len(body), body))


class CallConnection(asyncio.Protocol):
    """One request at a time, for callers that look at each response."""

    def __init__(self, url: str, token: str) -> None:
        self._head = _request_head(url, token)
        self._received = bytearray()
        self._response: asyncio.Future[bytes] | None = None
        self.is_closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    async def post(self, body: bytes) -> bytes:
        self._response = asyncio.get_running_loop().create_future()
        self._transport.write(b"%b%d\r\n\r\n%b" % (self._head, len(body), body))
        return await self._response

    def data_received(self, data: bytes) -> None:
        self._received += data
        head = _head_of(self._received)
        if not head or len(self._received) < _length(head) or self._response is None:
            return
        if head.startswith(b"http/1.1 200"):
            self._response.set_result(bytes(self._received[len(head) + 4 :]))
        else:
            self._response.set_exception(SystemExit(f"answered {bytes(self._received[:500])!r}"))
        self._received.clear()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True
        if self._response is not None and not self._response.done():
            self._response.set_exception(SystemExit("the server closed the connection"))

    def close(self) -> None:
        self._transport.close()


def _request_head(url: str, token: str) -> bytes:
    """All of it but the length of the body."""
    to = urlsplit(url)
    return (
        f"POST {to.path} HTTP/1.1\r\nHost: {to.netloc}\r\nAuthorization: Bearer {token}\r\n"
        "Content-Type: application/json\r\nContent-Length: "
    ).encode()


def _head_of(received: bytearray) -> bytes:
    """In lower case; empty while it is not complete."""
    end = received.find(b"\r\n\r\n")
    return b"" if end < 0 else bytes(received[:end]).lower()


def _length(head: bytes) -> int:
    """Of the whole response."""
    _, _, length = head.partition(b"content-length:")
    return len(head) + 4 + int(length.split(b"\r\n", 1)[0])


async def send_for(
    seconds: float, urls: list[str], token: str, bodies: Iterator[bytes], *, connections: int
) -> list[float]:
    """The seconds that each response took. The connections are spread over the addresses."""
    load = Load(bodies, time.perf_counter() + seconds)
    made: list[HttpConnection] = []
    for number in range(connections):
        to = urlsplit(urls[number % len(urls)])
        head = _request_head(urls[number % len(urls)], token)
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda head=head: HttpConnection(head, load), to.hostname, to.port
        )
        made.append(connection)
    await asyncio.gather(*(each.over for each in made))
    if load.refused:
        raise SystemExit(f"{urls} answered {load.refused.decode(errors='replace')}")
    return load.seconds
