"""uvicorn in our own event loop, with our own signal handling."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from email.utils import formatdate

import uvicorn
from uvicorn.server import ServerState


class _State(ServerState):
    """Makes the date header for a request, at most once a second: uvicorn's own timer would wake an idle process."""

    _headers: list[tuple[bytes, bytes]]
    _second = 0

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        second = int(time.time())
        if second != self._second:
            self._second, self._headers = second, [(b"date", formatdate(second, usegmt=True).encode())]
        return self._headers

    @default_headers.setter
    def default_headers(self, headers: list[tuple[bytes, bytes]]) -> None:  # type: ignore[override]
        self._headers = headers


class _Server(uvicorn.Server):
    """uvicorn's server without its signal handlers: they would re-raise signals past our own shutdown."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.server_state = _State()
        self.is_up = asyncio.Event()
        self._is_leaving = asyncio.Event()

    def leave(self) -> None:
        self.should_exit = True
        self._is_leaving.set()

    async def main_loop(self) -> None:
        """uvicorn's own looks ten times a second whether it should exit."""
        await self._is_leaving.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()


@asynccontextmanager
async def running(config: uvicorn.Config, listener: socket.socket) -> AsyncGenerator[None]:
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]), name="http")
    started = asyncio.create_task(server.is_up.wait())
    try:
        await asyncio.wait([task, started], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        yield
    finally:
        started.cancel()
        server.leave()
        await task
