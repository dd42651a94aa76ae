"""asyncpg connections without SQLAlchemy, for single statements where its extra round trips count."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeAlias

import asyncpg

from server.db.outages import DATABASE_ERRORS

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

CLOSE_TIMEOUT = 0.25  # seconds to cancel a running statement on a server that responds
IDLE_TIMEOUT = 300.0  # seconds
DRAIN_TIMEOUT = 5.0  # seconds for running statements when the process stops


class RawPool:
    """asyncpg's pool, opened at first use, with connections that a cancelled caller does not wait for.

    asyncpg's own `release` waits until the server confirms that the statement was cancelled, which never happens on a
    silent network. Here the connection is closed in the background instead, and the pool opens another one.
    """

    def __init__(
        self, connect: Callable[[], Awaitable[Connection]], *, size: int, timeout: timedelta, is_read_only: bool = False
    ) -> None:
        """`is_read_only`: connections to a replica are wanted; otherwise they are closed."""
        self.size = size
        self._is_read_only = is_read_only
        self._connect = connect
        self._timeout = timeout.total_seconds()
        self._pool: Any = None  # its proxies have the type of connections only at run time
        self._closing: set[asyncio.Task[None]] = set()

    async def fetch(self, statement: str, *values: Any) -> list[asyncpg.Record]:
        async with self.acquire() as connection:
            return await connection.fetch(statement, *values)

    async def fetchrow(self, statement: str, *values: Any) -> asyncpg.Record | None:
        return next(iter(await self.fetch(statement, *values)), None)

    async def fetchval(self, statement: str, *values: Any) -> Any:
        row = await self.fetchrow(statement, *values)
        return None if row is None else row[0]

    async def execute(self, statement: str, *values: Any) -> str:
        async with self.acquire() as connection:
            return await connection.execute(statement, *values)

    def acquire(self) -> "_AcquireContext":
        """Use as `async with pool.acquire() as connection`."""
        return _AcquireContext(self)

    @property
    def in_use(self) -> int:
        return 0 if self._pool is None else self._pool.get_size() - self._pool.get_idle_size()

    @property
    def waiting(self) -> int:
        # asyncpg has no public count; its free connections are in an asyncio queue.
        queue = getattr(self._pool, "_queue", None)
        return sum(not getter.done() for getter in getattr(queue, "_getters", ()))

    async def close(self) -> None:
        if self._pool is None:
            return
        try:
            async with asyncio.timeout(DRAIN_TIMEOUT):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()
        if self._closing:
            await asyncio.wait(self._closing)

    async def take(self) -> Connection:
        if self._pool is None:
            self._pool = asyncpg.create_pool(
                connect=self._open,
                reset=_keep_session,
                min_size=0,
                max_size=self.size,
                max_queries=2**62,
                max_inactive_connection_lifetime=IDLE_TIMEOUT,
            )
            await self._pool  # with min_size=0 this opens no connection and does not yield to the event loop
        while True:
            async with asyncio.timeout(self._timeout):  # asyncpg's own timeout costs a task
                connection: Connection = await self._pool.acquire()
            if self._is_read_only or not _is_read_only(connection):
                return connection
            self._discard(connection)

    async def give_back(self, connection: Connection, error: BaseException | None) -> None:
        """Keeps the connection after a response, even an error; after anything else its state is unknown."""
        has_response = error is None or isinstance(error, asyncpg.PostgresError)
        try:
            is_reusable = has_response and not connection.is_in_transaction()
        except asyncpg.InterfaceError:  # it was closed during its use, which has released it already
            return
        if is_reusable:
            await self._pool.release(connection)
        else:
            self._discard(connection)

    def _discard(self, connection: Connection) -> None:
        """Not `terminate()`: that would also end asyncpg's request to cancel the statement on the server."""
        closing = asyncio.create_task(_close(connection))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def _open(self, *_: Any, **__: Any) -> Connection:
        return await self._connect()


class _AcquireContext:
    """One use of one connection; a class, because a generator costs more CPU than the rest of it."""

    __slots__ = ("_connection", "_pool")

    def __init__(self, pool: RawPool) -> None:
        self._pool = pool

    async def __aenter__(self) -> Connection:
        self._connection = await self._pool.take()
        return self._connection

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self._pool.give_back(self._connection, error)


async def _keep_session(_connection: object) -> None:
    """Instead of asyncpg's reset query, a round trip per use: single statements leave no session state behind."""


def _is_read_only(connection: Connection) -> bool:
    """Costs no round trip: a server that stops taking writes reports it as a parameter."""
    settings: Any = connection.get_settings()
    return (
        getattr(settings, "in_hot_standby", "off") == "on"
        or getattr(settings, "default_transaction_read_only", "off") == "on"
    )


async def _close(connection: Connection) -> None:
    with contextlib.suppress(*DATABASE_ERRORS):
        await connection.close(timeout=CLOSE_TIMEOUT)
