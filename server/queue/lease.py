"""This process's lease on the jobs it claims, renewed from a thread of its own, however busy the handlers are."""

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from uuid import UUID

import asyncpg
import structlog

from server.db.engine import Database
from server.db.trouble import DATABASE_TROUBLE

log = structlog.get_logger(__name__)

AT_ONCE = 5.0  # seconds for a statement that takes a millisecond

BEGIN = "INSERT INTO job_worker (id, name, lease_until) VALUES ($1, $2, clock_timestamp() + $3::interval)"
# Nothing comes back when somebody found the lease over and took the jobs.
RENEW = """
    UPDATE job_worker SET lease_until = clock_timestamp() + $2::interval
    WHERE id = $1 AND lease_until > clock_timestamp()
    RETURNING true
"""
# The jobs still held go back as they were, in the same commit.
END = """
    WITH ended AS (DELETE FROM job_worker WHERE id = $1)
    UPDATE job SET status = 'WAITING', claim = NULL, worker_id = NULL, claimed_at = NULL
    WHERE status = 'RUNNING' AND worker_id = $1
    RETURNING id
"""


class Lease:
    """One lease of one worker id, from begin to end. Once lost it is never ours again: a new id begins a new one.

    `on_lost` is called, on the event loop that began it, while a fifth of the lease is still left: enough for
    handlers to be cancelled before anybody else may start the same jobs.
    """

    def __init__(self, database: Database, worker_id: UUID, *, length: timedelta, on_lost: Callable[[], None]) -> None:
        self._database = database
        self._worker_id = worker_id
        self._length = length
        self._on_lost = on_lost
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._sure_until = 0.0

    async def begin(self) -> None:
        self._home = asyncio.get_running_loop()
        async with self._fresh_connection() as connection:
            sent = time.monotonic()
            await connection.execute(BEGIN, self._worker_id, f"{socket.gethostname()}:{os.getpid()}", self._length)
        self._sure_until = sent + self._length.total_seconds()

    def keep(self) -> None:
        """Renew it from now on, from another thread: the event loop may be held up by a handler, this must not be."""
        self._thread = threading.Thread(target=lambda: asyncio.run(self._keep()), name="job lease", daemon=True)
        self._thread.start()

    async def end(self) -> list[int]:
        """Give up the lease and everything held under it; return the ids of the jobs given back."""
        self._over.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, self._length.total_seconds())
        async with self._fresh_connection() as connection:
            return [row["id"] for row in await connection.fetch(END, self._worker_id)]

    @asynccontextmanager
    async def _fresh_connection(self) -> "AsyncGenerator[asyncpg.Connection[asyncpg.Record]]":
        """Not one of the pool's: those may hang on a network that went silent, and this must not wait for them."""
        connection = await self._database.connect(timeout=AT_ONCE, command_timeout=AT_ONCE)
        try:
            yield connection
        finally:
            connection.terminate()

    @property
    def holds(self) -> bool:
        """By our own clock. Whoever was stopped for a while finds it over before anything else could tell him so."""
        return time.monotonic() < self._sure_until - self._margin

    @property
    def _margin(self) -> float:
        return self._length.total_seconds() / 5

    async def _keep(self) -> None:
        every = self._length.total_seconds() / 4
        renew_at = time.monotonic() + every
        connection: asyncpg.Connection[asyncpg.Record] | None = None
        try:
            while not self._over.is_set():
                # In small steps, so that `end` does not wait for the next renewal.
                await asyncio.sleep(max(0.0, min(renew_at - time.monotonic(), 0.05)))
                if time.monotonic() < renew_at:
                    continue
                left = self._sure_until - self._margin - time.monotonic()
                if left <= 0:
                    self._lose("could not be renewed in time")
                    return
                try:
                    async with asyncio.timeout(min(left, every)):
                        if connection is None:
                            connection = await self._database.connect()
                        sent = time.monotonic()
                        renewed = await connection.fetchval(RENEW, self._worker_id, self._length)
                except DATABASE_TROUBLE as error:
                    log.warning("lease.renewal_failed", error=type(error).__name__)
                    if connection is not None:
                        connection.terminate()
                    connection = None
                    renew_at = time.monotonic() + every / 10
                    continue
                if not renewed:
                    self._lose("was over before it was renewed")
                    return
                self._sure_until = sent + self._length.total_seconds()
                renew_at = sent + every
        finally:
            if connection is not None:
                connection.terminate()

    def _lose(self, why: str) -> None:
        log.error("lease.lost", why=why)
        with contextlib.suppress(RuntimeError):  # the event loop has ended meanwhile, and everything with it
            self._home.call_soon_threadsafe(self._on_lost)
