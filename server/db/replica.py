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
from server.db.outages import DATABASE_ERRORS
from server.db.timeouts import Timeouts

log = structlog.get_logger(__name__)

READ_ONLY: dict[str, Any] = {"postgresql_readonly": True, "isolation_level": "REPEATABLE READ"}
PAUSE = timedelta(seconds=1)  # after a failure or too much lag; reads use the primary meanwhile
POLL_INTERVAL = timedelta(milliseconds=2)
CONNECT_TIMEOUT = timedelta(seconds=2)
# Null on a server that is not a replica: a demoted primary would return old data.
HAS_REPLAYED = "SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn"
CONFLICT = "40001"  # replay conflicted with the query


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

    @asynccontextmanager
    async def session(self, *, reached: str | None = None) -> AsyncGenerator[AsyncSession | None]:
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
        await self.engine.dispose()

    async def _open(self, stack: AsyncExitStack, reached: str | None) -> AsyncSession | None:
        connection = await stack.enter_async_context(self.engine.connect())
        # Checked on the connection that is then read (the URL may name several replicas), and before its transaction
        # begins: inside, the check would run after the snapshot was taken.
        if reached is not None and not await self._has_replayed(connection, reached):
            self._pause("behind")
            return None
        session = await stack.enter_async_context(AsyncSession(bind=connection, expire_on_commit=False))
        await session.connection(execution_options=READ_ONLY)
        return session

    async def _has_replayed(self, connection: AsyncConnection, position: str) -> bool:
        raw: Any = (await connection.get_raw_connection()).driver_connection
        deadline = time.monotonic() + self._timeout
        try:
            while not await raw.fetchval(HAS_REPLAYED, position):
                if time.monotonic() >= deadline:
                    return False
                await asyncio.sleep(POLL_INTERVAL.total_seconds())
        except DATABASE_ERRORS:
            await connection.invalidate()  # the pool did not see the error and would keep a dead connection
            raise
        return True

    async def _connect(self, *_: Any, **__: Any) -> "asyncpg.Connection[asyncpg.Record]":
        attributes: dict[str, Any] = {}
        if "target_session_attrs=" not in self._url:
            attributes["target_session_attrs"] = "prefer-standby"
        return await asyncpg.connect(
            self._url,
            timeout=CONNECT_TIMEOUT.total_seconds(),
            command_timeout=self._timeouts.statement.total_seconds(),
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
