"""Runs migrations, once even if several processes start together, and checks the revision of a database."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection

import migrations
from server.db.database import Database
from server.db.hosts import PrimaryConnector, redacted
from server.db.outages import DATABASE_ERRORS, is_database_away
from server.db.timeouts import Timeouts
from server.errors import DatabaseAway, StartupProblem

# Any number that no other program uses in this database.
LOCK = 0x70696C6F74
LOCK_POLL_SECONDS = 0.2  # seconds
MIN_SERVER_VERSION = 15
# Building a large index must not time out; each migration sets its own timeout of locks.
MIGRATION_TIMEOUTS = Timeouts(statement=timedelta(hours=12), lock=timedelta(hours=12), idle=timedelta(minutes=1))
# Stored beside the revision, for older code that does not know that revision.
OLDEST_CODE = "oldest code: "
FIRST_ROLLING_RELEASE = "0006"  # the first release that can run beside its successor


def known_head() -> str:
    """The newest revision this code has."""
    head = _scripts().get_current_head()
    if head is None:
        raise StartupProblem("this copy of Pilotlight has no migrations; install it again")
    return head


async def current_revision(database: Database) -> str | None:
    """The revision of the database; None if it is empty."""
    async with database.engine.connect() as connection:
        return await _revision(connection)


async def upgrade(url: str, revision: str = "head") -> None:
    """Upgrade to `revision`. A second process waits for the first and then has nothing to do."""
    # Alembic would read the folder of migrations only to find nothing to do.
    target = known_head() if revision == "head" else None
    await _locked(url, lambda config: command.upgrade(config, revision), target)


async def downgrade(url: str, revision: str) -> None:
    """Downgrade to `revision` ("base" empties the database)."""
    await _locked(url, lambda config: command.downgrade(config, revision))


@asynccontextmanager
async def open_current(url: str) -> AsyncGenerator[Database]:
    """The database while a command runs; raises StartupProblem if its tables are not those of this code."""
    await check_server(url)
    database = Database(url, pool_size=4)
    try:
        await check_is_current(database)
        yield database
    finally:
        await database.close()


async def check_is_current(database: Database) -> None:
    """Refuse an older revision, and a newer one unless it states that this code still works with it.

    A newer version adds to the tables before it removes anything, so that old and new processes run side by side
    during a rolling update; old processes must be able to restart meanwhile.
    """
    async with database.engine.connect() as connection:
        revision = await _revision(connection)
        if revision is None:
            raise StartupProblem("the database has no tables yet; run `pilotlight migrate` first")
        if not _is_known(revision) and known_head() >= (await _oldest_code(connection) or revision):
            return
    _refuse_newer(revision)
    if revision != known_head():
        raise StartupProblem(
            f"the database is at revision {revision} and this code needs {known_head()}; run `pilotlight migrate` first"
        )


async def check_server(url: str) -> None:
    """Raises StartupProblem if the server can't be used; DatabaseAway if that may change by itself."""
    try:
        # No statement cache: the URL may be a pooler.
        connection = await PrimaryConnector(url).connect(statement_cache_size=0)
    except (*DATABASE_ERRORS, ValueError) as error:
        problem = DatabaseAway if is_database_away(error) else StartupProblem
        raise problem(f"can't use the database at {redacted(url)}: {str(error) or type(error).__name__}") from None
    try:
        version = connection.get_server_version()
    finally:
        await connection.close()
    if version.major < MIN_SERVER_VERSION:
        raise StartupProblem(
            f"the database at {redacted(url)} is PostgreSQL {version.major}; "
            f"version {MIN_SERVER_VERSION} or newer is needed"
        )


async def _locked(url: str, run: Callable[[Config], None], target: str | None = None) -> None:
    """Run migrations while no other process does; nothing is run if the database is at the revision `target`."""
    database = Database(url, pool_size=1, timeouts=MIGRATION_TIMEOUTS, name="pilotlight migrate")
    try:
        async with database.engine.connect() as connection:
            # Polled: a waiting statement holds a snapshot, and a concurrent index build in the migrating process would
            # wait for that snapshot to end.
            while not (await connection.execute(text("SELECT pg_try_advisory_lock(:lock)"), {"lock": LOCK})).scalar():
                await connection.rollback()
                await asyncio.sleep(LOCK_POLL_SECONDS)
            revision = await _revision(connection)
            await connection.rollback()  # keeps the session's lock, which ends with the connection
            if revision is not None:
                _refuse_newer(revision)
            if revision is None or revision != target:
                await connection.run_sync(_run_on, run)
            await _record_oldest_code(connection)
            await connection.commit()
    finally:
        await database.close()


def _run_on(connection: Connection, run: Callable[[Config], None]) -> None:
    config = _config()
    config.attributes["connection"] = connection
    run(config)


def _config() -> Config:
    config = Config()
    folder = Path(str(migrations.__file__)).parent
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    return config


async def _revision(connection: AsyncConnection) -> str | None:
    if (await connection.execute(text("SELECT to_regclass('alembic_version')"))).scalar() is None:
        return None
    return (await connection.execute(text("SELECT version_num FROM alembic_version"))).scalar()


def _refuse_newer(revision: str) -> None:
    if not _is_known(revision):
        raise StartupProblem(
            f"the database is at revision {revision}, which this code (at {known_head()}) does not know: it is newer; "
            "upgrade Pilotlight"
        )


def _is_known(revision: str) -> bool:
    return revision in _known_revisions()


@cache
def _known_revisions() -> frozenset[str]:
    return frozenset(script.revision for script in _scripts().walk_revisions())


@cache  # a readiness check asks, and reading the folder holds the event loop for 10 ms and more
def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())


async def _oldest_code(connection: AsyncConnection) -> str | None:
    """The head of the oldest code that still works with these tables, as stored by the last migration."""
    comment = await connection.execute(text("SELECT obj_description('alembic_version'::regclass, 'pg_class')"))
    return str(comment.scalar() or "").removeprefix(OLDEST_CODE) or None


async def _record_oldest_code(connection: AsyncConnection) -> None:
    """A migration that removes something has `oldest_code`: the first head whose code does not use it."""
    revision = await _revision(connection)
    if revision is None:
        return
    scripts = _scripts().iterate_revisions(revision, "base")
    oldest = max(str(getattr(script.module, "oldest_code", FIRST_ROLLING_RELEASE)) for script in scripts)
    await connection.execute(text(f"COMMENT ON TABLE alembic_version IS '{OLDEST_CODE}{oldest}'"))
