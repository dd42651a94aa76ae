"""Root and normal users can run everything."""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import ROOT, run, up
from tests.support.watcher import GraphQLClient

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can switch to another user")

NOBODY = pwd.getpwnam("nobody")
WHO = {"user": NOBODY.pw_uid, "group": NOBODY.pw_gid, "extra_groups": []}
# The console script names a Python that may lie in a folder of root's.
MAIN = "from server.cli.main import main; main()"
IMPORTS = {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can reach and write to; pytest's own belongs to its user alone."""
    folder = Path(tempfile.mkdtemp(prefix="pilotlight-open-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def command() -> tuple[str, ...]:
    """Pilotlight by a Python of this version that a normal user can run."""
    for python in (sys.executable, shutil.which("python3", path="/usr/local/bin:/usr/bin")):
        probe = [python, "-c", "import sys, server.cli.main; print(sys.version_info[:2])"]
        try:
            answer = subprocess.run(probe, capture_output=True, text=True, cwd="/", env=IMPORTS, **WHO)
        except (PermissionError, TypeError):
            continue
        if answer.stdout.strip() == str(sys.version_info[:2]):
            return (str(python), "-c", MAIN)
    pytest.skip("no Python with our packages can be run by the user nobody")


async def test_a_normal_user_has_an_instance_ready(open_folder: Path, command: tuple[str, ...]):
    async with up(open_folder / "home", command=command, env=IMPORTS, **WHO) as running:
        caller = GraphQLClient(running.graphql_url, running.token)
        await caller.becomes(await caller.create("of-nobody"), "READY")

        assert (open_folder / "home").stat().st_uid == NOBODY.pw_uid
        assert await running.stop() == 0
        assert running.survivors() == []


async def test_a_normal_user_gets_an_error_naming_the_folder(open_folder: Path, command: tuple[str, ...]):
    (open_folder / "closed").mkdir(mode=0o755)
    home = open_folder / "closed" / "home"

    refused = await run("up", "--port", "0", "--home", str(home), command=command, env=IMPORTS, **WHO)

    assert refused.code == 1
    assert f"The home {home} can't be used: Permission denied" in refused.said
    assert "Traceback" not in refused.said


async def test_root_has_an_instance_ready_below_a_folder_that_only_root_can_enter(open_folder: Path):
    closed = open_folder / "closed"
    closed.mkdir(mode=0o700)

    async with up(closed / "home") as running:
        caller = GraphQLClient(running.graphql_url, running.token)
        await caller.becomes(await caller.create("of-root"), "READY")

        assert await running.stop() == 0
    assert closed.stat().st_mode & 0o777 == 0o700
