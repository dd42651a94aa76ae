"""Reads from a replica, if it has replayed every acknowledged write; otherwise callers use the primary."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg
import orjson
import structlog
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine

from server.db.hosts import driver_url
from server.db.outages import DATABASE_ERRORS, is_database_unavailable
from server.db.pool import RawPool
from server.db.timeouts import RawConnection, Timeouts

log = structlog.get_logger(__name__)

READ_ONLY: dict[str, Any] = {"postgresql_readonly": True, "isolation_level": "REPEATABLE READ"}
PAUSE = timedelta(seconds=1)  # after a failure or too much lag; reads use the primary meanwhile
POLL_INTERVAL = timedelta(milliseconds=2)
CONNECT_TIMEOUT = timedelta(seconds=2)
# Null on a server that is not a replica: a demoted primary would return old data.
REPLAYED = "SELECT (pg_last_wal_replay_lsn() - '0/0'::pg_lsn)::bigint"
# How long a position that was replayed is trusted: replay only goes forward, unless the server is replaced.
TRUST = timedelta(seconds=1)
CONFLICT = "40001"  # replay conflicted with the query


class ReplicaConnection(RawConnection):
    """Remembers how far its server had replayed when it was last asked."""

    __slots__ = ("_asked_at", "_replayed")

    def note_replayed(self, position: int) -> None:
        self._replayed = position
        self._asked_at = time.monotonic()

    def is_known_to_have(self, position: int) -> bool:
        known = getattr(self, "_replayed", -1)
        return known >= position and time.monotonic() - self._asked_at < TRUST.total_seconds()


class Replica:
    """One per process, if DATABASE_READ_URL is set. After any failure the primary is read."""

    def __init__(self, url: str, *, pool_size: int, timeouts: Timeouts, timeout: timedelta, name: str) -> None:
        self._url = driver_url(url)
        self._timeouts = timeouts
        self._timeout = timeout.total_seconds()
        self._name = name
        self._paused_until = 0.0
        self.engine = create_async_engine(
            "postgresql+asyncpg://",
            async_creator=self._connect,
            pool_size=pool_size,
            max_overflow=0,
            pool_timeout=self._timeout,  # callers use the primary instead of waiting for a connection
            json_deserializer=orjson.loads,
        )
        self._raw = RawPool(self._connect, size=pool_size, timeout=timeout, is_read_only=True)

    async def fetch(self, reached: int, statement: str, *values: Any) -> list[asyncpg.Record] | None:
        """The rows of one statement, which sees everything up to a WAL position; None if the replica can't offer it."""
        if time.monotonic() < self._paused_until:
            return None
        try:
            async with self._raw.acquire() as connection:
                if not await self._has_replayed(connection, reached):
                    self._pause("behind")
                    return None
                return await connection.fetch(statement, *values)
        except DATABASE_ERRORS as error:
            if not is_database_unavailable(error):
                raise
            is_busy = isinstance(error, TimeoutError) and self._raw.in_use >= self._raw.size
            if not is_busy:
                self._pause(type(error).__name__)
            return None

    @asynccontextmanager
    async def session(self, *, reached: int | None = None) -> AsyncGenerator[AsyncSession | None]:
        """A read-only transaction that sees everything up to a WAL position; None if the replica can't offer one."""
        async with AsyncExitStack() as stack:
            session = None
            if time.monotonic() >= self._paused_until:
                try:
                    session = await self._open(stack, reached)
                except DATABASE_ERRORS as error:
                    self._pause(type(error).__name__)
            try:
                yield session
            except DBAPIError as error:
                code = getattr(error.orig, "sqlstate", None)
                if session is None or not (error.connection_invalidated or code == CONFLICT):
                    raise
                self._pause(type(error).__name__)
                raise ConnectionError("the replica is gone, or replay cancelled the query") from error

    async def close(self) -> None:
        await self._raw.close()
        await self.engine.dispose()

    async def _open(self, stack: AsyncExitStack, reached: int | None) -> AsyncSession | None:
        connection = await stack.enter_async_context(self.engine.connect())
        # Checked on the connection that is then read (the URL may name several replicas), and before its transaction
        # begins: inside, the check would run after the snapshot was taken.
        if reached is not None and not await self._session_has_replayed(connection, reached):
            self._pause("behind")
            return None
        session = await stack.enter_async_context(AsyncSession(bind=connection, expire_on_commit=False))
        await session.connection(execution_options=READ_ONLY)
        return session

    async def _session_has_replayed(self, connection: AsyncConnection, position: int) -> bool:
        raw: Any = (await connection.get_raw_connection()).driver_connection
        try:
            return await self._has_replayed(raw, position)
        except DATABASE_ERRORS:
            await connection.invalidate()  # the pool did not see the error and would keep a dead connection
            raise

    async def _has_replayed(self, connection: Any, position: int) -> bool:
        """Waits for it a short time. Without writes the last answer of this connection suffices."""
        if connection.is_known_to_have(position):
            return True
        deadline = time.monotonic() + self._timeout
        while True:
            replayed: int | None = await connection.fetchval(REPLAYED)
            if replayed is not None and replayed >= position:
                connection.note_replayed(replayed)
                return True
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(POLL_INTERVAL.total_seconds())

    async def _connect(self, *_: Any, **__: Any) -> RawConnection:
        attributes: dict[str, Any] = {}
        if "target_session_attrs=" not in self._url:
            attributes["target_session_attrs"] = "prefer-standby"
        return await asyncpg.connect(
            self._url,
            timeout=CONNECT_TIMEOUT.total_seconds(),
            command_timeout=self._timeouts.statement.total_seconds(),
            connection_class=ReplicaConnection,
            server_settings={
                "application_name": f"{self._name} replica",
                "timezone": "UTC",
                "jit": "off",
                **self._timeouts.startup_parameters(),
            },
            **attributes,
        )

    def _pause(self, reason: str) -> None:
        if time.monotonic() >= self._paused_until:
            log.warning("replica.rests", why=reason)
        self._paused_until = time.monotonic() + PAUSE.total_seconds()
