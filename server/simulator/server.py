"""A running simulator: an HTTP server in the caller's event loop."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from server.simulator.app import TRANSPORT_KEY, create_app
from server.simulator.clock import SimulatedClock
from server.simulator.control_api import control_actions
from server.simulator.listeners import EndpointListeners
from server.simulator.options import SimulatorOptions
from server.simulator.scenario.player import ScenarioPlayer
from server.simulator.scenario.script import read_scenario
from server.simulator.world import World

# Seconds that running requests may take when the simulator stops.
STOP_TIMEOUT = 0.5
# Seconds between two batches of steps.
SLEEP_MIN = 0.002
DEFAULT_API_KEY = "sk_simulator"


class Simulator:
    """`async with Simulator(SimulatorOptions(speed=50)) as simulator: ... simulator.url`.

    It uses uvicorn's protocol without uvicorn's server: no signal handlers, no polling main loop, and stopping takes no
    longer than the running requests.
    """

    def __init__(
        self,
        options: SimulatorOptions | None = None,
        *,
        clock: SimulatedClock | None = None,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`report` gets what a scenario could not do. Raises BadScenario."""
        self.options = options or SimulatorOptions()
        self.world = World(self.options, clock)
        self.api_key = self.options.api_keys[0] if self.options.api_keys else DEFAULT_API_KEY
        self.url = ""
        self.endpoints = EndpointListeners(self.world, host="127.0.0.1", limit=self.options.max_listeners)
        self._state = ServerState()
        self._server: asyncio.Server | None = None
        self._stepper: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._scenario: ScenarioPlayer | None = None
        self._playing: asyncio.Task[None] | None = None
        if self.options.scenario is not None:
            actions = control_actions(self.world)
            steps = read_scenario(self.options.scenario, actions.keys())
            self._scenario = ScenarioPlayer(self.world, steps, actions, report)

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
        # First the listeners of instances that ran at the last stop, then the steps that were due since then.
        self.endpoints.reopen()
        self.world.advance()
        self.world.commit()
        config = Config(
            create_app(self.world),
            http=CuttableProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            # Longer than clients keep idle connections, so that none is closed just as it is reused.
            timeout_keep_alive=120,
            proxy_headers=False,
            server_header=False,
            date_header=False,
        )
        config.load()
        self._server = await asyncio.get_running_loop().create_server(
            lambda: CuttableProtocol(config=config, server_state=self._state, app_state={}), sock=bound, backlog=2048
        )
        self._stepper = asyncio.create_task(self._step())
        if self._scenario is not None:
            self._playing = asyncio.create_task(self._scenario.play())

    async def stop(self) -> None:
        if self._server is None or self._stepper is None:
            self.world.close()
            return
        self._server.close()
        tasks = [task for task in (self._stepper, self._playing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in list(self._state.connections):
            connection.shutdown()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=STOP_TIMEOUT)
        for connection in list(self._state.connections):
            if isinstance(connection, CuttableProtocol):
                connection.transport.abort()
        # Cutting the connection ends hanging requests.
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=STOP_TIMEOUT)
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

    async def _step(self) -> None:
        """Applies steps without requests, so that listeners open in time; sleeps until the earliest step."""
        while True:
            self._wake.clear()
            self.world.advance()
            dues = [due for due in (self.world.next_due(), self.endpoints.next_due()) if due is not None]
            seconds = self.world.clock.real_seconds_until(min(dues)) if dues else None
            # A minimum sleep, so that thousands of steps are applied in batches.
            await asyncio.sleep(SLEEP_MIN)
            # Not wait_for: in Python 3.11 it loses a cancellation that coincides with the event, and `stop` would hang.
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._wake.wait()


class CuttableProtocol(HttpToolsProtocol):
    """Passes the connection to the application, which may cut it."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[TRANSPORT_KEY] = self.transport  # pyright: ignore[reportGeneralTypeIssues]


def _bind(host: str, port: int) -> socket.socket:
    # With the protocol named: asyncio sets TCP_NODELAY (saves 40 ms per response) only on sockets it knows are TCP.
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    if port:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    # After the bind, and inherited by connections: their TIME_WAIT must not keep a successor from the port.
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.setblocking(False)
    return bound
