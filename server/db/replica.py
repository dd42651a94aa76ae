"""Reading from a replica, as long as that shows: nobody gets an older answer than the primary would have given."""

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

from server.db.trouble import DATABASE_TROUBLE
from server.db.url import driver_url

log = structlog.get_logger(__name__)

READ_ONLY: dict[str, Any] = {"postgresql_readonly": True, "isolation_level": "REPEATABLE READ"}
RESTS_FOR = timedelta(seconds=1)  # after it was away or too far behind; meanwhile nobody waits for it
LOOK_AGAIN_AFTER = timedelta(milliseconds=2)
CONNECT_WITHIN = timedelta(seconds=2)
# Null on a server that is no replica (any more): one that was deposed and does not know would show an old state.
HAS_REPLAYED = "SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn"
CONFLICT = "40001"  # what it had to replay did not go together with what we read


class Replica:
    """One per process, where DATABASE_READ_URL is set. Every way in which it fails ends at the primary."""

    def __init__(self, url: str, *, pool_size: int, command_timeout: timedelta, patience: timedelta, name: str) -> None:
        self._url = driver_url(url)
        self._command_timeout = command_timeout.total_seconds()
        self._patience = patience.total_seconds()
        self._name = name
        self._rests_until = 0.0
        self.engine = create_async_engine(
            "postgresql+asyncpg://",
            async_creator=self._connect,
            pool_size=pool_size,
            max_overflow=0,
            pool_timeout=self._patience,  # whoever would have to wait in line goes to the primary
            json_deserializer=orjson.loads,
        )

    @asynccontextmanager
    async def session(self, *, reached: str | None = None) -> AsyncGenerator[AsyncSession | None]:
        """A read-only transaction that sees everything up to that place in the WAL; None if there is none to be had."""
        async with AsyncExitStack() as stack:
            session = None
            if time.monotonic() >= self._rests_until:
                try:
                    session = await self._open(stack, reached)
                except DATABASE_TROUBLE as error:
                    self._rest(type(error).__name__)
            try:
                yield session
            except DBAPIError as error:
                code = getattr(error.orig, "sqlstate", None)
                if session is None or not (error.connection_invalidated or code == CONFLICT):
                    raise
                self._rest(type(error).__name__)
                raise ConnectionError("the replica went away or had to move on") from error

    async def close(self) -> None:
        await self.engine.dispose()

    async def _open(self, stack: AsyncExitStack, reached: str | None) -> AsyncSession | None:
        connection = await stack.enter_async_context(self.engine.connect())
        # Asked on the very connection that will be read from (the URL may lead to any of several replicas), and before
        # its transaction begins: inside one, the question would be answered later than the snapshot was taken.
        if reached is not None and not await self._has_replayed(connection, reached):
            self._rest("behind")
            return None
        session = await stack.enter_async_context(AsyncSession(bind=connection, expire_on_commit=False))
        await session.connection(execution_options=READ_ONLY)
        return session

    async def _has_replayed(self, connection: AsyncConnection, place: str) -> bool:
        raw: Any = (await connection.get_raw_connection()).driver_connection
        deadline = time.monotonic() + self._patience
        try:
            while not await raw.fetchval(HAS_REPLAYED, place):
                if time.monotonic() >= deadline:
                    return False
                await asyncio.sleep(LOOK_AGAIN_AFTER.total_seconds())
        except DATABASE_TROUBLE:
            await connection.invalidate()  # the pool was passed by, so it would keep a connection that is dead
            raise
        return True

    async def _connect(self, *_: Any, **__: Any) -> "asyncpg.Connection[asyncpg.Record]":
        attributes: dict[str, Any] = {}
        if "target_session_attrs=" not in self._url:
            attributes["target_session_attrs"] = "prefer-standby"
        return await asyncpg.connect(
            self._url,
            timeout=CONNECT_WITHIN.total_seconds(),
            command_timeout=self._command_timeout,
            server_settings={"application_name": f"{self._name} replica", "timezone": "UTC", "jit": "off"},
            **attributes,
        )

    def _rest(self, why: str) -> None:
        if time.monotonic() >= self._rests_until:
            log.warning("replica.rests", why=why)
        self._rests_until = time.monotonic() + RESTS_FOR.total_seconds()
