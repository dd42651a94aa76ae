"""The official SDK 1.30, which begins with `initialize`, lists and calls every tool, over HTTP and over stdio."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from tests.server.mcp.test_tools import TOOLS, mcp_url
from tests.support.other_environment import python_with, run_program
from tests.support.processes import PILOTLIGHT, Up

PROGRAM = Path(__file__).parent / "clients" / "use_sdk_1.py"


@pytest.fixture(scope="module")
async def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return await python_with(tmp_path_factory.mktemp("sdk") / "venv", "mcp==1.30.0")


async def test_the_older_protocol_lists_and_calls_every_tool(python: Path, running: Up):
    env = {"PATH": os.environ["PATH"], "PILOTLIGHT_URL": running.graphql_url, "PILOTLIGHT_TOKEN": running.token}
    over_http, over_stdio = await asyncio.gather(
        run_program(python, PROGRAM, mcp_url(running), running.token, env=env),
        run_program(python, PROGRAM, *PILOTLIGHT, "mcp", env=env),
    )

    for code, printed, said in (over_http, over_stdio):
        assert code == 0, said
        told = json.loads(printed)
        assert told["version"] == "2025-11-25"
        assert set(told["listed"]) == set(told["called"]) == TOOLS
        assert "Traceback" not in said
