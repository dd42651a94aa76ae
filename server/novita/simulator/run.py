"""A running simulator: its own HTTP server in the loop of whoever starts it."""

import asyncio
import socket
from contextlib import suppress
from types import TracebackType
from typing import Self

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from server.novita.simulator.app import TRANSPORT, create_app
from server.novita.simulator.clock import WorldClock
from server.novita.simulator.endpoints import Endpoints
from server.novita.simulator.options import SimulatorOptions
from server.novita.simulator.world import World

# How long a call under way may take to finish when the simulator stops, in seconds.
GRACE = 0.5
# The pacer's shortest sleep, in seconds.
SHORTEST_SLEEP = 0.002
ANY_KEY = "sk_simulator"


class Simulator:
    """`async with Simulator(SimulatorOptions(speed=50)) as simulator: ... simulator.url`.

    It drives uvicorn's protocol itself: no signal handlers, no ticking main loop, and stopping takes no
    longer than the calls under way.
    """

    def __init__(self, options: SimulatorOptions | None = None, *, clock: WorldClock | None = None) -> None:
        self.options = options or SimulatorOptions()
        self.world = World(self.options, clock)
        self.api_key = self.options.api_keys[0] if self.options.api_keys else ANY_KEY
        self.url = ""
        self.endpoints = Endpoints(self.world, host="127.0.0.1", limit=self.options.max_listeners)
        self._state = ServerState()
        self._server: asyncio.Server | None = None
        self._pacer: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()

    async def start(self) -> None:
        try:
            bound = _bind(self.options.host, self.options.port)
        except OSError:
            self.world.close()
            raise
        host, port = bound.getsockname()[:2]
        self.url = self.world.public_url = f"http://{'127.0.0.1' if host == '0.0.0.0' else host}:{port}"
        self.world.endpoints = self.endpoints
        self.world.on_plan = self._wake.set
        # First those that ran when the simulator went down; then what became of all of them meanwhile.
        self.endpoints.reopen()
        self.world.settle()
        self.world.commit()
        config = Config(
            create_app(self.world),
            http=CuttableProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            # Longer than any client keeps an idle connection, so that none is closed just as it is used again.
            timeout_keep_alive=120,
            proxy_headers=False,
            server_header=False,
            date_header=False,
        )
        config.load()
        self._server = await asyncio.get_running_loop().create_server(
            lambda: CuttableProtocol(config=config, server_state=self._state, app_state={}), sock=bound, backlog=2048
        )
        self._pacer = asyncio.create_task(self._pace())

    async def stop(self) -> None:
        if self._server is None or self._pacer is None:
            self.world.close()
            return
        self._server.close()
        self._pacer.cancel()
        await asyncio.gather(self._pacer, return_exceptions=True)
        for connection in list(self._state.connections):
            connection.shutdown()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=GRACE)
        for connection in list(self._state.connections):
            if isinstance(connection, CuttableProtocol):
                connection.transport.abort()
        # Cutting the connection tells a hanging call that its caller is gone.
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=GRACE)
        await self.endpoints.stop()
        self.world.close()
        self._server = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _pace(self) -> None:
        """Listeners must open although nobody asks; one sleeper wakes for the earliest step of all."""
        while True:
            self._wake.clear()
            self.world.settle()
            dues = [due for due in (self.world.next_due(), self.endpoints.next_due()) if due is not None]
            seconds = self.world.clock.real_seconds_until(min(dues)) if dues else None
            # A rest in any case, so that thousands of steps are taken in handfuls.
            await asyncio.sleep(SHORTEST_SLEEP)
            # Not wait_for: in Python 3.11 it swallows a cancellation that meets the event, and `stop` would hang.
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._wake.wait()


class CuttableProtocol(HttpToolsProtocol):
    """Hands the connection to the application, which may have to cut it."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[TRANSPORT] = self.transport  # pyright: ignore[reportGeneralTypeIssues]


def _bind(host: str, port: int) -> socket.socket:
    # Named protocol: asyncio turns off Nagle's delay (40 ms an answer) only where it knows that this is TCP.
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    if port:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    bound.setblocking(False)
    return bound
