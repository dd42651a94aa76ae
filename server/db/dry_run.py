"""A database for validateOnly: runs every transaction and rolls it back."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.database import DATABASE, Database
from server.db.pool import RawPool
from server.db.timeouts import RawConnection


class DryRun(Database):
    """Same rows, locks, indexes and checks as the real one; every transaction is rolled back and notifies no one."""

    def __init__(
        self, database: Database
    ) -> None:  # no super().__init__: connections and pools belong to the real database
        self._database = database
        self.engine = database.engine
        self.on_commit = None
        self.on_invalidate = None
        self._shared = {}

    @asynccontextmanager
    async def read(self) -> AsyncGenerator[AsyncSession]:
        async with self._database.read() as session:
            yield session

    @asynccontextmanager
    async def write(self) -> AsyncGenerator[AsyncSession]:
        async with AsyncSession(self.engine, expire_on_commit=False, info={DATABASE: self}) as session:
            yield session
            await session.flush()
            # The caller still reads the new objects; a rollback would expire their fields.
            session.expunge_all()
            await session.rollback()

    @property
    def raw(self) -> RawPool:
        return _RolledBackPool(self._database.raw)

    async def connect(self, **overrides: Any) -> "asyncpg.Connection[asyncpg.Record]":
        raise TypeError("a dry run has no dedicated connections: their statements could not be rolled back")

    async def close(self) -> None:
        """The real database closes the connections."""


class _RolledBackPool(RawPool):
    """Runs raw statements; offers only what they use."""

    def __init__(self, pool: RawPool) -> None:  # no super().__init__: the connections belong to the real pool
        self._pool = pool

    async def fetch(self, statement: str, *values: Any) -> list[asyncpg.Record]:
        async with self.transaction() as connection:
            return await connection.fetch(statement, *values)

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[RawConnection]:
        async with self._pool.acquire() as connection:
            transaction = connection.transaction()
            await transaction.start()
            try:
                yield connection
            finally:
                await transaction.rollback()

    async def execute(self, statement: str, *values: Any) -> str:
        raise TypeError("a dry run supports only statements that return rows")
