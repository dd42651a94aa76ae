"""One server per test process, one migrated database in it, and rows deleted between tests."""

import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest
from sqlalchemy import text

from server.db.embedded import EmbeddedPostgres
from server.db.engine import Database
from server.db.migrate import upgrade
from server.db.signals import Signals
from server.errors import StartupProblem

# Never emptied: what migrations put there belongs to the tables, not to the rows of a test.
KEPT = {"alembic_version", "event_log"}


@pytest.fixture(scope="session")
async def server_url() -> AsyncIterator[str]:
    """A PostgreSQL server: TEST_DATABASE_URL, else an embedded one, else a container."""
    given = os.environ.get("TEST_DATABASE_URL")
    if given:
        yield given
        return
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pilotlight-test-")))
        try:
            running = await stack.enter_async_context(EmbeddedPostgres(home, durable=False))
        except StartupProblem as problem:
            url = _container(stack)
            if url is None:
                raise problem from None
            yield url
            return
        yield running.url


def _container(stack: AsyncExitStack) -> str | None:
    """Where the wheel's binaries don't run but Docker does."""
    with suppress(Exception):
        from testcontainers.postgres import PostgresContainer  # noqa: PLC0415

        container = stack.enter_context(PostgresContainer("postgres:17"))
        return str(container.get_connection_url(driver=None))
    return None


@pytest.fixture(scope="session")
async def new_database(server_url: str) -> AsyncIterator["DatabaseMaker"]:
    """Makes empty databases; drops them all at the end."""
    maker = DatabaseMaker(server_url)
    yield maker
    await maker.drop_all()


class DatabaseMaker:
    def __init__(self, server_url: str) -> None:
        self._server_url = server_url
        self._made: list[str] = []

    async def __call__(self, template: str | None = None) -> str:
        """The URL of a fresh database, empty or a copy of `template`'s."""
        name = f"test_{uuid4().hex[:12]}"
        copied = f' TEMPLATE "{template.rsplit("/", 1)[1]}"' if template else ""
        await self._run(f'CREATE DATABASE "{name}"{copied}')
        self._made.append(name)
        return f"{self._server_url.rsplit('/', 1)[0]}/{name}"

    async def drop_all(self) -> None:
        for name in self._made:
            await self._run(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    async def _run(self, statement: str) -> None:
        connection = await asyncpg.connect(self._server_url)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()


@pytest.fixture(scope="session")
async def migrated_url(new_database: DatabaseMaker) -> str:
    url = await new_database()
    await upgrade(url)
    return url


@pytest.fixture
async def database_url(migrated_url: str) -> AsyncIterator[str]:
    """A migrated database without rows."""
    yield migrated_url
    await delete_rows(migrated_url)


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url)
    yield database
    await database.close()


@pytest.fixture
async def signals(database: Database) -> AsyncIterator[Signals]:
    signals = Signals(database)
    signals.start()
    yield signals
    await signals.stop()


async def delete_rows(url: str) -> None:
    """DELETE, not TRUNCATE: on small tables it is many times faster. Foreign keys are switched off meanwhile."""
    database = Database(url, pool_size=1)
    try:
        async with database.engine.begin() as connection:
            names = await connection.execute(
                text(
                    "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition"
                    " AND relnamespace = 'public'::regnamespace"
                )
            )
            await connection.execute(text("SET LOCAL session_replication_role = replica"))
            for name in sorted(set(names.scalars()) - KEPT):
                await connection.execute(text(f'DELETE FROM "{name}"'))
    finally:
        await database.close()


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder for a test's own Pilotlight, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="pilotlight-home-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)
