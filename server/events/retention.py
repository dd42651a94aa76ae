"""Forgetting old events: whole partitions, oldest first, so that it costs the same however many there are."""

from datetime import datetime, timedelta

import asyncpg
import structlog

from server.clock import now
from server.db.engine import Database
from server.events.partitions import partitions

log = structlog.get_logger(__name__)

WRITTEN_AT = "SELECT occurred_at FROM event WHERE position = $1"


async def drop_old_events(database: Database, older_than: timedelta) -> int:
    """Drop the partitions that hold nothing younger; returns how many events went."""
    before = now() - older_than
    dropped = 0
    connection = await database.connect()
    try:
        while gone := await _drop_oldest(connection, before):
            dropped += gone
    except asyncpg.LockNotAvailableError:
        log.info("events.in_use", dropped=dropped)
    finally:
        await connection.close()
    return dropped


async def _drop_oldest(connection: "asyncpg.Connection[asyncpg.Record]", before: datetime) -> int:
    """One transaction each: a crash leaves a partition whole or gone, never half."""
    async with connection.transaction():
        await connection.execute("SET LOCAL lock_timeout = '3s'")
        # One at a time; readers and the sequencer do not mind this lock.
        await connection.execute("LOCK TABLE event IN SHARE UPDATE EXCLUSIVE MODE")
        oldest = next(iter(await partitions(connection)), None)
        if oldest is None:
            return 0
        # The last event says both that the partition is full and how old all of it is: events are numbered within
        # moments of being written. A partition that is still being filled has no last event and stays.
        newest = await connection.fetchval(WRITTEN_AT, oldest.beyond - 1)
        if newest is None or newest >= before:
            return 0
        # The same for the partition: autovacuum makes way for it, but only after a second.
        await connection.execute(f"LOCK TABLE {oldest.name} IN SHARE UPDATE EXCLUSIVE MODE")
        # DROP waits for whoever reads the log, and everybody else waits behind it: rather come back later.
        await connection.execute("SET LOCAL lock_timeout = '300ms'")
        await connection.execute(f"DROP TABLE {oldest.name}")
    log.info("events.dropped", first=oldest.first, last=oldest.beyond - 1)
    return oldest.beyond - oldest.first
