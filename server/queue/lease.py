"""The lease of a worker session, renewed on its own thread however busy the handlers are."""

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

from server.db.database import Database
from server.db.outages import DATABASE_ERRORS

log = structlog.get_logger(__name__)

STATEMENT_TIMEOUT = 5.0  # seconds; the statements take a millisecond

BEGIN = """
    INSERT INTO job_worker (id, name, lease_until, lease)
    VALUES ($1, $2, clock_timestamp() + $3::interval, $3::interval)
"""
# Returns no row when the lease has expired and another worker may have taken the jobs.
RENEW = """
    UPDATE job_worker SET lease_until = clock_timestamp() + $2::interval
    WHERE id = $1 AND lease_until > clock_timestamp()
    RETURNING true
"""
# Jobs still held are released unchanged, in the same commit.
END = """
    WITH ended AS (DELETE FROM job_worker WHERE id = $1)
    UPDATE job SET status = 'WAITING', claim = NULL, worker_id = NULL, claimed_at = NULL
    WHERE status = 'RUNNING' AND worker_id = $1
    RETURNING id
"""


class Lease:
    """One lease of one worker id. A lost lease is never regained: the next session has a new id and a new lease.

    `on_lost` is called, on the event loop that called `begin`, while a fifth of the lease is left: enough time to
    cancel the handlers before another worker may start the same jobs.
    """

    def __init__(self, database: Database, worker_id: UUID, *, length: timedelta, on_lost: Callable[[], None]) -> None:
        self._database = database
        self._worker_id = worker_id
        self._length = length
        self._on_lost = on_lost
        self._thread: threading.Thread | None = None
        self._stop_renewing: Callable[[], object] | None = None
        self._valid_until = 0.0

    async def begin(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with self._fresh_connection() as connection:
            sent = time.monotonic()
            await connection.execute(BEGIN, self._worker_id, f"{socket.gethostname()}:{os.getpid()}", self._length)
        self._valid_until = sent + self._length.total_seconds()

    def start_renewing(self) -> None:
        """Renew the lease on another thread: a handler may block the event loop, and must not block the renewal."""
        is_running = threading.Event()

        async def renew() -> None:
            loop, ended = asyncio.get_running_loop(), asyncio.Event()
            self._stop_renewing = lambda: loop.call_soon_threadsafe(ended.set)
            is_running.set()
            await self._renew(ended)

        self._thread = threading.Thread(target=lambda: asyncio.run(renew()), name="job lease", daemon=True)
        self._thread.start()
        is_running.wait()

    async def end(self) -> list[int]:
        """End the lease and release the jobs held under it; return their ids."""
        if self._thread is not None and self._stop_renewing is not None:
            with contextlib.suppress(RuntimeError):  # the lease was lost, and its thread has ended
                self._stop_renewing()
            await asyncio.to_thread(self._thread.join, self._length.total_seconds())
        async with self._fresh_connection() as connection:
            return [row["id"] for row in await connection.fetch(END, self._worker_id)]

    @asynccontextmanager
    async def _fresh_connection(self) -> "AsyncGenerator[asyncpg.Connection[asyncpg.Record]]":
        """A new connection: those of the pool may hang on a silent network."""
        connection = await self._database.connect(timeout=STATEMENT_TIMEOUT, command_timeout=STATEMENT_TIMEOUT)
        try:
            yield connection
        finally:
            connection.terminate()

    @property
    def is_held(self) -> bool:
        """By our own clock: after a pause (SIGSTOP, suspended VM) this turns false before the server says so."""
        return time.monotonic() < self._valid_until - self._margin

    @property
    def _margin(self) -> float:
        return self._length.total_seconds() / 5

    async def _renew(self, ended: asyncio.Event) -> None:
        interval = self._length.total_seconds() / 4
        renew_at = time.monotonic() + interval
        connection: asyncpg.Connection[asyncpg.Record] | None = None
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(renew_at - time.monotonic()):
                        await ended.wait()
                        return
                left = self._valid_until - self._margin - time.monotonic()
                if left <= 0:
                    self._report_lost("could not be renewed in time")
                    return
                try:
                    async with asyncio.timeout(min(left, interval)):
                        if connection is None:
                            connection = await self._database.connect()
                        sent = time.monotonic()
                        renewed = await connection.fetchval(RENEW, self._worker_id, self._length)
                except DATABASE_ERRORS as error:
                    log.warning("lease.renewal_failed", error=type(error).__name__)
                    if connection is not None:
                        connection.terminate()
                    connection = None
                    renew_at = min(time.monotonic() + interval / 10, self._valid_until - self._margin)
                    continue
                if not renewed:
                    self._report_lost("was over before it was renewed")
                    return
                self._valid_until = sent + self._length.total_seconds()
                renew_at = sent + interval
        finally:
            if connection is not None:
                connection.terminate()

    def _report_lost(self, why: str) -> None:
        log.error("lease.lost", why=why)
        with contextlib.suppress(RuntimeError):  # the event loop has already ended
            self._loop.call_soon_threadsafe(self._on_lost)
