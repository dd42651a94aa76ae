"""The typed client: generated from the committed schema by the commands of the documentation, checked and run."""

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.programs import EXAMPLES, running
from tests.processes import ROOT, Up

BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the example with its own environment and the client in it."""
    home = tmp_path_factory.mktemp("typed")
    folder = home / "examples/python-typed"
    shutil.copytree(EXAMPLES / "python-typed", folder, ignore=shutil.ignore_patterns("pilotlight_client"))
    (home / "schema").mkdir()
    shutil.copy(ROOT / "schema/schema.graphql", home / "schema")
    uv = BIN / "uv"
    if not uv.exists():
        pytest.skip("there is no uv to make another environment with")
    assert_done(run([str(uv), "venv", "-q", "--python", sys.executable, ".venv"], folder))
    installed = run([str(uv), "pip", "install", "-q", "--python", ".venv", "-r", "requirements.txt"], folder)
    if installed.returncode != 0:
        pytest.skip(f"what the client needs can't be installed: {installed.stderr[-300:]}")
    assert_done(run([".venv/bin/ariadne-codegen", "--config", "ariadne-codegen.toml"], folder))
    return folder


async def test_it_leads_to_an_instance_that_answers(generated: Path, server: Up, tmp_path: Path):
    environment = {"PILOTLIGHT_URL": server.graphql_url, "PILOTLIGHT_TOKEN": server.token}

    async with running([*program(generated), "typed-first"], tmp_path, **environment) as first:
        assert await first.ends() == 0, first.said
    async with running([*program(generated), "x" * 256], tmp_path, **environment) as refused:
        assert await refused.ends() == 1

    [line] = first.lines
    assert line.startswith("typed-first is InstanceStatus.READY since")
    assert refused.said.startswith("INVALID_INSTANCE_NAME: A name has 1 to 255 printable characters.\n")


async def test_its_types_are_right(generated: Path):
    """By the strict checker that the server itself is checked with."""
    checked = await asyncio.to_thread(
        run, [str(BIN / "pyright"), "--pythonpath", str(generated / ".venv/bin/python"), "create.py"], generated
    )

    assert checked.returncode == 0, checked.stdout


def program(folder: Path) -> list[str]:
    return [str(folder / ".venv/bin/python"), str(folder / "create.py")]


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=150)


def assert_done(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
