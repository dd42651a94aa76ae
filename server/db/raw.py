"""Connections past SQLAlchemy, for single statements whose round trips count."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import timedelta
from types import TracebackType
from typing import Any, TypeAlias

import asyncpg

from server.db.trouble import DATABASE_TROUBLE

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

FAREWELL = 0.25  # seconds for a statement to be called off on a server that answers
IDLE = 300.0  # seconds after which a connection that nobody needs is closed
LAST_WORDS = 5.0  # seconds that statements have to end when the process does


class RawPool:
    """At most `size` connections, made when they are needed, the last used first.

    Whoever is cancelled is out at once and leaves the connection behind. asyncpg's own pool has him wait until the
    server has heard of it, which takes for ever when the network is silent; and it costs more than most statements.
    """

    def __init__(self, connect: Callable[[], Awaitable[Connection]], *, size: int, patience: timedelta) -> None:
        self.size = size
        self._connect = connect
        self._patience = patience.total_seconds()
        self._free: deque[tuple[Connection, float]] = deque()
        self._made: set[Connection] = set()
        self._being_made = 0
        self._waiting: deque[asyncio.Future[Connection | None]] = deque()
        self._leaving: set[asyncio.Task[None]] = set()

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

    def acquire(self) -> "_Use":
        """A connection for a moment: `async with pool.acquire() as connection`."""
        return _Use(self)

    @property
    def in_use(self) -> int:
        return len(self._made) + self._being_made - len(self._free)

    @property
    def waiting(self) -> int:
        return sum(not waiter.done() for waiter in self._waiting)

    async def close(self) -> None:
        for _ in range(int(LAST_WORDS / 0.05)):
            if not self.in_use:
                break
            await asyncio.sleep(0.05)
        self._free.clear()
        for connection in list(self._made):
            self._leave(connection)
        if self._leaving:
            await asyncio.wait(self._leaving)

    async def take(self) -> Connection:
        while True:
            while self._free:
                connection, _ = self._free.pop()
                if _is_usable(connection):
                    return connection
                self._leave(connection)
            if len(self._made) + self._being_made < self.size:
                return await self._make()
            connection = await self._wait()
            if connection is not None and _is_usable(connection):
                return connection
            if connection is not None:
                self._leave(connection)

    def give_back(self, connection: Connection, error: BaseException | None) -> None:
        """After an answer, and be it a refusal, it serves the next one; after anything else who knows where it is."""
        is_answered = error is None or isinstance(error, asyncpg.PostgresError)
        if connection.is_closed() or connection.is_in_transaction() or not is_answered:
            self._leave(connection)
            return
        if self._offer(connection):
            return
        now = time.monotonic()
        self._free.append((connection, now))
        if now - self._free[0][1] > IDLE:
            self._leave(self._free.popleft()[0])

    async def _make(self) -> Connection:
        self._being_made += 1
        try:
            connection = await self._connect()
        except BaseException:
            self._being_made -= 1
            self._offer(None)
            raise
        self._being_made -= 1
        self._made.add(connection)
        return connection

    async def _wait(self) -> "Connection | None":
        """A connection; None: there is room for one more."""
        waiter: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            async with asyncio.timeout(self._patience):
                return await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled():  # given to whom has just gone
                connection = waiter.result()
                if connection is None:
                    self._offer(None)
                else:
                    self.give_back(connection, None)
            raise

    def _offer(self, connection: "Connection | None") -> bool:
        """To whoever has waited longest."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return True
        return False

    def _leave(self, connection: Connection) -> None:
        self._made.discard(connection)
        leaving = asyncio.create_task(_farewell(connection))
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)
        self._offer(None)


class _Use:
    """One use of one connection. No generator: it would cost as much as all the rest of it."""

    __slots__ = ("_connection", "_pool")

    def __init__(self, pool: RawPool) -> None:
        self._pool = pool

    async def __aenter__(self) -> Connection:
        self._connection = await self._pool.take()
        return self._connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.give_back(self._connection, error)


def _is_usable(connection: Connection) -> bool:
    """Costs no round trip: a server that takes no writes any more has said so by itself."""
    if connection.is_closed():
        return False
    settings: Any = connection.get_settings()
    return not any(
        getattr(settings, name, "off") == "on" for name in ("in_hot_standby", "default_transaction_read_only")
    )


async def _farewell(connection: Connection) -> None:
    with contextlib.suppress(*DATABASE_TROUBLE):
        await connection.close(timeout=FAREWELL)
