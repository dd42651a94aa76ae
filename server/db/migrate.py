"""Bringing a database to the tables that this code knows, once, however many processes start at the same moment."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection

import migrations
from server.db.engine import Database
from server.db.trouble import DATABASE_TROUBLE
from server.db.url import shown
from server.errors import StartupProblem

# Any number will do as long as nobody else in that database uses it.
LOCK = 0x70696C6F74
LOOK_AGAIN = 0.2  # seconds
OLDEST_SERVER = 15
# Written beside the revision, for code that does not know that one.
OLDEST_CODE = "oldest code: "
FIRST_TO_BE_FOLLOWED = "0006"  # the first release whose processes were run beside those of the next


def known_head() -> str:
    """The newest revision this code has."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    if head is None:
        raise StartupProblem("this copy of Pilotlight has no migrations; install it again")
    return head


async def current_revision(database: Database) -> str | None:
    """Where the database stands; None when it is empty."""
    async with database.engine.connect() as connection:
        return await _revision(connection)


async def upgrade(url: str, revision: str = "head") -> None:
    """Go up to `revision`. Whoever comes second waits for the first, then finds nothing to do."""
    await _locked(url, lambda config: command.upgrade(config, revision))


async def downgrade(url: str, revision: str) -> None:
    """Go back down to `revision` ("base" empties the database)."""
    await _locked(url, lambda config: command.downgrade(config, revision))


async def check_is_current(database: Database) -> None:
    """Refuse to run on tables that this code does not know, unless they say that it may.

    A newer version adds to the tables before it takes away, so that processes of both run side by side while one is
    replaced by the other; they must be able to start again meanwhile.
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
    """One clear sentence when the server can't be used."""
    try:
        # Without a cache of statements: it may be a pooler.
        connection = await Database(url).connect(statement_cache_size=0, server_settings={})
    except (*DATABASE_TROUBLE, ValueError) as error:
        reason = str(error) or type(error).__name__
        raise StartupProblem(f"can't use the database at {shown(url)}: {reason}") from None
    try:
        version = connection.get_server_version()
    finally:
        await connection.close()
    if version.major < OLDEST_SERVER:
        raise StartupProblem(
            f"the database at {shown(url)} is PostgreSQL {version.major}; version {OLDEST_SERVER} or newer is needed"
        )


async def _locked(url: str, run: Callable[[Config], None]) -> None:
    # Neither waiting for another process nor building an index on a large table may run into a timeout.
    database = Database(url, pool_size=1, command_timeout=timedelta(hours=12), name="pilotlight migrate")
    try:
        async with database.engine.connect() as connection:
            # Asked again and again rather than waited for: whoever waits inside a statement holds a snapshot, and the
            # one who migrates would wait for that snapshot to end before an index is complete.
            while not (await connection.execute(text("SELECT pg_try_advisory_lock(:lock)"), {"lock": LOCK})).scalar():
                await connection.rollback()
                await asyncio.sleep(LOOK_AGAIN)
            revision = await _revision(connection)
            await connection.rollback()  # the lock is the session's and stays; closing the connection gives it back
            if revision is not None:
                _refuse_newer(revision)
            await connection.run_sync(_run_on, run)
            await _say_oldest_code(connection)
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
    return revision in {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}


async def _oldest_code(connection: AsyncConnection) -> str | None:
    """The head of the oldest code that can still work with these tables, as whoever migrated them has said."""
    said = await connection.execute(text("SELECT obj_description('alembic_version'::regclass, 'pg_class')"))
    return str(said.scalar() or "").removeprefix(OLDEST_CODE) or None


async def _say_oldest_code(connection: AsyncConnection) -> None:
    """A migration that takes something away has `oldest_code`: the head from which on nobody uses it any more."""
    revision = await _revision(connection)
    if revision is None:
        return
    scripts = ScriptDirectory.from_config(_config()).iterate_revisions(revision, "base")
    oldest = max(str(getattr(script.module, "oldest_code", FIRST_TO_BE_FOLLOWED)) for script in scripts)
    await connection.execute(text(f"COMMENT ON TABLE alembic_version IS '{OLDEST_CODE}{oldest}'"))
