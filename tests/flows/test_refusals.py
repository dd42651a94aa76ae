"""A process that can't start prints one sentence and an exit code, without a traceback or a password."""

import re
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest
from sqlalchemy import text

from server.auth.tokens import Tokens
from server.enums import Role
from tests.support.processes import free_port, run
from tests.support.world import World

PROVIDER = {"NOVITA_API_KEY": "sk_not_to_be_seen", "NOVITA_API_BASE_URL": "http://127.0.0.1:9"}


async def refusal(*args: str, **env: str) -> str:
    """What a command says that must not start."""
    ended = await run(*args, env=env)
    assert ended.code == 1, ended.said
    assert ended.printed == ""
    assert "Traceback" not in ended.said
    assert PROVIDER["NOVITA_API_KEY"] not in ended.said
    *progress, words = re.split("^pilotlight: ", ended.said.strip(), maxsplit=1, flags=re.MULTILINE)
    assert [line for line in "".join(progress).splitlines() if line.lstrip()[0] not in "✓✗"] == []
    return words


async def test_all_bad_settings_are_reported_at_once(tmp_path: Path):
    words = await refusal(
        "up",
        PILOTLIGHT_HOME=str(tmp_path),
        PORT="abc",
        JOB_LEASE="1ms",
        LOG_LEVEL="loud",
        DATABASE_URL="mysql://me:hunter2@host/name",
        NOVITA_API_BASE_URL="ftp://x",
    )

    first, *rest = words.splitlines()
    assert first == "these settings are not right:"
    assert [line.split(":")[0].strip() for line in rest] == [
        "DATABASE_URL",
        "JOB_LEASE",
        "LOG_LEVEL",
        "NOVITA_API_BASE_URL",
        "PORT",
    ]
    assert "hunter2" not in words
    assert list(tmp_path.iterdir()) == []


async def test_a_taken_port_is_reported_before_anything_is_created(tmp_path: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])

        words = await refusal("up", "--port", port, "--home", str(tmp_path / "home"))

    assert words == f"port {port} on 127.0.0.1 is taken; choose another with --port (0 takes any)"
    assert not (tmp_path / "home").exists()


async def test_a_database_that_is_not_there(tmp_path: Path):
    port = free_port()
    url = f"postgresql://me:hunter2@127.0.0.1:{port}/name"

    words = await refusal("up", "--port", "0", "--home", str(tmp_path), DATABASE_URL=url, DATABASE_START_TIMEOUT="0")

    assert f"can't use the database at postgresql://me:***@127.0.0.1:{port}/name: " in words
    assert words.endswith("Connection refused")
    assert "hunter2" not in words


async def test_a_database_that_does_not_know_us(server_url: str):
    url = urlsplit(server_url)
    wrong = urlunsplit(url._replace(netloc=f"{url.username}:hunter2@{url.hostname}:{url.port}"))

    words = await refusal("serve", "--port", "0", DATABASE_URL=wrong, **PROVIDER)

    assert words.startswith(f"can't use the database at postgresql://{url.username}:***@{url.hostname}:{url.port}/")
    assert "password authentication failed" in words
    assert "hunter2" not in words


@pytest.fixture
async def newer_database(new_database: Any) -> str:
    url = await new_database.migrated()
    connection = await asyncpg.connect(url)
    await connection.execute("UPDATE alembic_version SET version_num = '9999'")
    await connection.execute("COMMENT ON TABLE alembic_version IS 'oldest code: 9999'")
    await connection.close()
    return url


@pytest.mark.parametrize("command", ["up", "worker", "migrate"])
async def test_a_database_that_is_newer_than_the_code(newer_database: str, tmp_path: Path, command: str):
    more = ("--port", "0") if command == "up" else ()

    words = await refusal(command, *more, "--home", str(tmp_path), DATABASE_URL=newer_database, **PROVIDER)

    assert words.startswith("the database is at revision 9999, which this code (at ")
    assert words.endswith(") does not know: it is newer; upgrade Pilotlight")


async def test_a_database_without_tables(new_database: Any):
    words = await refusal("serve", "--port", "0", DATABASE_URL=await new_database(), **PROVIDER)

    assert words == "the database has no tables yet; run `pilotlight migrate` first"


@pytest.mark.parametrize("command", ["up", "serve"])
async def test_an_open_door_without_a_token(database_url: str, tmp_path: Path, command: str):
    more = ("--host", "0.0.0.0", "--port", "0", "--home", str(tmp_path))

    words = await refusal(command, *more, DATABASE_URL=database_url, **PROVIDER)

    assert words == (
        "0.0.0.0 can be reached from elsewhere and there is no token yet; "
        "make one with `pilotlight token create`, or listen on 127.0.0.1"
    )


async def test_a_development_token_opens_no_public_door(world: World, database_url: str, tmp_path: Path):
    """Its row is one of an older version, which did not say that it is valid on loopback only."""
    async with world.database.write() as session:
        await session.execute(text("DELETE FROM token"))
    secret, caller = await world.new_token("default", Role.ADMIN)
    (tmp_path / "token").write_text(secret)

    more = ("--host", "0.0.0.0", "--port", "0", "--home", str(tmp_path))
    words = await refusal("serve", *more, DATABASE_URL=database_url, **PROVIDER)

    assert words == (
        "0.0.0.0 can be reached from elsewhere and there is only the development token, which is valid on loopback "
        "only; make one with `pilotlight token create`, or listen on 127.0.0.1"
    )
    other, _ = await world.new_token("default", Role.ADMIN)
    here, elsewhere = Tokens(world.database), Tokens(world.database, is_loopback=False)
    assert await here.caller_of(secret) == caller
    assert await elsewhere.caller_of(secret) is None
    assert await elsewhere.still_valid([caller.token_id]) == frozenset()
    assert await elsewhere.caller_of(other) is not None


async def test_a_worker_without_a_provider_and_one_without_a_database(tmp_path: Path):
    assert await refusal("worker", "--home", str(tmp_path), **PROVIDER) == (
        "set DATABASE_URL, or run `pilotlight up` on this home first"
    )
    assert (await refusal("worker", DATABASE_URL="postgresql://127.0.0.1:9/x")).startswith("set NOVITA_API_KEY ")


async def test_a_home_that_can_not_be_made(tmp_path: Path):
    (tmp_path / "file").write_text("mine")

    words = await refusal("up", "--port", "0", "--home", str(tmp_path / "file" / "home"))

    assert f"The home {tmp_path}/file/home can't be used: " in words
    assert (tmp_path / "file").read_text() == "mine"
