"""A bad network between two processes: cut, slow, narrow, silent or half-open, each direction by itself."""

import asyncio
import contextlib
import random
import socket
import struct
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

CHUNK = 16 * 1024
AT_ONCE = struct.pack("ii", 1, 0)  # linger for no time: closing sends a reset, and what is left unsent is dropped


@dataclass
class Way:
    """One direction. All of it is as it should be unless said otherwise."""

    delay: float = 0.0  # seconds that every piece takes
    jitter: float = 0.0  # and up to so many more
    bytes_per_second: float = 0.0  # 0: no limit
    left: int | None = None  # so many bytes get through, then every connection is reset
    flowing: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.flowing.set()

    def mend(self) -> None:
        self.delay = self.jitter = self.bytes_per_second = 0.0
        self.left = None
        self.flowing.set()


class FaultProxy:
    """Forwards connections on `port` to one address. What it does wrong follows from the calls and the seed alone.

    `up` is the way to the server, `down` the way back. Bytes that were held back are dropped if their sender has hung
    up meanwhile: on a real network they would have been in its own buffers, and gone with it.
    """

    def __init__(self, port: int, *, host: str = "127.0.0.1", seed: int | str = 0) -> None:
        self._target = (host, port)
        self._chance = random.Random(seed)
        self._links: set[_Link] = set()
        self._is_cut = False
        self._server: asyncio.Server | None = None
        self.up, self.down = Way(), Way()
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=CHUNK)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        tasks = [link.task for link in self._links if link.task is not None]
        self.reset()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def connections(self) -> int:
        return len(self._links)

    def mend(self) -> None:
        """Everything works again. Half-open connections stay dead: their clients get no notice."""
        self._is_cut = False
        self.up.mend()
        self.down.mend()

    def cut(self) -> None:
        """Every connection is reset, and so is every new one."""
        self._is_cut = True
        self.reset()

    def reset(self) -> None:
        """Every connection of this moment is reset; new ones work."""
        for link in list(self._links):
            link.reset()

    def silence(self, *, up: bool = True, down: bool = True) -> None:
        """Nothing gets through; connections stay open, and new ones are made."""
        if up:
            self.up.flowing.clear()
        if down:
            self.down.flowing.clear()

    def half_open(self) -> None:
        """The server's side of every connection ends, and its client never learns of it. New ones work."""
        for link in self._links:
            link.leave_hanging()

    def slow(self, delay: float, *, jitter: float = 0.0, up: bool = True, down: bool = True) -> None:
        for way in self._ways(up=up, down=down):
            way.delay, way.jitter = delay, jitter

    def narrow(self, bytes_per_second: float, *, up: bool = True, down: bool = True) -> None:
        for way in self._ways(up=up, down=down):
            way.bytes_per_second = bytes_per_second

    def break_after(self, bytes_up: int | None = None, *, bytes_down: int | None = None) -> None:
        """So many bytes more, then all connections are reset in the middle of whatever they carry. Once."""
        self.up.left, self.down.left = bytes_up, bytes_down

    def _ways(self, *, up: bool, down: bool) -> list[Way]:
        return [way for way, wanted in ((self.up, up), (self.down, down)) if wanted]

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _Link(writer)
        if self._is_cut:
            link.reset()
            return
        self._links.add(link)
        link.task = asyncio.create_task(self._serve(link, reader))

    async def _serve(self, link: "_Link", reader: asyncio.StreamReader) -> None:
        try:
            with contextlib.suppress(OSError):
                await self._carry(link, reader)
        finally:
            link.reset()
            self._links.discard(link)

    async def _carry(self, link: "_Link", reader: asyncio.StreamReader) -> None:
        there, link.far = await asyncio.open_connection(*self._target, limit=CHUNK)
        pipes = [
            asyncio.create_task(self._pipe(reader, link.far, self.up)),
            asyncio.create_task(self._pipe(there, link.near, self.down)),
        ]
        hanging = asyncio.create_task(link.is_hanging.wait())
        try:
            await asyncio.wait([*pipes, hanging], return_when=asyncio.FIRST_COMPLETED)
            if hanging.done():
                for pipe in pipes:
                    pipe.cancel()
                _abort(link.far)
                await asyncio.Event().wait()  # until the proxy ends or the client hangs up
            await asyncio.wait(pipes, timeout=1.0)  # one side has closed: let the other finish its words
        finally:
            for task in (*pipes, hanging):
                task.cancel()
            await asyncio.gather(*pipes, hanging, return_exceptions=True)

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way) -> None:
        while data := await reader.read(CHUNK):
            if not way.flowing.is_set():
                await way.flowing.wait()
                if reader.at_eof() or reader.exception() is not None:
                    return
            if way.delay or way.jitter:
                await asyncio.sleep(way.delay + self._chance.random() * way.jitter)
            if way.bytes_per_second:
                await asyncio.sleep(len(data) / way.bytes_per_second)
            if way.left is not None:
                data, way.left = data[: way.left], way.left - len(data)
                if way.left <= 0:
                    way.left = None
                    writer.write(data)
                    await asyncio.sleep(0)
                    self.reset()
                    return
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


class _Link:
    """One connection of a client, and ours to the server on its behalf."""

    def __init__(self, near: asyncio.StreamWriter) -> None:
        self.near = near
        self.far: asyncio.StreamWriter | None = None
        self.task: asyncio.Task[None] | None = None
        self.is_hanging = asyncio.Event()

    def leave_hanging(self) -> None:
        self.is_hanging.set()

    def reset(self) -> None:
        _abort(self.near)
        if self.far is not None:
            _abort(self.far)


def _abort(writer: asyncio.StreamWriter) -> None:
    wire: socket.socket | None = writer.get_extra_info("socket")
    if wire is not None:
        with contextlib.suppress(OSError):
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
    writer.transport.abort()
