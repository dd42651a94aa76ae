"""Clients that others have published for the provider work with the simulator."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from server.simulator.app import HANDLERS, HOST_HANDLERS
from server.simulator.options import SimulatorOptions
from server.simulator.server import Simulator

BIN = Path(sys.executable).parent
PROGRAMS = Path(__file__).parent / "clients"
PACKAGES = ("novita==0.1.0", "novita-sdk==0.5.0")
SPEED = 100
# Routes that neither package has, or that it calls otherwise than the provider's reference says.
OTHERS = {
    "POST /gpu/instance/setAutoMigrate",  # in none
    "GET /openapi/v1/billing/balance/detail",
    "GET /openapi/v1/billing/bill/list",
    "GET /openapi/v1/billing/bill/monthly/list",
    "POST /job/break",  # the SDK sends job_id
    "POST /image/prewarm/delete",  # the SDK sends task_id
}


async def run(*command: str | Path) -> tuple[int, str]:
    environment = {**os.environ, "UV_HTTP_TIMEOUT": "20", "UV_HTTP_RETRIES": "1"}
    environment.pop("VIRTUAL_ENV", None)
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        async with asyncio.timeout(120):
            said, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        said, _ = await process.communicate()
    return process.returncode or 0, said.decode()


@pytest.fixture(scope="module")
async def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an environment with the clients, which are fetched now."""
    home = tmp_path_factory.mktemp("clients") / "venv"
    code, said = await run(BIN / "uv", "venv", "--quiet", "--python", sys.executable, home)
    assert code == 0, said
    code, said = await run(BIN / "uv", "pip", "install", "--quiet", "--python", home / "bin/python", *PACKAGES)
    if "Failed to fetch" in said or "network was disabled" in said:
        pytest.skip(f"the package registry can't be reached for {', '.join(PACKAGES)}: {said[-300:]}")
    assert code == 0, said
    return home / "bin/python"


async def test_published_clients_find_every_route_as_they_expect_it(python: Path):
    used: set[str] = set()
    for program in ("use_sdk.py", "use_command_line.py"):
        async with Simulator(SimulatorOptions(speed=SPEED)) as simulator:
            code, said = await run(python, PROGRAMS / program, simulator.url)
            assert code == 0, f"{program}: {said}"
            used |= simulator.world.calls.keys()

    assert used == {*HANDLERS, *HOST_HANDLERS} - OTHERS
