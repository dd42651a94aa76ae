"""The way to PostgreSQL: `read()` and `write()` for everybody, raw connections for the hot paths."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg
import orjson
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

from server.db.url import driver_url

COMMITTED = "topics that the commit will have changed"
WRITTEN = "machines whose rows the commit will have changed"


class Database:
    """One per process. Opened lazily: making one does not connect."""

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 10,
        command_timeout: timedelta = timedelta(seconds=30),
        on_commit: Callable[[set[str]], None] | None = None,
        name: str = "pilotlight",
    ) -> None:
        self._url = driver_url(url)
        self._command_timeout = command_timeout.total_seconds()
        self._name = name
        self.on_commit = on_commit
        self.on_written: Callable[[set[str]], None] | None = None
        self.engine = create_async_engine(
            "postgresql+asyncpg://",
            async_creator=self.connect,  # asyncpg reads the whole URL itself: sslmode, several hosts, socket folders
            pool_size=pool_size,
            max_overflow=0,  # a bound is a bound: callers beyond it wait, the server's connections stay ours to count
            pool_timeout=self._command_timeout,
            pool_pre_ping=False,  # one round trip a checkout; a broken connection is thrown away on its first error
            json_serializer=_dumps,
            json_deserializer=orjson.loads,
        )
        self._sessions = async_sessionmaker(self.engine, expire_on_commit=False)
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._pool_lock = asyncio.Lock()
        self._pool_size = pool_size

    async def connect(self, **overrides: Any) -> "asyncpg.Connection[asyncpg.Record]":
        """A connection of one's own, for LISTEN, leases and locks. Whoever asked for it closes it."""
        options: dict[str, Any] = {
            "command_timeout": self._command_timeout,
            "timeout": 10,
            "server_settings": self._session(),
            **overrides,
        }
        return await asyncpg.connect(self._url, **options)

    def _session(self) -> dict[str, str]:
        # No statement of ours runs long enough to be worth compiling, and some servers would compile them every time.
        return {"application_name": self._name, "timezone": "UTC", "jit": "off"}

    async def pool(self) -> "asyncpg.Pool[asyncpg.Record]":
        """Raw asyncpg connections for statements where SQLAlchemy's extra round trips count."""
        async with self._pool_lock:
            if self._pool is None:
                self._pool = await asyncpg.create_pool(
                    self._url,
                    min_size=0,
                    max_size=self._pool_size,
                    command_timeout=self._command_timeout,
                    server_settings=self._session(),
                    reset=_keep,  # nothing here sets session state, and the reset is a round trip per use
                )
            return self._pool

    @asynccontextmanager
    async def read(self) -> AsyncGenerator[AsyncSession]:
        """A read-only transaction: one moment's view of the rows, and no way to write by mistake."""
        async with self._sessions() as session:
            await session.connection(
                execution_options={"postgresql_readonly": True, "isolation_level": "REPEATABLE READ"}
            )
            yield session

    @asynccontextmanager
    async def write(self) -> AsyncGenerator[AsyncSession]:
        """One transaction, committed at its end or not at all; then whoever waits for its topics is woken.

        The waking comes after the commit and outside the transaction: a NOTIFY inside it would take a lock on
        the whole database until the flush is over, and all such commits would go one by one.
        """
        async with self._sessions() as session:
            async with session.begin():
                yield session
            topics: set[str] | None = session.info.get(COMMITTED)
            written: set[str] | None = session.info.get(WRITTEN)
        if written and self.on_written is not None:
            self.on_written(written)
        if topics and self.on_commit is not None:
            self.on_commit(topics)

    async def close(self) -> None:
        if self._pool is not None:
            try:
                await asyncio.wait_for(self._pool.close(), timeout=5)
            except TimeoutError:
                self._pool.terminate()
        await self.engine.dispose()


def will_change(session: AsyncSession, topic: str) -> None:
    """Say that this transaction, once committed, gives the readers of `topic` something to do."""
    session.info.setdefault(COMMITTED, set()).add(topic)


def will_write(session: AsyncSession, novita_id: str) -> None:
    """Say that this transaction, once committed, makes what is remembered of that machine out of date."""
    session.info.setdefault(WRITTEN, set()).add(novita_id)


async def _keep(_connection: object) -> None:
    """Asked for by the pool when a connection comes back; nothing to reset."""


def _dumps(value: Any) -> str:
    return orjson.dumps(value).decode()
