"""The partitions of the event table: created ahead by the sequencer, dropped by retention."""

from dataclasses import dataclass
from datetime import datetime, timedelta

import asyncpg
import structlog

from server.clock import now
from server.db.database import Database
from server.db.pool import RawPool

log = structlog.get_logger(__name__)

# Retention drops whole partitions where it can, and deletes single events of the oldest one that it must keep: about
# 200 MB at 1 KB each. Smaller partitions would slow down planning on large logs.
PARTITION_SIZE = 200_000

BOUNDS = r"""
    SELECT child.oid::regclass::text AS name, bounds[1]::bigint AS first, bounds[2]::bigint AS beyond
    FROM pg_inherits
    JOIN pg_class AS child ON child.oid = inhrelid,
    regexp_match(pg_get_expr(child.relpartbound, child.oid), 'FROM \(''(\d+)''\) TO \(''(\d+)''\)') AS bounds
    WHERE inhparent = 'event'::regclass
    ORDER BY first
"""


@dataclass(frozen=True, slots=True)
class Partition:
    """Holds the positions from `first` up to, but not including, `beyond`."""

    name: str
    first: int
    beyond: int


async def partitions(connection: "asyncpg.Connection[asyncpg.Record]") -> list[Partition]:
    """All partitions, oldest first."""
    return [Partition(row["name"], row["first"], row["beyond"]) for row in await connection.fetch(BOUNDS)]


async def make_partitions(connection: "asyncpg.Connection[asyncpg.Record]", *, head: int, size: int) -> int:
    """Ensure room for one whole partition after `head`; returns the first position without a partition.

    If another session holds a lock on the table (an index build, a manual ANALYZE), no partition is added for now.
    """
    existing = await partitions(connection)
    beyond = max(existing[-1].beyond if existing else 0, head + 1)
    try:
        while beyond <= head + size:
            await _make(connection, first=beyond, beyond=beyond + size)
            beyond += size
    except asyncpg.LockNotAvailableError:
        log.warning("partitions.delayed", room=beyond - head - 1)
    return beyond


async def _make(connection: "asyncpg.Connection[asyncpg.Record]", *, first: int, beyond: int) -> None:
    # Created and then attached: CREATE ... PARTITION OF would block every reader of the log, ATTACH blocks none.
    name = f"event_from_{first}"
    async with connection.transaction():
        await connection.execute("SET LOCAL lock_timeout = '200ms'")
        await connection.execute(f"CREATE TABLE {name} (LIKE event INCLUDING ALL)")
        await connection.execute(f"ALTER TABLE event ATTACH PARTITION {name} FOR VALUES FROM ({first}) TO ({beyond})")


HEAD = "SELECT head FROM event_log"
WRITTEN_AT = "SELECT occurred_at FROM event WHERE position = $1"
# Oldest first and without a hole: a cursor is good as long as the event after it is there.
DELETE_OLD = """
    WITH oldest AS MATERIALIZED (
        SELECT position, occurred_at FROM event ORDER BY position LIMIT $2
    ), kept AS (
        SELECT min(position) AS first FROM oldest WHERE occurred_at >= $1
    )
    DELETE FROM event WHERE position IN (
        SELECT position FROM oldest WHERE position < coalesce((SELECT first FROM kept), position + 1))
"""


async def delete_old_events(pool: RawPool, *, older_than: timedelta, limit: int) -> int:
    """Delete events of a partition that is still in use; returns how many."""
    return int((await pool.execute(DELETE_OLD, now() - older_than, limit)).rsplit(" ", 1)[1])


async def drop_old_events(database: Database, older_than: timedelta) -> int:
    """Drop the partitions whose events are all older; returns the number of dropped events."""
    before = now() - older_than
    dropped = 0
    connection = await database.connect()
    try:
        while count := await _drop_oldest(connection, before):
            dropped += count
    except asyncpg.LockNotAvailableError:
        log.info("events.in_use", dropped=dropped)
    finally:
        await connection.close()
    return dropped


async def _drop_oldest(connection: "asyncpg.Connection[asyncpg.Record]", before: datetime) -> int:
    """Drop one partition in a transaction of its own, so that a crash never leaves half of it."""
    async with connection.transaction():
        await connection.execute("SET LOCAL lock_timeout = '3s'")
        # One process at a time; this lock does not block readers or the sequencer.
        await connection.execute("LOCK TABLE event IN SHARE UPDATE EXCLUSIVE MODE")
        oldest = next(iter(await partitions(connection)), None)
        if oldest is None:
            return 0
        if oldest.beyond > (await connection.fetchval(HEAD) or 0) + 1:
            return 0  # it is still being filled
        # The event at the last position shows how old the partition is: events are numbered moments after they are
        # written. If it is gone, so are all before it: see DELETE_OLD.
        newest = await connection.fetchval(WRITTEN_AT, oldest.beyond - 1)
        if newest is not None and newest >= before:
            return 0
        # Autovacuum yields to this lock, but only after a second; DROP alone would not wait that long.
        await connection.execute(f"LOCK TABLE {oldest.name} IN SHARE UPDATE EXCLUSIVE MODE")
        # While DROP waits for a reader, all others queue behind it: skip and retry at the next clean-up.
        await connection.execute("SET LOCAL lock_timeout = '300ms'")
        await connection.execute(f"DROP TABLE {oldest.name}")
    log.info("events.dropped", first=oldest.first, last=oldest.beyond - 1)
    return oldest.beyond - oldest.first
