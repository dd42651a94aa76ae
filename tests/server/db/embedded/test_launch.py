"""launch.py drops root's capabilities, except the one without which its files can't be reached."""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.db.embedded.data_directory import binary
from server.db.embedded.process import LAUNCH
from server.db.embedded.server import EmbeddedPostgres
from tests.server.db.embedded.owners import run

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="only root has power to give up")

NOBODY = pwd.getpwnam("nobody")


@pytest.fixture
def program() -> Iterator[Path]:
    """A program that prints a file, installed like PostgreSQL, in a folder that only root can enter."""
    folder = Path(tempfile.mkdtemp())  # not pytest's: above it are more closed folders
    (folder / "bin").mkdir()
    (folder / "share/postgresql").mkdir(parents=True)
    (folder / "share/postgresql/postgres.bki").write_text("")
    (folder / "data").mkdir(mode=0o700)
    shutil.chown(folder / "data", NOBODY.pw_uid)
    yield Path(shutil.copy(shutil.which("cat") or "/bin/cat", folder / "bin/cat"))
    shutil.rmtree(folder)


def launched(program: Path, *before: str) -> subprocess.CompletedProcess[str]:
    account = f"{NOBODY.pw_uid}:{NOBODY.pw_gid}"
    launch = [sys.executable, "-I", "-S", LAUNCH, str(os.getpid()), account, "none", program.parent.parent / "data"]
    command = [*before, *launch, program, "/proc/self/status"]
    return subprocess.run(command, capture_output=True, text=True)


def power(status: str) -> dict[str, str]:
    lines = dict(line.split(":\t", 1) for line in status.splitlines())
    return {name: lines[name].lstrip("0") for name in ("CapPrm", "CapEff", "CapInh", "CapAmb")}


def test_nothing_is_kept_where_others_can_reach_the_files(program: Path):
    program.parent.parent.chmod(0o755)

    answer = launched(program)

    assert f"Uid:\t{NOBODY.pw_uid}\t{NOBODY.pw_uid}\t{NOBODY.pw_uid}\t{NOBODY.pw_uid}\n" in answer.stdout
    assert f"Gid:\t{NOBODY.pw_gid}\t{NOBODY.pw_gid}\t{NOBODY.pw_gid}\t{NOBODY.pw_gid}\n" in answer.stdout
    assert "Groups:\t \n" in answer.stdout
    assert power(answer.stdout) == {"CapPrm": "", "CapEff": "", "CapInh": "", "CapAmb": ""}


def test_searching_is_kept_below_a_folder_that_only_root_can_enter(program: Path):
    answer = launched(program)

    assert power(answer.stdout) == {"CapPrm": "4", "CapEff": "4", "CapInh": "4", "CapAmb": "4"}


def test_more_is_kept_when_the_program_itself_is_for_root_alone(program: Path):
    program.chmod(0o700)

    answer = launched(program)

    assert power(answer.stdout) == {"CapPrm": "2", "CapEff": "2", "CapInh": "2", "CapAmb": "2"}


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv to take power from root")
def test_root_without_that_capability_gets_an_error_naming_the_path(program: Path):
    answer = launched(program, "setpriv", "--bounding-set", "-dac_override,-dac_read_search")

    assert answer.returncode == 1
    assert answer.stderr == (
        f"error: user {NOBODY.pw_uid}, who runs PostgreSQL because root may not, can't reach "
        f"{program} or {program.parent.parent}/data\n"
    )


def test_one_whose_owner_has_already_ended_does_not_begin(program: Path):
    command = [sys.executable, "-I", "-S", LAUNCH, "1", "-", "kernel", program.parent, program, "/proc/self/status"]
    answer = subprocess.run(command, capture_output=True, text=True)

    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr == "error: the process that started PostgreSQL has ended\n"


async def test_root_runs_postgres_in_a_folder_that_only_root_can_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A whole clone, its virtualenv included, in /root or a `mktemp -d`, installed under umask 077."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    wheel = binary("postgres").parents[2]
    for part in ("__init__.py", "pginstall18/bin/postgres", "pginstall18/bin/initdb", "pginstall18/lib/postgresql"):
        copy = closed / wheel.name / part
        copy.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-a", wheel / part, copy], check=True)
    subprocess.run(["cp", "-a", wheel / "pginstall18/share", closed / wheel.name / "pginstall18/share"], check=True)
    subprocess.run(["cp", "-a", f"{wheel}.libs", closed], check=True)
    subprocess.run(["chmod", "-R", "go-rwx", closed], check=True)
    monkeypatch.syspath_prepend(closed)

    async with EmbeddedPostgres(closed / "home", durable=False) as server:
        assert Path(f"/proc/{server.pid}/exe").readlink() == closed / wheel.name / "pginstall18/bin/postgres"
        assert await run(server.url, "SELECT 7") == 7
        status = Path(f"/proc/{server.pid}/status").read_text()

    assert closed.stat().st_mode & 0o777 == 0o700
    assert f"Uid:\t{(closed / 'home/postgres').stat().st_uid}\t" in status
    assert "Uid:\t0\t" not in status
    assert power(status) == {"CapPrm": "2", "CapEff": "2", "CapInh": "2", "CapAmb": "2"}
    shutil.rmtree(closed)
