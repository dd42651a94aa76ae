"""A database in which nothing stays written: for finding out what would be refused, by trying it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.engine import Database
from server.db.raw import RawPool


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

    @property
    def raw(self) -> RawPool:
        return _TakenBack(self._database.raw)

    async def connect(self, **overrides: Any) -> "asyncpg.Connection[asyncpg.Record]":
        raise TypeError("a connection of one's own could not be taken back")

    async def close(self) -> None:
        """Nothing here is its own."""


class _TakenBack(RawPool):
    """What raw statements are run by; more of a pool than they use would be more to take back."""

    def __init__(self, pool: RawPool) -> None:  # not the parent's: the connections are the real one's
        self._pool = pool

    async def fetch(self, statement: str, *values: Any) -> list[asyncpg.Record]:
        async with self._pool.acquire() as connection:
            transaction = connection.transaction()
            await transaction.start()
            try:
                return await connection.fetch(statement, *values)
            finally:
                await transaction.rollback()

    async def execute(self, statement: str, *values: Any) -> str:
        raise TypeError("only what answers with rows is rehearsed")
