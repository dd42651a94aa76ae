"""The embedded PostgreSQL: first start, restart, orphans, kills and recovery."""

import asyncio
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import psutil
import pytest

from server.db.embedded import lock
from server.db.embedded import server as embedded
from server.db.embedded.process import is_postgres, start_time
from server.db.embedded.server import EmbeddedPostgres, Running, find_running
from server.errors import StartupProblem
from tests.server.db.embedded.owners import owner, run
from tests.support.waiting import until

KEEP_SEVEN = ("DROP TABLE IF EXISTS kept", "CREATE TABLE kept (n int)", "INSERT INTO kept VALUES (7) RETURNING n")


@pytest.fixture
def home(made: Path) -> Path:
    (made / "postgres.log").write_text("")
    return made


@pytest.fixture
async def running(home: Path) -> AsyncIterator[Running]:
    async with EmbeddedPostgres(home, durable=False) as server:
        yield server


async def test_a_first_start_makes_a_working_database_and_a_stop_ends_every_process(fresh: Path):
    async with EmbeddedPostgres(fresh) as server:
        assert await run(server.url, "SELECT current_database() || ' ' || current_user") == "pilotlight pilotlight"
        assert await run(server.url, "SHOW server_encoding") == "UTF8"
        assert await run(server.url, "SHOW fsync") == "on"
        assert find_running(fresh) == server

    assert start_time(server.pid) is None
    assert find_running(fresh) is None
    assert sorted(path.name for path in fresh.iterdir()) == ["postgres", "postgres.lock", "postgres.log"]


async def test_a_second_start_finds_the_data_under_the_same_password(home: Path):
    async with EmbeddedPostgres(home, durable=False) as first:
        await run(first.url, *KEEP_SEVEN)
    async with EmbeddedPostgres(home, durable=False) as second:
        assert await run(second.url, "SELECT n FROM kept") == 7
        assert await run(second.url, "SHOW fsync") == "off"

    assert second.url.rpartition(":")[0] == first.url.rpartition(":")[0]


async def test_only_loopback_with_the_password_gets_in_and_not_as_a_superuser(running: Running, home: Path):
    with pytest.raises(asyncpg.InvalidPasswordError):
        await run(running.url.replace("pilotlight:", "pilotlight:wrong"), "SELECT 1")
    with pytest.raises(asyncpg.InvalidPasswordError):
        await run(running.url.replace("pilotlight:", "postgres:"), "SELECT 1")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await run(running.url, "SELECT pg_read_file('/etc/passwd')")

    sockets = psutil.Process(running.pid).net_connections("all")
    assert [(each.status, each.laddr.ip) for each in sockets] == [("LISTEN", "127.0.0.1")]
    modes = {name: stat.S_IMODE((home / name).stat().st_mode) for name in ("postgres", "postgres/password")}
    assert modes == {"postgres": 0o700, "postgres/password": 0o600}


async def test_only_a_database_for_tests_may_silence_foreign_keys(home: Path, fresh: Path):
    silence = "SET session_replication_role = replica"
    async with EmbeddedPostgres(home, durable=False) as for_tests, EmbeddedPostgres(fresh) as real:
        assert await run(for_tests.url, silence, "SHOW session_replication_role") == "replica"
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await run(real.url, silence)


async def test_a_path_with_a_space_quotes_and_other_alphabets_works(fresh: Path):
    home = fresh / 'Zoë\'s "Pilot" light 灯 $HOME'
    async with EmbeddedPostgres(home, durable=False) as server:
        assert await run(server.url, "SELECT 7") == 7
        assert find_running(home) == server


async def test_two_homes_run_side_by_side(running: Running, tmp_path: Path):
    async with EmbeddedPostgres(tmp_path / "other", durable=False) as other:
        assert await run(other.url, "SELECT 1") == await run(running.url, "SELECT 1")
        assert other.pid != running.pid


async def test_a_pid_left_behind_is_stale_even_if_another_process_wears_it_now(home: Path):
    async with EmbeddedPostgres(home, durable=False) as server:
        await run(server.url, *KEEP_SEVEN)
        left_behind = (home / "postgres/postmaster.pid").read_text()
    with subprocess.Popen(["sleep", "60"]) as stranger:
        try:
            (home / "postgres/postmaster.pid").write_text(left_behind.replace(str(server.pid), str(stranger.pid), 1))

            assert find_running(home) is None
            async with EmbeddedPostgres(home, durable=False) as server:
                assert await run(server.url, "SELECT n FROM kept") == 7
            assert stranger.poll() is None
        finally:
            stranger.kill()


@pytest.mark.parametrize("options", [(), ("watch",)], ids=["tied by the kernel", "watched"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
async def test_postgres_ends_with_its_owner_and_the_data_stays(home: Path, number: signal.Signals, options: tuple[str]):
    async with owner(home, *options) as first:
        await run(first.url, *KEEP_SEVEN)
        assert is_postgres(first.pid, home / "postgres")

        await first.end_by(number)

        await until(lambda: start_time(first.pid) is None)
    async with EmbeddedPostgres(home, durable=False) as second:
        assert await run(second.url, "SELECT n FROM kept") == 7
    assert "was not properly shut down" not in (home / "postgres.log").read_text()


async def test_a_start_waits_for_the_server_of_a_killed_owner_to_end(home: Path):
    async with owner(home) as first:
        await run(first.url, *KEEP_SEVEN)
        os.kill(first.pid, signal.SIGSTOP)  # so that it can't end in time by itself
        await first.end_by(signal.SIGKILL)

        server = EmbeddedPostgres(home, durable=False)
        starting = asyncio.create_task(server.start())
        done, _ = await asyncio.wait([starting], timeout=0.3)
        assert done == set()
        assert start_time(first.pid) is not None

        os.kill(first.pid, signal.SIGCONT)
        second = await starting
        assert await run(second.url, "SELECT n FROM kept") == 7
        await server.stop()


async def test_an_orphan_that_was_not_stopped_is_stopped_by_the_next_start(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lock, "ORPHAN_SIGNALS", ((0.1, signal.SIGINT),))
    async with owner(home, "watch") as first:
        await run(first.url, *KEEP_SEVEN)
        in_between = psutil.Process(first.pid).ppid()
        assert in_between != first.process.pid
        os.kill(in_between, signal.SIGKILL)
        await first.end_by(signal.SIGKILL)
        assert find_running(home) is not None

        async with EmbeddedPostgres(home, durable=False) as second:
            assert await run(second.url, "SELECT n FROM kept") == 7
        assert start_time(first.pid) is None


async def test_of_two_starts_at_once_one_wins(home: Path):
    servers = [EmbeddedPostgres(home, durable=False) for _ in range(2)]
    ends = await asyncio.gather(*(server.start() for server in servers), return_exceptions=True)

    assert {type(end) for end in ends} == {Running, StartupProblem}
    for server in servers:
        await server.stop()


async def test_owner_and_server_killed_together_lose_no_commit(home: Path):
    async with owner(home, "durable") as first:
        await run(first.url, *KEEP_SEVEN)
        os.kill(first.pid, signal.SIGKILL)
        await first.end_by(signal.SIGKILL)

    async with EmbeddedPostgres(home, durable=False) as second:
        assert await run(second.url, "SELECT n FROM kept") == 7
    assert "was not properly shut down" in (home / "postgres.log").read_text()


async def test_a_server_that_is_killed_comes_back_at_the_same_url(home: Path):
    lines: list[str] = []
    async with EmbeddedPostgres(home, log=lines.append) as server:
        pool = await asyncpg.create_pool(server.url, min_size=2)
        for statement in KEEP_SEVEN:
            await pool.execute(statement)

        os.kill(server.pid, signal.SIGKILL)
        await until(lambda: (found := find_running(home)) is not None and found.pid != server.pid)

        assert await run(server.url, "SELECT n FROM kept") == 7
        assert find_running(home) != server
        await pool.expire_connections()
        assert await pool.fetchval("SELECT 7") == 7
        await pool.close()
    assert [line.partition(" (pid")[0] for line in lines] == [
        "PostgreSQL ended by itself; starting it again in 0.1 s.",
        "PostgreSQL is back",
    ]
    assert find_running(home) is None


async def test_a_kill_in_the_middle_of_the_first_start_leaves_nothing_half_made(fresh: Path):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", f"import os, signal\n{KILLED_IN_INITDB}", str(fresh)
    )
    assert await process.wait() == -signal.SIGKILL
    assert not (fresh / "postgres").exists()

    async with EmbeddedPostgres(fresh, durable=False) as server:
        assert await run(server.url, "SELECT 7") == 7
    assert not (fresh / "postgres.new").exists()


KILLED_IN_INITDB = """
import asyncio, sys
from pathlib import Path
from server.db.embedded.server import EmbeddedPostgres

async def main():
    asyncio.ensure_future(EmbeddedPostgres(Path(sys.argv[1])).start())
    while not Path(sys.argv[1], "postgres.new", "global").exists():
        await asyncio.sleep(0.001)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_a_port_taken_at_the_last_moment_is_given_up_for_another(home: Path, monkeypatch: pytest.MonkeyPatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free_port = embedded._free_port
        ports = iter([taken.getsockname()[1], free_port()])
        monkeypatch.setattr(embedded, "_free_port", lambda: next(ports))

        async with EmbeddedPostgres(home, durable=False) as server:
            assert await run(server.url, "SELECT 7") == 7
        assert not server.url.endswith(f":{taken.getsockname()[1]}/pilotlight")


async def test_a_system_without_proc_is_asked_through_ps(running: Running, home: Path, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(sys, "platform", "elsewhere")
        assert is_postgres(running.pid, home / "postgres")
        assert not is_postgres(running.pid, home / "other")
        assert not is_postgres(os.getpid(), home / "postgres")
        assert start_time(running.pid) == start_time(running.pid) != start_time(1) is not None
        with subprocess.Popen(["true"]) as ended:
            await until(lambda: start_time(ended.pid) is None)


async def test_a_ctrl_c_in_the_terminal_does_not_reach_the_server(running: Running):
    assert os.getsid(running.pid) == running.pid != os.getsid(0)


async def test_a_start_that_is_cancelled_leaves_nothing_running(fresh: Path):
    starting = asyncio.create_task(EmbeddedPostgres(fresh, durable=False).start())
    await until((fresh / "postgres.new/global").exists)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting

    async with EmbeddedPostgres(fresh, durable=False) as server:
        assert await run(server.url, "SELECT 7") == 7


async def test_the_log_stays_small(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(embedded, "LOG_TRIM_INTERVAL", 0.05)
    monkeypatch.setattr("server.db.embedded.log.MAX_BYTES", 10_000)
    async with EmbeddedPostgres(home, durable=False) as server:
        with pytest.raises(asyncpg.UndefinedColumnError):
            await run(server.url, f"SELECT {'x' * 12_000}")
        await until(lambda: (home / "postgres.log").stat().st_size < 10_000)
        with pytest.raises(asyncpg.UndefinedColumnError):
            await run(server.url, "SELECT after_the_trim")
        await until(lambda: (home / "postgres.log").read_text().count('"after_the_trim" does not exist') == 1)
    assert "xxxx" in (home / "postgres.log.old").read_text()
