"""uvicorn in our own event loop, with our own signal handling."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager

import uvicorn


class _Server(uvicorn.Server):
    """uvicorn's server without its signal handlers: they would re-raise signals past our own shutdown."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = asyncio.Event()
        self._is_leaving = asyncio.Event()

    def leave(self) -> None:
        self.should_exit = True
        self._is_leaving.set()

    async def main_loop(self) -> None:
        """Once a second, for the date header; uvicorn's own looks ten times whether it should exit."""
        counter = 0
        while not await self.on_tick(counter):
            counter += 10  # uvicorn counts tenths of a second
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
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
