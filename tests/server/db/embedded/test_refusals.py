"""When the embedded PostgreSQL can't start, the error gives the reason in one sentence."""

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.db.embedded import lock
from server.db.embedded.process import start_time
from server.db.embedded.server import EmbeddedPostgres, find_running
from server.errors import StartupProblem
from tests.server.db.embedded.owners import ROOT, owner, run
from tests.support.waiting import until

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can switch to another user")
NOBODY = pwd.getpwnam("nobody")


@pytest.fixture
def home(made: Path) -> Path:
    (made / "postgres.log").write_text("")
    return made


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can reach and write to; pytest's own belongs to its user alone."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def others_python() -> str:
    """A Python of this version that a normal user can run; a virtualenv may point into a folder of root's."""
    probe = "import sys, asyncpg, server.db.embedded.server; print(sys.version_info[:2])"
    for python in (sys.executable, shutil.which("python3", path="/usr/local/bin:/usr/bin")):
        environment = {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "PYTHONDONTWRITEBYTECODE": "1"}
        how = {"user": NOBODY.pw_uid, "group": NOBODY.pw_gid, "extra_groups": [], "cwd": "/", "env": environment}
        try:
            answer = subprocess.run([python, "-c", probe], capture_output=True, text=True, **how)
        except (PermissionError, TypeError):
            continue
        if answer.stdout.strip() == str(sys.version_info[:2]):
            return python
    pytest.skip("no Python with our packages can be run by the user nobody")


async def refusal(home: Path) -> str:
    with pytest.raises(StartupProblem) as caught:
        await EmbeddedPostgres(home, durable=False).start()
    return str(caught.value)


async def test_a_second_owner_is_refused_and_the_first_continues(home: Path):
    async with owner(home) as first:
        assert await refusal(home) == (
            f"Pilotlight is already running with the home {home} (pid {first.process.pid}): "
            "stop it first, or choose another home."
        )
        assert await run(first.url, "SELECT 7") == 7
        found = find_running(home)
        assert found is not None
        assert (found.url, found.pid) == (first.url, first.pid)


async def test_the_same_process_can_not_own_a_home_twice(home: Path):
    server = EmbeddedPostgres(home, durable=False)
    running = await server.start()
    with pytest.raises(StartupProblem, match=f"already running with the home {home} \\(pid {os.getpid()}\\)"):
        await server.start()

    assert await run(running.url, "SELECT 7") == 7
    await server.stop()
    await server.stop()
    assert find_running(home) is None


async def test_waiting_for_a_lock_that_is_never_released_times_out(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lock, "LOCK_TIMEOUT", 0.2)
    async with owner(home) as first:
        os.kill(first.pid, signal.SIGSTOP)
        await first.end_by(signal.SIGKILL)

        assert await refusal(home) == (
            f"PostgreSQL from an earlier run still holds the home {home} after 0 seconds (pid {first.pid})."
        )

        os.kill(first.pid, signal.SIGCONT)
        await until(lambda: start_time(first.pid) is None)


async def test_data_of_another_major_version_is_left_alone(fresh: Path):
    data = fresh / "postgres"
    data.mkdir(parents=True)
    if os.geteuid() == 0:
        shutil.chown(data, "nobody")
    (data / "PG_VERSION").write_text("16\n")

    assert await refusal(fresh) == (
        f"The data in {data} was written by PostgreSQL 16 and this Pilotlight brings 18: "
        "use the Pilotlight that made it, or choose another home."
    )
    assert [path.name for path in data.iterdir()] == ["PG_VERSION"]


async def test_a_damaged_data_directory_is_named_with_postgres_own_words(fresh: Path):
    async with EmbeddedPostgres(fresh, durable=False):
        pass
    (fresh / "postgres/global/pg_control").unlink()

    problem = await refusal(fresh)

    assert problem.startswith("PostgreSQL did not start: ")
    assert "pg_control" in problem
    assert problem.endswith(f"(see {fresh}/postgres.log).")
    assert "\n" not in problem


async def test_a_folder_that_is_no_data_directory_is_left_alone(fresh: Path):
    (fresh / "postgres").mkdir(parents=True)
    if os.geteuid() == 0:
        shutil.chown(fresh / "postgres", "nobody")

    assert "is not a PostgreSQL data directory" in await refusal(fresh)


async def test_a_home_that_is_a_file_is_refused(fresh: Path):
    fresh.write_text("")

    assert await refusal(fresh) == f"The home {fresh} can't be used: File exists ({fresh})."


@AS_ROOT
async def test_a_full_disk_is_named_and_leaves_nothing_half_made(tmp_path: Path):
    home = tmp_path / "small"
    home.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", home], capture_output=True, text=True)
    if mount.returncode != 0:
        pytest.skip(f"no small disk can be mounted here: {mount.stderr}")
    try:
        problem = await refusal(home)
        assert not (home / "postgres").exists()
    finally:
        subprocess.run(["umount", home], check=True)

    assert problem.startswith(f"PostgreSQL's data directory can't be made in {home}: ")
    assert "No space left on device" in problem


@AS_ROOT
async def test_a_normal_user_runs_it_and_root_keeps_out_of_that_home(open_folder: Path, others_python: str):
    home = open_folder / "home"
    who = {"user": NOBODY.pw_uid, "group": NOBODY.pw_gid, "extra_groups": []}
    async with owner(home, python=others_python, **who) as normal:
        assert await run(normal.url, "SELECT 7") == 7
        assert home.stat().st_uid == Path(f"/proc/{normal.pid}").stat().st_uid == NOBODY.pw_uid

        await normal.end_by(signal.SIGKILL)
        await until(lambda: start_time(normal.pid) is None)

    assert await refusal(home) == (
        f"The home {home} belongs to user nobody and can't be used by root: "
        "run Pilotlight as its user, or choose another home."
    )


@AS_ROOT
async def test_a_normal_user_gets_an_error_when_the_home_belongs_to_root(open_folder: Path, others_python: str):
    home = open_folder / "home"
    async with EmbeddedPostgres(home, durable=False):
        pass
    who = {"user": NOBODY.pw_uid, "group": NOBODY.pw_gid, "extra_groups": []}
    async with owner(home, python=others_python, **who) as normal:
        assert normal.said == (
            f"problem The home {home} belongs to user root and can't be used by nobody: "
            "run Pilotlight as its user, or choose another home."
        )


@AS_ROOT
async def test_a_folder_without_write_permission_is_named(open_folder: Path, others_python: str):
    (open_folder / "readonly").mkdir(mode=0o755)
    who = {"user": NOBODY.pw_uid, "group": NOBODY.pw_gid, "extra_groups": []}
    async with owner(open_folder / "readonly/home", python=others_python, **who) as normal:
        assert normal.said == (
            f"problem The home {open_folder}/readonly/home can't be used: "
            f"Permission denied ({open_folder}/readonly/home)."
        )
