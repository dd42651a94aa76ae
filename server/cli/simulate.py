"""Runs the simulator of the provider in a process of its own."""

from pathlib import Path

from server.cli.console import report_progress
from server.config import Settings
from server.errors import StartupProblem
from server.http.listener import bind, stop_event
from server.simulator.dialect import BadDialect, Dialect
from server.simulator.options import SimulatorOptions
from server.simulator.scenario.script import BadScenario
from server.simulator.server import Simulator


async def simulate(
    settings: Settings,
    *,
    host: str,
    port: int,
    api_keys: tuple[str, ...],
    state_file: Path | None,
    scenario: Path | None = None,
) -> None:
    """Run only the simulator, until a signal stops it."""
    stop = stop_event()
    bind(host, port).close()
    options = SimulatorOptions(
        host=host,
        port=port,
        api_keys=api_keys,
        speed=settings.simulator_speed,
        state_file=state_file,
        dialect=configured_dialect(settings),
        scenario=scenario,
    )
    try:
        simulator = Simulator(options, report=lambda text: report_progress("simulator.scenario", text))
    except BadScenario as error:
        raise StartupProblem(f"the scenario is not right: {error}") from None
    await simulator.start()
    try:
        keys = "with its key" if api_keys else "any key will do"
        text = f"simulator of the Novita.ai API at {simulator.url} ({keys}); nothing real is created"
        report_progress("simulator.ready", text, url=simulator.url)
        await stop.wait()
    finally:
        await simulator.stop()


def configured_dialect(settings: Settings) -> Dialect:
    try:
        return Dialect.parse(settings.simulator_dialect or "")
    except BadDialect as error:
        raise StartupProblem(f"SIMULATOR_DIALECT is not right: {error}") from None
