"""The client's README and its example program do what they say; both are checked by strict types as well."""

import asyncio
import re
import sys
from uuid import uuid4

from pilotlight_client import Pilotlight

from tests.support.processes import ROOT, Up

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


async def test_the_program_that_uses_every_method(running: Up):
    name = f"tour-{uuid4().hex[:8]}"
    program = ROOT / "examples" / "python" / "use_client.py"

    printed = (await run(running, str(program), name)).splitlines()

    assert printed[1] == "PRODUCT_NOT_FOUND"
    assert printed[2] == "CREATE SUCCEEDED"
    assert printed[3].startswith("READY ['http://")
    assert printed[4] == f"['{name}']"
    assert printed[-3:] == ["there is no instance 'no such instance'", "TOKEN_NOT_FOUND", "instance.ready"]


def test_the_program_calls_every_public_method():
    text = (ROOT / "examples" / "python" / "use_client.py").read_text()
    methods = {each for each in vars(Pilotlight) if not each.startswith("_")}
    assert {each for each in methods if f"client.{each}" not in text} == set()
