"""Databases for tests: created empty or as copies, and emptied between tests."""

from uuid import uuid4

import asyncpg
from sqlalchemy import text

from server.db.database import Database
from server.db.migrate import upgrade

# Never emptied: what migrations put there belongs to the tables, not to the rows of a test.
KEPT = {"alembic_version", "event_log"}


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
