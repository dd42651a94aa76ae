"""The `pilotlight` command: what it prints, and what it imports to do so."""

import importlib.metadata
import os
import subprocess
import sys

import pytest

from tests.support.processes import free_port

HEAVY = {"strawberry", "graphql", "sqlalchemy", "aiohttp", "pydantic", "uvloop", "schema.root", "server.config"}
RUN = """
import sys
from server.cli.main import main
try:
    main()
finally:
    print(*sorted(sys.modules), file=sys.stderr)
"""


def test_a_command_for_users_imports_no_part_of_the_server():
    env = {"PATH": os.environ["PATH"], "PILOTLIGHT_RETRY_FOR": "0", "PILOTLIGHT_TOKEN": "pl_x"}
    env["PILOTLIGHT_URL"] = f"http://127.0.0.1:{free_port()}"
    done = subprocess.run([sys.executable, "-c", RUN, "ls"], capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 5
    # The command line reads its options with pydantic, and the client asks with aiohttp.
    assert not (HEAVY - {"aiohttp", "pydantic"}) & set(done.stderr.split())
    assert "pilotlight_client.aio" in done.stderr.split()


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_version_and_help_import_no_part_of_the_server(option: str):
    done = subprocess.run([sys.executable, "-c", RUN, option], capture_output=True, text=True, check=True)

    imported = set(done.stderr.split())
    assert imported & {*HEAVY, "server.runtime"} == set()
    ours = {name for name in imported if name.split(".")[0] in ("server", "schema")}
    commands = {name for name in ours if name.startswith("server.cli.user")}  # for users: they load no server part
    assert ours - commands == {
        *("server", "server.cli", "server.cli.main", "server.cli.sdl"),
        *("server.enums", "server.errors"),
    }
    assert not any(name.startswith("pilotlight_client") for name in imported)


def test_version_is_the_one_of_the_installed_package():
    done = subprocess.run([sys.executable, "-c", RUN, "--version"], capture_output=True, text=True, check=True)

    assert done.stdout == importlib.metadata.version("pilotlight") + "\n"


def test_the_parts_of_a_worker_import_no_graphql():
    load = "import sys, server.cli.roles; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", load], capture_output=True, text=True, check=True)

    imported = set(done.stdout.split())
    assert {"server.runtime", "server.http.metrics", "uvicorn"} <= imported
    assert {name for name in imported if name.split(".")[0] in ("schema", "strawberry", "graphql", "mcp")} == set()
