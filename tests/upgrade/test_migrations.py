"""Migrations do not block, and remove nothing that the previous release uses."""

import asyncio
import importlib
import inspect
import pkgutil
from collections.abc import Callable

import asyncpg
import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Connection

import migrations.versions
from migrations.large import create_index, drop_index
from server.db.database import Database
from server.db.migrate import FIRST_ROLLING_RELEASE, check_is_current, known_head
from server.errors import StartupProblem
from tests.support.databases import DatabaseMaker
from tests.upgrade.rules import sins_of

NEW = [name for _, name, _ in pkgutil.iter_modules(migrations.versions.__path__) if name[:4] > FIRST_ROLLING_RELEASE]


@pytest.mark.parametrize("name", NEW)
def test_a_migration_after_the_last_release_neither_blocks_nor_removes(name: str):
    migration = importlib.import_module(f"migrations.versions.{name}")
    source = inspect.getsource(migration.upgrade)

    assert sins_of(source, oldest_code=getattr(migration, "oldest_code", None)) == []


def upgrade_with(*statements: str) -> str:
    return "def upgrade():\n" + "\n".join(f'    op.execute("""{statement}""")' for statement in statements)


@pytest.mark.parametrize(
    ("statement", "sin"),
    [
        ("CREATE INDEX i ON instance (name)", "CREATE INDEX on instance"),
        ("CREATE UNIQUE INDEX i ON event (id)", "CREATE INDEX on event"),
        ("CREATE INDEX i\n ON job_history USING gin (args)", "CREATE INDEX on job_history"),
        ("ALTER TABLE operation ADD CONSTRAINT c CHECK (kind <> '')", "ADD CONSTRAINT without NOT VALID on operation"),
        ("ALTER TABLE instance ALTER COLUMN gpu_count TYPE smallint", "another type on instance"),
        ("ALTER TABLE delivery ADD COLUMN x uuid DEFAULT gen_random_uuid()", "a default that differs"),
        ("ALTER TABLE token DROP COLUMN hint", "DROP COLUMN takes away"),
        ("ALTER TABLE token RENAME COLUMN hint TO tail", "RENAME COLUMN takes away"),
    ],
)
def test_what_is_forbidden_is_noticed(statement: str, sin: str):
    found = sins_of(upgrade_with("SET LOCAL lock_timeout = '5s'", statement))

    assert [each for each in found if each.startswith(sin)], found


def test_a_removal_is_allowed_if_it_declares_since_when_it_is_unused():
    source = upgrade_with("SET LOCAL lock_timeout = '5s'", "ALTER TABLE token DROP COLUMN hint")

    assert sins_of(source, oldest_code="0042") == []


def test_waiting_for_locks_without_a_limit_is_noticed():
    assert [sin[:12] for sin in sins_of(upgrade_with("ALTER TABLE job ADD COLUMN x text"))] == ["it waits for"]


@pytest.mark.parametrize(
    "statements",
    [
        ("SET LOCAL lock_timeout = '5s'", "CREATE TABLE fresh (id int)", "CREATE INDEX i ON fresh (id)"),
        ("SET LOCAL lock_timeout = '5s'", "ALTER TABLE instance ADD COLUMN x text"),
        ("SET LOCAL lock_timeout = '5s'", "ALTER TABLE job ADD CONSTRAINT c CHECK (true) NOT VALID"),
        ("SET LOCAL lock_timeout = '5s'", "CREATE INDEX i ON token (name)"),
    ],
)
def test_what_is_harmless_is_allowed(statements: tuple[str, ...]):
    assert sins_of(upgrade_with(*statements)) == []


async def migrate(url: str, step: Callable[[], None]) -> None:
    """Run one step as Alembic would."""

    def go(connection: Connection) -> None:
        context = MigrationContext.configure(connection, opts={"transaction_per_migration": True})
        with Operations.context(context), context.begin_transaction(_per_migration=True):
            step()

    database = Database(url, pool_size=1)
    try:
        async with database.engine.connect() as connection:
            await connection.run_sync(go)
            await connection.commit()
    finally:
        await database.close()


@pytest.fixture
async def url(new_database: DatabaseMaker) -> str:
    return await new_database()


@pytest.fixture
async def changed_url(new_database: DatabaseMaker) -> str:
    """A migrated database of the test's own, whose tables it changes."""
    return await new_database.migrated()


async def connect(url: str) -> "asyncpg.Connection[asyncpg.Record]":
    return await asyncpg.connect(url)


VALID = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass($1)"


async def test_writers_go_on_while_an_index_is_built(url: str):
    slow, quick = await connect(url), await connect(url)
    await slow.execute("CREATE TABLE busy (n int)")
    under_way = slow.transaction()
    await under_way.start()
    await slow.execute("INSERT INTO busy VALUES (1)")

    building = asyncio.create_task(migrate(url, lambda: create_index("busy_by_n", "busy (n)")))
    while not await quick.fetchval("SELECT to_regclass('busy_by_n') IS NOT NULL"):
        assert not building.done(), building.exception()
        await asyncio.sleep(0.02)
    await quick.execute("SET lock_timeout = '5s'")
    await quick.execute("INSERT INTO busy VALUES (2)")  # a plain CREATE INDEX would have us wait for `slow` to end
    assert not building.done()
    await under_way.commit()
    await asyncio.wait_for(building, 30)

    assert await quick.fetchval(VALID, "busy_by_n") is True
    await migrate(url, lambda: drop_index("busy_by_n"))
    assert await quick.fetchval("SELECT to_regclass('busy_by_n')") is None
    await slow.close()
    await quick.close()


async def test_what_a_killed_migration_left_is_built_anew(url: str):
    connection = await connect(url)
    await connection.execute("CREATE TABLE twice (n int)")
    await connection.execute("INSERT INTO twice VALUES (1), (1)")
    with pytest.raises(asyncpg.UniqueViolationError):
        await connection.execute("CREATE UNIQUE INDEX CONCURRENTLY twice_by_n ON twice (n)")
    assert await connection.fetchval(VALID, "twice_by_n") is False

    await migrate(url, lambda: create_index("twice_by_n", "twice (n)"))

    assert await connection.fetchval(VALID, "twice_by_n") is True
    await connection.close()


async def test_an_index_of_the_log_is_built_partition_by_partition(changed_url: str):
    connection = await connect(changed_url)
    await connection.execute("CREATE TABLE event_more PARTITION OF event FOR VALUES FROM (1000000000) TO (2000000000)")
    before = await connection.fetchval("SELECT count(*) FROM pg_inherits WHERE inhparent = 'event'::regclass")

    await migrate(changed_url, lambda: create_index("event_by_type", "event (type, position)"))

    assert await connection.fetchval(VALID, "event_by_type") is True
    children = await connection.fetch(
        "SELECT indisvalid FROM pg_inherits JOIN pg_index ON indexrelid = inhrelid"
        " WHERE inhparent = 'event_by_type'::regclass"
    )
    assert [row["indisvalid"] for row in children] == [True] * before
    await connection.close()


async def newer_database(url: str, oldest_code: str | None) -> Database:
    """As the next release would leave it."""
    connection = await connect(url)
    await connection.execute("UPDATE alembic_version SET version_num = '9999'")
    said = "NULL" if oldest_code is None else f"'oldest code: {oldest_code}'"
    await connection.execute(f"COMMENT ON TABLE alembic_version IS {said}")
    await connection.close()
    return Database(url, pool_size=1)


@pytest.mark.parametrize("oldest_code", ["0006", known_head()])
async def test_code_may_start_on_a_newer_database_that_was_only_added_to(changed_url: str, oldest_code: str):
    database = await newer_database(changed_url, oldest_code)
    await check_is_current(database)
    await database.close()


@pytest.mark.parametrize("oldest_code", [None, "9998"])
async def test_code_is_refused_by_a_newer_database_that_lacks_what_it_uses(changed_url: str, oldest_code: str | None):
    database = await newer_database(changed_url, oldest_code)
    with pytest.raises(StartupProblem, match="it is newer"):
        await check_is_current(database)
    await database.close()


async def test_a_migrated_database_says_which_code_may_use_it(changed_url: str):
    connection = await connect(changed_url)
    said = await connection.fetchval("SELECT obj_description('alembic_version'::regclass, 'pg_class')")
    await connection.close()

    assert said == f"oldest code: {FIRST_ROLLING_RELEASE}"
