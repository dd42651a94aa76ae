"""The primary's WAL position, by which a replica proves that it has every acknowledged write."""

import asyncio
from contextvars import Context

from server.db.outages import DATABASE_ERRORS
from server.db.pool import RawPool

POSITION = "SELECT (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::bigint"


class WalPosition:
    """Reads the position once for all callers that wait: a reading counts for every call that was made before it."""

    def __init__(self, primary: RawPool) -> None:
        self._primary = primary
        self._next: asyncio.Task[int | None] | None = None  # has not been sent yet
        self._sent: asyncio.Task[int | None] | None = None

    async def read(self) -> int | None:
        """The flushed position; None if it is unknown, such as during a failover behind a pooler."""
        if self._next is None:
            # In its own context: its log lines must not carry the first caller's fields.
            self._next = asyncio.create_task(self._read_after(self._sent), name="wal position", context=Context())
        # Shielded: other callers wait for the same reading.
        return await asyncio.shield(self._next)

    async def _read_after(self, sent: "asyncio.Task[int | None] | None") -> int | None:
        if sent is not None and not sent.done():
            await asyncio.wait([sent])
        self._sent, self._next = self._next, None  # a caller from now on needs a later reading
        try:
            return await self._primary.fetchval(POSITION)
        except DATABASE_ERRORS:
            return None
