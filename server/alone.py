"""One part of Pilotlight in a process of its own: the API, the workers, or the simulator."""

import os
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from server.auth.tokens import any_token
from server.config import Settings
from server.db import migrate
from server.db.engine import Database
from server.errors import StartupProblem
from server.novita.simulator.options import SimulatorOptions
from server.novita.simulator.run import Simulator
from server.progress import tell
from server.ready import Ready, write_whole
from server.runtime import Runtime
from server.serving import address_of, bind, http, looks, stop_event


@dataclass(frozen=True, slots=True)
class Provider:
    """Where the provider is, and by which key."""

    url: str
    key: SecretStr
    is_simulated: bool


async def run_worker(settings: Settings, database_url: str, provider: Provider) -> None:
    """Only the workers, until told to stop."""
    stop = stop_event()
    listener = None if settings.worker_port is None else bind(settings.host, settings.worker_port)
    await _check_database(settings.directly(database_url))
    async with AsyncExitStack() as stack:
        at: dict[str, str] = {}
        if listener is not None:
            stack.callback(listener.close)
            at = {"url": f"http://{address_of(listener)}"}
        runtime = Runtime(settings, database_url=database_url, novita_url=provider.url, novita_key=provider.key)
        if listener is not None:
            await stack.enter_async_context(looks(runtime, listener))
        await stack.enter_async_context(runtime)
        runtime.work()
        tell("worker.ready", " ".join(["Pilotlight worker is ready", *at.values()]), **at)
        await stop.wait()
        runtime.begin_stop()


async def run_api(settings: Settings, database_url: str, provider: Provider, *, ready_file: Path | None) -> None:
    """Only the API, until told to stop."""
    stop = stop_event()
    listener = bind(settings.host, settings.port)
    await _check_database(settings.directly(database_url))
    await refuse_open_door(settings, database_url)
    async with AsyncExitStack() as stack:
        stack.callback(listener.close)
        runtime = await stack.enter_async_context(
            Runtime(settings, database_url=database_url, novita_url=provider.url, novita_key=provider.key)
        )
        runtime.follow_events()
        await stack.enter_async_context(http(runtime, listener))
        at = address_of(listener)
        tell("api.ready", f"Pilotlight API is ready at http://{at}/graphql", graphql_url=f"http://{at}/graphql")
        if ready_file is not None:
            ready = Ready(
                graphql_url=f"http://{at}/graphql",
                websocket_url=f"ws://{at}/graphql",
                token=None,
                simulator_url=None,
                database_url=database_url,
                pid=os.getpid(),
            )
            write_whole(ready_file, ready.to_json())
        await stop.wait()


async def simulate(*, host: str, port: int, speed: float, state_file: Path | None) -> None:
    """Only the simulator, until told to stop."""
    stop = stop_event()
    bind(host, port).close()
    simulator = Simulator(SimulatorOptions(host=host, port=port, speed=speed, state_file=state_file))
    await simulator.start()
    try:
        words = f"simulator of the Novita.ai API at {simulator.url} (any key will do); nothing real is created"
        tell("simulator.ready", words, url=simulator.url)
        await stop.wait()
    finally:
        await simulator.stop()


async def refuse_open_door(settings: Settings, database_url: str) -> None:
    """If others can reach us, there has to be somebody whom we would let in. Asked before anything of ours runs."""
    if settings.is_loopback:
        return
    database = Database(settings.directly(database_url), pool_size=1)
    try:
        async with database.read() as session:
            if await any_token(session):
                return
    finally:
        await database.close()
    raise StartupProblem(
        f"{settings.host} can be reached from elsewhere and there is no token yet; "
        "make one with `pilotlight token create`, or listen on 127.0.0.1"
    )


async def _check_database(url: str) -> None:
    """Before anything of ours runs: a sequencer must not lead a log whose tables it does not know."""
    await migrate.check_server(url)
    database = Database(url, pool_size=1)
    try:
        await migrate.check_is_current(database)
    finally:
        await database.close()
