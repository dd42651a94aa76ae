"""Clients that others have published for the provider work with the simulator."""

from collections import Counter
from pathlib import Path

import pytest

from server.simulator.app import HANDLERS, HOST_HANDLERS
from server.simulator.options import SimulatorOptions
from server.simulator.server import Simulator
from tests.support.other_environment import python_with, run_program

PROGRAMS = Path(__file__).parent / "clients"
PACKAGES = ("novita==0.1.0", "novita-sdk==0.5.0")
SPEED = 100
# Routes that neither package calls.
OTHERS = {
    "POST /gpu/instance/setAutoMigrate",  # in none of them
    # The command line has account and billing commands for another API, /v3/user; the SDK has none.
    "GET /openapi/v1/billing/balance/detail",
    "GET /openapi/v1/billing/bill/list",
    "GET /openapi/v1/billing/bill/monthly/list",
}


@pytest.fixture(scope="module")
async def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return await python_with(tmp_path_factory.mktemp("clients") / "venv", *PACKAGES)


async def test_published_clients_find_every_route_as_they_expect_it(python: Path):
    used: Counter[str] = Counter()
    for program in ("use_sdk.py", "use_command_line.py"):
        async with Simulator(SimulatorOptions(speed=SPEED)) as simulator:
            code, printed, said = await run_program(python, PROGRAMS / program, simulator.url)
            assert code == 0, f"{program}: {printed}{said}"
            used.update(simulator.world.calls)

    assert used.pop("unknown") == 3  # the commands of the other API
    assert used.keys() == {*HANDLERS, *HOST_HANDLERS} - OTHERS
