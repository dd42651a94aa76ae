"""Databases for tests: created empty or as copies, and emptied between tests."""

from uuid import uuid4

import asyncpg

from server.db.migrate import upgrade

# Never emptied: what migrations put there belongs to the tables, not to the rows of a test.
KEPT = {"alembic_version", "event_log", "seal_key"}


class DatabaseMaker:
    """Makes databases on one server, and drops them all at the end."""

    def __init__(self, server_url: str) -> None:
        self._server_url = server_url
        self._made: list[str] = []
        self._template: str | None = None

    async def __call__(self, template: str | None = None) -> str:
        """The URL of a fresh database, empty or a copy of `template`'s."""
        name = f"test_{uuid4().hex[:12]}"
        copied = f' TEMPLATE "{template.rsplit("/", 1)[1]}"' if template else ""
        await self._run(f'CREATE DATABASE "{name}"{copied}')
        self._made.append(name)
        return f"{self._server_url.rsplit('/', 1)[0]}/{name}"

    async def migrated(self) -> str:
        """The URL of a fresh database with all tables: a copy of a template, which is made once and never used."""
        if self._template is None:
            template = await self()
            await upgrade(template)
            self._template = template
        return await self(self._template)

    async def drop_all(self) -> None:
        for name in self._made:
            await self._run(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    async def _run(self, statement: str) -> None:
        connection = await asyncpg.connect(self._server_url)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()


class RowDeleter:
    """Empties databases between tests, over connections that stay open: opening them cost more than the statements."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[asyncpg.Connection, str]] = {}

    async def __call__(self, url: str) -> None:
        try:
            await self._delete(url)
        except (asyncpg.InterfaceError, asyncpg.InternalClientError, asyncpg.PostgresError, ConnectionError):
            # Ended by a test that ends all connections to its database; a second failure is real.
            self._open.pop(url)[0].terminate()
            await self._delete(url)

    async def close(self) -> None:
        for connection, _ in self._open.values():
            await connection.close()

    async def _delete(self, url: str) -> None:
        if url not in self._open:
            connection = await asyncpg.connect(url)
            await connection.execute("SET session_replication_role = replica")  # switches foreign keys off
            self._open[url] = (connection, await _statements(connection))
        connection, statements = self._open[url]
        await connection.execute(statements)


async def _statements(connection: asyncpg.Connection) -> str:
    """DELETE, not TRUNCATE: on small tables it is many times faster."""
    names = await connection.fetch(
        "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition"
        " AND relnamespace = 'public'::regnamespace"
    )
    return "; ".join(f'DELETE FROM "{name}"' for name in sorted({name for (name,) in names} - KEPT))
