"""The client's README and its example program do what they say; both are checked by strict types as well."""

import asyncio
import re
import sys
from uuid import uuid4

import pytest
from pilotlight_client import AsyncPilotlight, Pilotlight

from tests.support.processes import ROOT, Up

FOLDER = ROOT / "examples" / "python"
PROGRAMS: dict[str, type] = {"use_client.py": Pilotlight, "use_async_client.py": AsyncPilotlight}
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


async def run(running: Up, *command: str) -> str:
    started = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        env={"PILOTLIGHT_URL": running.graphql_url, "PILOTLIGHT_TOKEN": running.token},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, said = await started.communicate()
    assert started.returncode == 0, said.decode()
    return printed.decode()


async def test_the_readme(running: Up):
    block, steps = BLOCK.findall((ROOT / "client" / "README.md").read_text())

    (first,) = BLOCK.findall((ROOT / "README.md").read_text())

    for program in (block, first):
        named = re.sub(r'name="\w+"', f'name="{uuid4().hex}"', program)
        assert (await run(running, "-c", named)).startswith("http://127.0.0.1:")
    steps = steps.replace('"server"', f'"{uuid4().hex}"')
    assert (await run(running, "-c", steps)).splitlines() == ["READY", "INSTANCE_NAME_TAKEN ('input', 'name')"]


@pytest.mark.parametrize("program", PROGRAMS)
async def test_the_program_that_uses_every_method(running: Up, program: str):
    name = f"tour-{uuid4().hex[:8]}"

    printed = (await run(running, str(FOLDER / program), name)).splitlines()

    assert printed[1] == "PRODUCT_NOT_FOUND"
    assert printed[2] == "CREATE SUCCEEDED"
    assert printed[3].startswith("READY ['http://")
    assert printed[4] == f"['{name}']"
    assert printed[-3:] == ["there is no instance 'no such instance'", "TOKEN_NOT_FOUND", "instance.ready"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_program_calls_every_public_method(program: str):
    text = (FOLDER / program).read_text()
    kinds = PROGRAMS[program].__mro__
    methods = {each for kind in kinds for each in vars(kind) if not each.startswith("_")}
    assert len(methods) > 30
    assert {each for each in methods if f"client.{each}" not in text} == set()


def test_both_clients_have_the_same_methods():
    names = [
        {each for kind in client.__mro__ for each in vars(kind) if not each.startswith("_")}
        for client in PROGRAMS.values()
    ]
    assert names[0] - {"close"} == names[1] - {"aclose"}
