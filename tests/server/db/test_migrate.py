"""Migrations: up, down and up again, equal to the models, run once by concurrent starts, and clear refusals."""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import CheckConstraint, Connection

from server.db.database import Database
from server.db.migrate import check_is_current, check_server, current_revision, downgrade, known_head, upgrade
from server.db.tables import Base
from server.errors import StartupProblem
from tests.support.databases import DatabaseMaker

ROOT = Path(__file__).parents[3]
TABLES = "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace"


async def fetch(url: str, query: str) -> list[Any]:
    connection = await asyncpg.connect(url)
    try:
        return [row[0] for row in await connection.fetch(query)]
    finally:
        await connection.close()


async def execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def differences(url: str) -> Sequence[Any]:
    def compare(connection: Connection) -> Sequence[Any]:
        context = MigrationContext.configure(
            connection,
            opts={
                "compare_type": True,
                "compare_server_default": True,
                # The sequencer makes partitions as the log grows; no model knows them.
                "include_name": lambda name, kind, _: kind != "table" or name in Base.metadata.tables,
            },
        )
        return compare_metadata(context, Base.metadata)

    database = Database(url, pool_size=1)
    try:
        async with database.engine.connect() as connection:
            return await connection.run_sync(compare)
    finally:
        await database.close()


async def test_alembic_check_finds_nothing_to_migrate(new_database: DatabaseMaker):
    url = await new_database.migrated()
    # As the sequencer makes them; no model knows them.
    await execute(url, "CREATE TABLE event_later PARTITION OF event FOR VALUES FROM (9000000000) TO (9000000001)")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "alembic", "check"),
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": url},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()

    assert (process.returncode, output.decode().strip()) == (0, "No new upgrade operations detected.")


async def test_the_tables_equal_the_models_after_going_up_down_and_up_again(new_database: DatabaseMaker):
    url = await new_database()
    await upgrade(url)
    assert await differences(url) == []
    assert set(await fetch(url, TABLES)) == {*Base.metadata.tables, "alembic_version"}

    await downgrade(url, "base")
    assert await fetch(url, TABLES) == ["alembic_version"]

    await upgrade(url)
    assert await differences(url) == []


async def test_the_checks_of_the_tables_are_those_of_the_models(migrated_url: str):
    """Alembic does not compare them."""
    found = await fetch(migrated_url, "SELECT conname FROM pg_constraint WHERE contype = 'c' AND conrelid <> 0")
    declared = {
        str(constraint.name)
        for table in Base.metadata.tables.values()
        for constraint in table.constraints
        if isinstance(constraint, CheckConstraint)
    }
    assert set(found) == declared


async def test_ten_concurrent_starts_migrate_once(new_database: DatabaseMaker):
    url = await new_database()

    await asyncio.gather(*(upgrade(url) for _ in range(10)))

    assert await fetch(url, "SELECT version_num FROM alembic_version") == [known_head()]
    database = Database(url, pool_size=1)
    try:
        await check_is_current(database)
    finally:
        await database.close()


@pytest.fixture
async def somewhere(new_database: DatabaseMaker) -> str:
    url = await new_database()
    await execute(url, "CREATE TABLE alembic_version (version_num text)")
    return url


async def problem_of(url: str) -> str:
    database = Database(url, pool_size=1)
    try:
        with pytest.raises(StartupProblem) as found:
            await check_is_current(database)
        return str(found.value)
    finally:
        await database.close()


async def test_a_database_newer_than_the_code_is_refused_by_every_command(somewhere: str):
    await execute(somewhere, "INSERT INTO alembic_version VALUES ('9999')")
    sentence = (
        f"the database is at revision 9999, which this code (at {known_head()}) does not know: it is newer; "
        "upgrade Pilotlight"
    )

    assert await problem_of(somewhere) == sentence
    for migrating in (upgrade(somewhere), downgrade(somewhere, "base")):
        with pytest.raises(StartupProblem, match="it is newer"):
            await migrating
    assert await fetch(somewhere, TABLES) == ["alembic_version"]


async def test_an_empty_or_older_database_is_refused_with_the_next_step(new_database: DatabaseMaker, somewhere: str):
    assert await problem_of(await new_database()) == ("the database has no tables yet; run `pilotlight migrate` first")
    await execute(somewhere, "INSERT INTO alembic_version VALUES ('0001')")
    assert await problem_of(somewhere) == (
        f"the database is at revision 0001 and this code needs {known_head()}; run `pilotlight migrate` first"
    )


async def test_the_present_revision_is_known(migrated_url: str):
    database = Database(migrated_url, pool_size=1)
    try:
        assert await current_revision(database) == known_head()
    finally:
        await database.close()


async def test_a_second_check_reads_the_folder_of_migrations_no_more(
    migrated_url: str, monkeypatch: pytest.MonkeyPatch
):
    """It would hold the event loop for tens of milliseconds at every readiness check."""
    database = Database(migrated_url, pool_size=1)
    try:
        await check_is_current(database)
        monkeypatch.setattr(ScriptDirectory, "from_config", None)
        await check_is_current(database)
    finally:
        await database.close()


async def test_a_start_on_migrated_tables_reads_the_folder_of_migrations_once(
    migrated_url: str, monkeypatch: pytest.MonkeyPatch
):
    """Each reading imports all migrations; by here, this process has done it."""
    known_head()
    monkeypatch.setattr(ScriptDirectory, "from_config", None)

    await upgrade(migrated_url)


async def sentence_of(url: str) -> str:
    with pytest.raises(StartupProblem) as found:
        await check_server(url)
    sentence = str(found.value)
    assert "\n" not in sentence
    assert "hunter2" not in sentence
    return sentence


async def test_a_server_that_is_not_there_is_one_sentence(unused_tcp_port: int):
    url = f"postgresql://someone:hunter2@127.0.0.1:{unused_tcp_port}/app"
    sentence = await sentence_of(url)
    assert sentence.startswith(f"can't use the database at postgresql://someone:***@127.0.0.1:{unused_tcp_port}/app: ")


async def test_a_database_that_is_not_there_is_one_sentence(server_url: str):
    sentence = await sentence_of(f"{server_url.rsplit('/', 1)[0]}/nowhere")
    assert sentence.endswith(': database "nowhere" does not exist')


async def test_a_user_or_password_that_is_not_right_is_one_sentence(server_url: str):
    parts = urlsplit(server_url)
    place = parts.netloc.rpartition("@")[2]
    sentence = await sentence_of(f"postgresql://nobody:hunter2@{place}{parts.path}?{parts.query}")
    assert "nobody" in sentence


@pytest.mark.parametrize("url", ["mysql://u:hunter2@h/d", "localhost:5432/app", "postgresql:/half"])
async def test_what_is_no_address_of_postgresql_is_one_sentence(url: str):
    assert await sentence_of(url) == "DATABASE_URL must start with postgresql://"


async def test_a_good_server_is_accepted(server_url: str):
    await check_server(server_url)
