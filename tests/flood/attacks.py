"""What hostile clients do: each attack runs for some seconds against a server on loopback, from a process of its own.

python -m tests.flood.attacks NAME HOST PORT SECONDS, with the token in TOKEN
"""

import asyncio
import contextlib
import gzip
import itertools
import os
import re
import resource
import socket
import struct
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from ipaddress import ip_address
from urllib.request import Request, urlopen

import orjson

STALLED = 0.5  # seconds without progress after which a flooder starts anew
CROWD = 900  # connections of one address: nearly as many as STRANGERS_PER_ADDRESS allows
CONNECTS_PER_SECOND, CONNECTS_AT_ONCE = 10_000, 500


@dataclass
class Attack:
    host: str
    port: int
    seconds: float
    token: str
    counts: dict[str, int] = field(default_factory=dict[str, int])

    def __post_init__(self) -> None:
        assert ip_address(self.host).is_loopback  # never anything else
        self.until = 0.0

    def begin(self) -> None:
        """Start the clock and report it: what is sent is ready by now, however long that took."""
        self.until = time.monotonic() + self.seconds
        sys.stdout.write("begun\n")
        sys.stdout.flush()

    @property
    def is_on(self) -> bool:
        return time.monotonic() < self.until

    def count(self, what: str, number: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + number

    async def connect(self, first: bytes = b"", *, small_window: bool = False) -> "Line":
        wire = socket.socket()
        if small_window:
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        wire.setblocking(False)
        await asyncio.get_running_loop().sock_connect(wire, (self.host, self.port))
        line = Line(wire)
        self.count("connections")
        if first:
            await line.send(first)
        return line

    def get(self, path: str, *more: str) -> bytes:
        return "\r\n".join([f"GET {path} HTTP/1.1", f"host: {self.host}:{self.port}", *more, "", ""]).encode()

    def upgrade(self, *more: str) -> bytes:
        return self.get(
            "/graphql", "connection: upgrade", "upgrade: websocket", "sec-websocket-version: 13",
            "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==", "sec-websocket-protocol: graphql-transport-ws", *more,
        )  # fmt: skip

    def post(self, *more: str) -> bytes:
        head = [f"authorization: Bearer {self.token}", "content-type: application/json", *more]
        return self.get("/graphql", *head).replace(b"GET", b"POST", 1)

    def init(self) -> bytes:
        return text({"type": "connection_init", "payload": {"Authorization": f"Bearer {self.token}"}})

    async def crowd(self, size: int, client: Callable[[], Awaitable[None]]) -> None:
        """That many clients, each of which starts anew when it is cut off."""
        self.begin()

        async def one() -> None:
            while self.is_on:
                try:
                    async with asyncio.timeout(max(0.01, self.until - time.monotonic())):
                        await client()
                except TimeoutError:
                    await asyncio.sleep(0)
                except OSError:
                    self.count("cut off")
                    await asyncio.sleep(0.05)

        await asyncio.gather(*(one() for _ in range(size)))


class Line:
    def __init__(self, wire: socket.socket) -> None:
        self._wire = wire
        self._loop = asyncio.get_running_loop()

    async def send(self, data: bytes) -> None:
        async with asyncio.timeout(STALLED):
            await self._loop.sock_sendall(self._wire, data)

    async def read(self, size: int = 65536) -> bytes:
        data = await self._loop.sock_recv(self._wire, size)
        if not data:
            raise ConnectionResetError
        return data

    def close(self) -> None:
        self._wire.close()


def frame(opcode: int, payload: bytes = b"", *, fin: bool = True, compressed: bool = False) -> bytes:
    size = bytes([0x80 | len(payload)]) if len(payload) < 126 else b"\xfe" + struct.pack("!H", len(payload))
    return bytes([(0x80 if fin else 0) | (0x40 if compressed else 0) | opcode]) + size + b"\0\0\0\0" + payload


def text(message: object) -> bytes:
    return frame(1, orjson.dumps(message))


async def empty_fragments(attack: Attack) -> None:
    """WebSocket messages that never end: fragments without content."""
    await _push(attack, 20, attack.upgrade() + frame(1, fin=False), frame(0, fin=False) * 5_000)


async def pipelining(attack: Attack) -> None:
    """Requests without end over one connection, whose responses are not read."""
    await _push(attack, 20, b"", attack.get("/healthz") * 500)


async def pings_of_a_stranger(attack: Attack) -> None:
    """WebSocket pings whose pongs are not read, without a token."""
    await _push(attack, 20, attack.upgrade(), frame(9, b"x" * 125) * 500)


async def pings_with_a_token(attack: Attack) -> None:
    """The same after a valid token."""
    await _push(attack, 20, attack.upgrade() + attack.init(), frame(9, b"x" * 125) * 500)


async def _push(attack: Attack, size: int, first: bytes, piece: bytes) -> None:
    async def client() -> None:
        line = await attack.connect(first, small_window=True)
        try:
            while attack.is_on:
                await line.send(piece)
                attack.count("KB", len(piece) // 1000)
        except TimeoutError:
            attack.count("not read any more")
            await asyncio.sleep(STALLED)
        finally:
            line.close()

    await attack.crowd(size, client)


async def waiting_bytes(attack: Attack) -> None:
    """As many connections as an address may have, each with as much that waits as the server takes."""
    head = attack.get("/graphql").removesuffix(b"\r\n") + b"x: y\r\n" * 10_000
    first = frame(1, b"x" * 65_535)
    kinds = itertools.cycle(
        [(b"", attack.get("/healthz") * 7_000), (b"", head), (attack.upgrade(), first[:-1]), (attack.upgrade(), b"")]
    )

    async def client() -> None:
        opening, piece = next(kinds)
        line = await attack.connect(opening, small_window=True)
        try:
            await line.send(piece)
            await asyncio.sleep(attack.until - time.monotonic())
        except TimeoutError:
            attack.count("not read any more")
            await asyncio.sleep(attack.until - time.monotonic())
        finally:
            line.close()

    await attack.crowd(CROWD, client)


async def unread_pages(attack: Attack) -> None:
    """The largest file of the web pages, asked for and not read."""
    request = attack.get(await asyncio.to_thread(_largest_file, f"http://{attack.host}:{attack.port}"))

    async def client() -> None:
        line = await attack.connect(request, small_window=True)
        try:
            await asyncio.sleep(attack.until - time.monotonic())
        finally:
            line.close()

    await attack.crowd(CROWD, client)


def _largest_file(server: str) -> str:
    """Of those that the pages name, if they are built."""

    def fetched(path: str) -> bytes:
        with urlopen(Request(server + path, headers={"accept": "text/html"})) as response:  # loopback
            return response.read()

    pages = [fetched(path).decode() for path in ("/", "/graphql")]
    names = {"/", *re.findall(r'(?:src|href)="(/[^"]+)"', "".join(pages))}
    return max(names, key=lambda name: len(fetched(name)))


async def readiness(attack: Attack) -> None:
    """The health checks that read the database, asked for without a pause."""

    async def client() -> None:
        line = await attack.connect()
        try:
            while attack.is_on:
                await line.send(attack.get("/readyz"))
                while b'"checks"' not in await line.read():
                    pass
                attack.count("answered")
        finally:
            line.close()

    await attack.crowd(50, client)


async def large_headers(attack: Attack) -> None:
    """Requests and handshakes with header lines above 8 KiB, or with hundreds of headers."""
    lines = ("x: " + "y" * 9000, *[f"x-{n}: y" for n in range(200)])
    heads = itertools.cycle(
        [make("/graphql", *more) for make in (attack.get, _upgrade(attack)) for more in (lines[:1], lines[1:])]
    )

    async def client() -> None:
        line = await attack.connect(next(heads))
        try:
            while attack.is_on:
                await line.read()
        except ConnectionResetError:
            attack.count("answered")
        finally:
            line.close()

    await attack.crowd(50, client)


def _upgrade(attack: Attack) -> Callable[..., bytes]:
    return lambda _path, *more: attack.upgrade(*more)


async def trailers(attack: Attack) -> None:
    """Fields behind a body in chunks that never end: the parser copies what it has at each piece."""
    head = attack.get("/graphql", "transfer-encoding: chunked").replace(b"GET", b"POST", 1)
    await _push(attack, 20, head + b"0\r\nx: ", b"y" * 65_536)


async def small_chunks(attack: Attack) -> None:
    """Bodies in chunks of one byte that never end, without a token."""
    head = attack.get("/graphql", "transfer-encoding: chunked").replace(b"GET", b"POST", 1)
    await _push(attack, 20, head, b"1\r\nx\r\n" * 10_000)


async def slow_headers(attack: Attack) -> None:
    """Heads that come byte by byte and never end."""

    async def client() -> None:
        line = await attack.connect(b"POST /graphql HTTP/1.1\r\nhost: x\r\nx: ")
        try:
            while attack.is_on:
                await line.send(b"y")
                await asyncio.sleep(0.5)
        finally:
            line.close()

    await attack.crowd(400, client)


async def slow_bodies(attack: Attack) -> None:
    """Bodies that come byte by byte, with a valid token."""

    async def client() -> None:
        line = await attack.connect(attack.post("content-length: 100000"))
        try:
            while attack.is_on:
                await line.send(b" ")
                await asyncio.sleep(0.5)
        finally:
            line.close()

    await attack.crowd(400, client)


async def connects(attack: Attack) -> None:
    """Connections that are closed at once, 10,000 a second."""
    linger = struct.pack("ii", 1, 0)
    attack.begin()
    began, made = time.monotonic(), 0
    while attack.is_on:
        due = int((time.monotonic() - began) * CONNECTS_PER_SECOND)  # a late wake-up is made up for
        for _ in range(min(due - made, CONNECTS_AT_ONCE)):
            wire = socket.socket()
            wire.setblocking(False)
            with contextlib.suppress(OSError):
                wire.connect_ex((attack.host, attack.port))
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            wire.close()
            attack.count("connections")
            made += 1
        await asyncio.sleep(0.005)


async def subscriptions(attack: Attack) -> None:
    """Sockets that subscribe and unsubscribe without a pause."""
    query = {"query": "subscription { instanceEvents { id } }"}

    async def client() -> None:
        line = await attack.connect(attack.upgrade() + attack.init())
        try:
            for number in itertools.count():
                ids = [f"{number}-{n}" for n in range(20)]
                await line.send(b"".join(text({"id": each, "type": "subscribe", "payload": query}) for each in ids))
                await line.send(b"".join(text({"id": each, "type": "complete"}) for each in ids))
                attack.count("subscriptions", len(ids))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await line.read()
        finally:
            line.close()

    await attack.crowd(50, client)


async def compression_bombs(attack: Attack) -> None:
    """A body and WebSocket frames that would be a thousand times larger when unpacked."""
    bomb = gzip.compress(b" " * 20_000_000)
    posts = attack.post(f"content-length: {len(bomb)}", "content-encoding: gzip") + bomb
    deflated = attack.upgrade("sec-websocket-extensions: permessage-deflate") + attack.init()
    sockets = deflated + frame(1, bomb, compressed=True)
    kinds = itertools.cycle([posts, sockets])

    async def client() -> None:
        line = await attack.connect(next(kinds))
        try:
            await line.read()
            attack.count("answered")
            await asyncio.sleep(0.02)
        finally:
            line.close()

    await attack.crowd(20, client)


ATTACKS = {
    each.__name__.replace("_", "-"): each
    for each in (
        empty_fragments,
        pipelining,
        pings_of_a_stranger,
        pings_with_a_token,
        waiting_bytes,
        unread_pages,
        readiness,
        large_headers,
        trailers,
        small_chunks,
        slow_headers,
        slow_bodies,
        connects,
        subscriptions,
        compression_bombs,
    )
}


async def main(name: str, host: str, port: str, seconds: str) -> None:
    os.nice(10)  # an attacker has a machine of its own
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    attack = Attack(host, int(port), float(seconds), os.environ["TOKEN"])
    await ATTACKS[name](attack)
    sys.stdout.write(orjson.dumps(attack.counts).decode() + "\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
