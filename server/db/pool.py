"""asyncpg connections without SQLAlchemy, for single statements where its extra round trips count."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any
from uuid import UUID

import asyncpg

from server.db.outages import DATABASE_ERRORS
from server.db.timeouts import RawConnection

CLOSE_TIMEOUT = 0.25  # seconds to cancel a running statement on a server that responds
IDLE_TIMEOUT = 300.0  # seconds
DRAIN_TIMEOUT = 5.0  # seconds for running statements when the process stops


class RawPool:
    """Up to `size` connections, opened when they are needed; callers beyond that wait in line.

    asyncpg's own pool takes as long as a small statement: a timer, a future and a task for each use. It also waits for
    a cancelled statement until the server confirms the end, which never happens on a silent network. Here the
    connection is closed in the background instead, and another one is opened.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[RawConnection]],
        *,
        size: int,
        timeout: timedelta,
        is_read_only: bool = False,
    ) -> None:
        """`is_read_only`: connections to a replica are wanted; otherwise they are closed."""
        self.size = size
        self._is_read_only = is_read_only
        self._connect = connect
        self._timeout = timeout.total_seconds()
        self._places = size  # that neither a connection in use nor one that is being opened has
        self._idle: list[tuple[RawConnection, float]] = []  # with the time of its last use; the last one is used first
        self._used: set[RawConnection] = set()
        self._line: deque[asyncio.Future[None]] = deque()  # callers that wait for a place
        self._closing: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None  # while there are idle connections
        self._all_back: asyncio.Event | None = None  # once the pool is closed

    async def fetch(self, statement: str, *values: Any) -> list[asyncpg.Record]:
        async with self.acquire() as connection:
            return await connection.fetch(statement, *values)

    async def fetch_by_keys(self, statement: str, keys: Sequence[UUID], *values: Any) -> list[asyncpg.Record]:
        """The rows of a statement whose first parameter is only used as `= ANY($1::uuid[])`.

        One key is compared alone. PostgreSQL takes an array that it does not know to have ten items, so it would plan
        such a look-up anew each time: that takes several times as long as the look-up.
        """
        if len(keys) == 1:
            return await self.fetch(_for_one_key(statement), keys[0], *values)
        return await self.fetch(statement, keys, *values)

    async def fetchrow(self, statement: str, *values: Any) -> asyncpg.Record | None:
        return next(iter(await self.fetch(statement, *values)), None)

    async def fetchval(self, statement: str, *values: Any) -> Any:
        row = await self.fetchrow(statement, *values)
        return None if row is None else row[0]

    async def execute(self, statement: str, *values: Any) -> str:
        async with self.acquire() as connection:
            return await connection.execute(statement, *values)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncGenerator[RawConnection]:
        """One transaction, committed at its end. After a lost connection or a cancellation the server rolls it back."""
        async with self.acquire() as connection:
            transaction = connection.transaction()
            await transaction.start()
            try:
                yield connection
            except asyncpg.PostgresError:
                await transaction.rollback()
                raise
            await transaction.commit()

    def acquire(self) -> "_AcquireContext":
        """Use as `async with pool.acquire() as connection`."""
        return _AcquireContext(self)

    @property
    def in_use(self) -> int:
        return len(self._used)

    @property
    def waiting(self) -> int:
        return len(self._line)

    async def close(self) -> None:
        """Wait for connections in use, a limited time, and close all."""
        self._all_back = asyncio.Event()
        self._stop_timer()
        while self._idle:
            self._discard(self._idle.pop()[0])
        if self._used:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_TIMEOUT):
                    await self._all_back.wait()
            for connection in list(self._used):
                connection.terminate()
        if self._closing:
            await asyncio.wait(self._closing)

    async def take(self) -> RawConnection:
        if self._places and self._idle and not self._line:
            connection = self._take_idle()
            if connection is not None:
                self._places -= 1
                return connection
        async with asyncio.timeout(self._timeout):
            if self._places and not self._line:
                self._places -= 1
            else:
                await self._wait_for_place()
            return await self._take_or_open()

    def give_back(self, connection: RawConnection, error: BaseException | None) -> None:
        """Keeps the connection after a response, even an error; after anything else its state is unknown."""
        self._used.discard(connection)
        has_response = error is None or isinstance(error, asyncpg.PostgresError)
        if not connection.is_closed():
            if has_response and self._all_back is None and not connection.is_in_transaction():
                self._idle.append((connection, time.monotonic()))
                if self._timer is None:
                    self._start_timer(IDLE_TIMEOUT)
            else:
                self._discard(connection)
        self._give_place()

    def _take_idle(self) -> RawConnection | None:
        """The connection that was used last."""
        while self._idle:
            connection, _ = self._idle.pop()
            if connection.is_closed():
                continue
            if self._is_read_only or not _is_read_only(connection):
                self._used.add(connection)
                return connection
            self._discard(connection)
        return None

    async def _take_or_open(self) -> RawConnection:
        """For a caller that has a place; it has none any more if this fails."""
        try:
            while True:
                connection = self._take_idle()
                if connection is not None:
                    return connection
                if self._all_back is not None:
                    raise asyncpg.InterfaceError("the pool is closed")
                self._idle.append((await self._connect(), time.monotonic()))
        except BaseException:
            self._give_place()
            raise

    async def _wait_for_place(self) -> None:
        place = asyncio.get_running_loop().create_future()
        self._line.append(place)
        try:
            await place
        except BaseException:
            if place.done() and not place.cancelled():
                self._give_place()  # it came in the moment in which the caller went away
            elif place in self._line:
                self._line.remove(place)
            raise

    def _give_place(self) -> None:
        """To the caller that waits longest, if one does."""
        if self._all_back is not None and not self._used:
            self._all_back.set()
        while self._line:
            place = self._line.popleft()
            if not place.done():
                place.set_result(None)
                return
        self._places += 1

    def _start_timer(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._close_idle)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_idle(self) -> None:
        oldest = time.monotonic() - IDLE_TIMEOUT
        while self._idle and self._idle[0][1] <= oldest:
            self._discard(self._idle.pop(0)[0])
        self._timer = None
        if self._idle:
            self._start_timer(self._idle[0][1] - oldest)

    def _discard(self, connection: RawConnection) -> None:
        """Not `terminate()`: that would also end asyncpg's request to cancel the statement on the server."""
        closing = asyncio.create_task(_close(connection))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


@lru_cache(maxsize=1000)
def _for_one_key(statement: str) -> str:
    return statement.replace("= ANY($1::uuid[])", "= $1::uuid")


class _AcquireContext:
    """One use of one connection; a class, because a generator costs more CPU than the rest of it."""

    __slots__ = ("_connection", "_pool")

    def __init__(self, pool: RawPool) -> None:
        self._pool = pool

    async def __aenter__(self) -> RawConnection:
        self._connection = await self._pool.take()
        return self._connection

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._pool.give_back(self._connection, error)


def _is_read_only(connection: RawConnection) -> bool:
    """Costs no round trip: a server that stops taking writes reports it as a parameter."""
    settings: Any = connection.get_settings()
    return (
        getattr(settings, "in_hot_standby", "off") == "on"
        or getattr(settings, "default_transaction_read_only", "off") == "on"
    )


async def _close(connection: RawConnection) -> None:
    with contextlib.suppress(*DATABASE_ERRORS):
        await connection.close(timeout=CLOSE_TIMEOUT)
