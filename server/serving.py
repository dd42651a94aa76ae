"""Running the HTTP server inside our own loop, with our own signals."""

import asyncio
import contextlib
import errno
import signal
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette

from server.app import create_app, create_worker_app
from server.errors import StartupProblem
from server.pages import Pages
from server.patience import patient
from server.runtime import Runtime
from server.shield import Shield
from server.wire import Wire


class _Server(uvicorn.Server):
    """uvicorn would take the signals for itself and raise them again, past our own shutdown."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()


def bind(host: str, port: int) -> socket.socket:
    """Take the port before anything else is started, so that a taken one is told at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio switches Nagle off only then: without it an answer may wait for 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise StartupProblem(f"port {port} on {host} is taken; choose another with --port (0 takes any)") from None
        raise StartupProblem(f"can't listen on {host} port {port}: {error.strerror or error}") from None
    except OverflowError:
        listener.close()
        raise StartupProblem(f"there is no port {port}") from None
    return listener


def address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@asynccontextmanager
async def http(runtime: Runtime, listener: socket.socket, *, pages: Pages | None = None) -> AsyncGenerator[Starlette]:
    """Serve until the block ends; then let requests finish and close sockets with a code that makes clients resume."""
    app = create_app(runtime, pages)
    config = uvicorn.Config(
        Shield(app, runtime.settings),
        http=patient(runtime.settings),
        log_config=None,
        access_log=False,  # requests are in our own log
        lifespan="off",
        ws=Wire,
        ws_per_message_deflate=False,  # measured: 2.7 times the memory and up to 3 times the CPU
        ws_max_size=app.state.hub.limits.socket_message_bytes,
        ws_ping_interval=None,  # pings are of the protocol inside, and one task sends them to everybody
        server_header=False,
        timeout_graceful_shutdown=max(1, int(runtime.settings.shutdown_timeout.total_seconds())),
    )
    async with _serving(config, listener):
        try:
            yield app
        finally:
            await runtime.drain()
            await app.state.hub.stop()


@asynccontextmanager
async def looks(runtime: Runtime, listener: socket.socket) -> AsyncGenerator[None]:
    """For a process that only runs jobs: whether it is well, and its figures."""
    config = uvicorn.Config(
        Shield(create_worker_app(runtime), runtime.settings),
        http=patient(runtime.settings),
        log_config=None,
        access_log=False,  # requests are in our own log
        lifespan="off",
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    async with _serving(config, listener):
        yield


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
        server.should_exit = True
        await task


def stop_event() -> asyncio.Event:
    """Set by the first Ctrl-C or SIGTERM. The second one ends the process at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal(number: Any) -> None:
        stop.set()
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(each)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal, number)
    return stop
