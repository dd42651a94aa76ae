"""A database in which nothing stays written: for finding out what would be refused, by trying it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

import asyncpg
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.engine import Database


class Rehearsal(Database):
    """The same rows, locks, indexes and checks as the real one; every transaction is taken back, and wakes nobody."""

    def __init__(self, database: Database) -> None:  # not the parent's: connections and pools are the real one's
        self._database = database
        self.engine = database.engine
        self.on_commit = None
        self.on_written = None

    @asynccontextmanager
    async def read(self) -> AsyncGenerator[AsyncSession]:
        async with self._database.read() as session:
            yield session

    @asynccontextmanager
    async def write(self) -> AsyncGenerator[AsyncSession]:
        async with AsyncSession(self.engine, expire_on_commit=False) as session:
            yield session
            await session.flush()
            # What was made is shown to its caller all the same; a rollback would take its fields away.
            session.expunge_all()
            await session.rollback()

    async def pool(self) -> "asyncpg.Pool[asyncpg.Record]":
        return cast("asyncpg.Pool[asyncpg.Record]", _TakenBack(await self._database.pool()))

    async def connect(self, **overrides: Any) -> "asyncpg.Connection[asyncpg.Record]":
        raise TypeError("a connection of one's own could not be taken back")

    async def close(self) -> None:
        """Nothing here is its own."""


class _TakenBack:
    """What raw statements are run by; more of a pool than they use would be more to take back."""

    def __init__(self, pool: "asyncpg.Pool[asyncpg.Record]") -> None:
        self._pool = pool

    async def fetch(self, statement: str, *values: Any) -> list[asyncpg.Record]:
        async with self._pool.acquire() as connection:
            transaction = connection.transaction()
            await transaction.start()
            try:
                return await connection.fetch(statement, *values)
            finally:
                await transaction.rollback()

    async def fetchrow(self, statement: str, *values: Any) -> asyncpg.Record | None:
        return next(iter(await self.fetch(statement, *values)), None)

    async def fetchval(self, statement: str, *values: Any) -> Any:
        row = await self.fetchrow(statement, *values)
        return None if row is None else row[0]
