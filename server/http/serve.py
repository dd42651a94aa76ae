"""Runs uvicorn in our own event loop, with our own signal handling."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette

from server.config import Settings
from server.http.app import create_app, create_starting_app, create_worker_app
from server.http.pages import Pages
from server.http.protocols import protocol_for
from server.http.security import SecurityMiddleware
from server.http.websocket import DirectWebSocketProtocol
from server.runtime import Runtime
from server.ssrf import raise_open_files


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
async def serve_http(
    runtime: Runtime, listener: socket.socket, *, pages: Pages | None = None
) -> AsyncGenerator[Starlette]:
    """Serve until the block ends; then finish requests and close sockets with a code that makes clients resume."""
    raise_open_files()  # before the protocol reads how many connections there may be
    app = create_app(runtime, pages)
    config = uvicorn.Config(
        SecurityMiddleware(app, runtime.settings),
        http=protocol_for(runtime.settings),
        log_config=None,
        access_log=False,  # requests are in our own log
        lifespan="off",
        proxy_headers=False,  # the protocol reads them, and only from TRUSTED_PROXIES
        ws=DirectWebSocketProtocol,
        ws_per_message_deflate=False,  # measured: 2.7 times the memory and up to 3 times the CPU
        ws_max_size=app.state.service.settings.socket_message_bytes,
        ws_ping_interval=None,  # graphql-transport-ws has its own pings, sent by one task for all sockets
        server_header=False,
        timeout_graceful_shutdown=max(1, int(runtime.settings.shutdown_timeout.total_seconds())),
    )
    async with _serving(config, listener):
        try:
            yield app
        finally:
            await runtime.drain()
            await app.state.mcp.stop()
            await app.state.login.close()
            await app.state.service.stop()


@asynccontextmanager
async def serve_health(runtime: Runtime, listener: socket.socket) -> AsyncGenerator[None]:
    """For a process that only runs jobs: health and metrics."""
    async with _serving(_health_config(create_worker_app(runtime), runtime.settings), listener):
        yield


@asynccontextmanager
async def serve_starting(settings: Settings, listener: socket.socket) -> AsyncGenerator[None]:
    """While a process waits for its database: it is alive and not ready. The listener stays open after the block."""
    async with _serving(_health_config(create_starting_app(), settings), listener.dup()):
        yield


def _health_config(app: Starlette, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        SecurityMiddleware(app, settings),
        http=protocol_for(settings),
        log_config=None,
        access_log=False,  # requests are in our own log
        lifespan="off",
        proxy_headers=False,  # the protocol reads them, and only from TRUSTED_PROXIES
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=1,
    )


@asynccontextmanager
async def _serving(config: uvicorn.Config, listener: socket.socket) -> AsyncGenerator[None]:
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
