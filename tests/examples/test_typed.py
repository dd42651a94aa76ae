"""The typed client: generated from the committed schema by the commands of the documentation, checked and run."""

import asyncio
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.page import commands_in
from tests.examples.programs import EXAMPLES, running
from tests.support.processes import ROOT, Up

BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the example with its own environment and the client in it."""
    home = tmp_path_factory.mktemp("typed")
    folder = home / "examples/python-typed"
    shutil.copytree(EXAMPLES / "python-typed", folder, ignore=shutil.ignore_patterns("pilotlight_client"))
    (home / "schema").mkdir()
    shutil.copy(ROOT / "schema/schema.graphql", home / "schema")
    if not (BIN / "uv").exists():
        pytest.skip("there is no uv to make another environment with")
    install, generate, _ = commands_in("examples/python-typed")
    installed = run(["bash", "-c", install], folder)
    if installed.returncode != 0:
        pytest.skip(f"what the client needs can't be installed: {installed.stderr[-300:]}")
    generated = run(["bash", "-c", generate], folder)
    assert generated.returncode == 0, generated.stdout + generated.stderr
    return folder


async def test_it_leads_to_an_instance_that_answers(generated: Path, server: Up, tmp_path: Path):
    environment = {"PILOTLIGHT_URL": server.graphql_url, "PILOTLIGHT_TOKEN": server.token}
    *_, use = commands_in("examples/python-typed")
    in_there = f"cd {shlex.quote(str(generated))} && {use}"

    async with running(["bash", "-c", in_there], tmp_path, **environment) as first:
        assert await first.ends() == 0, first.said
    async with running(["bash", "-c", in_there.replace("trainer", "x" * 256)], tmp_path, **environment) as refused:
        assert await refused.ends() == 1

    [line] = first.lines
    assert line.startswith("trainer is InstanceStatus.READY since")
    assert refused.said.startswith("INVALID_INSTANCE_NAME: A name has 1 to 255 printable characters.\n")


async def test_its_types_are_right(generated: Path):
    """By the checker that the server itself is checked with."""
    checked = await asyncio.to_thread(
        run, [str(BIN / "pyright"), "--pythonpath", ".venv/bin/python", "create.py"], generated
    )

    assert checked.returncode == 0, checked.stdout


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    # uv on the path, and nothing of this environment: the one that is being made is taken.
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ.get('PATH', os.defpath)}"}
    environment.pop("VIRTUAL_ENV", None)
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=150)
