"""Connections that outlive the tests: opening one, and filling its caches, takes longer than most tests.

A `KeptDatabase` is a test's own `Database` on the pools of all tests. Its further connections (a worker opens four for
each step) are kept when they are closed in order; after an error they are really closed.
"""

import asyncio
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import asyncpg
from sqlalchemy import event
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.ext.asyncio import async_sessionmaker

from server.db.database import DATABASE, Database
from server.db.pool import DRAIN_TIMEOUT


class _KeptConnection(asyncpg.Connection):
    __slots__ = ("keep",)
    keep: Callable[["_KeptConnection"], None]

    def terminate(self) -> None:
        if sys.exc_info()[0] is not None or self.is_closed() or self.is_in_transaction():
            super().terminate()
        else:
            self.keep(self)


class KeptConnections:
    """The pools and connections of a test process, by URL. Made on the event loop of the tests."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pools: dict[str, Database] = {}
        self._idle: defaultdict[Any, list[_KeptConnection]] = defaultdict(list)

    @asynccontextmanager
    async def database(self, url: str) -> AsyncIterator[Database]:
        """A test's own database object; whatever the test leaves open is closed after it."""
        if url not in self._pools:
            self._pools[url] = _pools(url)
        database = KeptDatabase(self._pools[url], self, url)
        try:
            yield database
        finally:
            await database.close()
            if any(pool.in_use for pool in database.pools()):
                await self._pools.pop(url).close()

    @property
    def are_usable_here(self) -> bool:
        """Not on another thread, such as that of a lease's renewal."""
        return asyncio.get_running_loop() is self._loop

    async def connect(self, key: Any, connect: Callable[[], Awaitable[Any]]) -> Any:
        idle = self._idle[key]
        while idle:
            connection = idle.pop()
            if not connection.is_closed():
                return connection
        connection = await connect()
        connection.keep = idle.append
        return connection

    async def close(self) -> None:
        for pools in self._pools.values():
            await pools.close()
        for idle in self._idle.values():
            for connection in idle:
                await connection.close()


class KeptDatabase(Database):
    def __init__(self, pools: Database, kept: KeptConnections, url: str) -> None:
        self.__dict__.update(pools.__dict__)
        self.on_commit = None
        self.on_invalidate = None
        self._sessions = async_sessionmaker(self.engine, expire_on_commit=False, info={DATABASE: self})
        self._shared = {}
        self._closing = set()
        self._kept = kept
        self._url = url

    async def connect(self, *, server_settings: Mapping[str, str] | None = None, **overrides: Any) -> Any:
        connect = partial(super().connect, server_settings=server_settings, **overrides)
        if not self._kept.are_usable_here:
            return await connect()
        key = (self._url, *sorted((server_settings or {}).items()), *sorted(overrides.items()))
        return await self._kept.connect(key, partial(connect, connection_class=_KeptConnection))

    async def close(self) -> None:
        if self._closing:
            await asyncio.wait(self._closing, timeout=DRAIN_TIMEOUT)


def _pools(url: str) -> Database:
    pools = Database(url)
    event.listen(pools.engine.sync_engine, "checkout", _replace_if_closed)
    return pools


def _replace_if_closed(connection: Any, _record: object, _proxy: object) -> None:
    """The test before may have ended all connections of its database."""
    if connection.driver_connection.is_closed():
        raise DisconnectionError
