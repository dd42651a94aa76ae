"""The partitions of the log: made ahead by the sequencer, so that no insert ever lacks one."""

from dataclasses import dataclass

import asyncpg
import structlog

log = structlog.get_logger(__name__)

# Retention drops whole partitions: a quiet installation keeps up to this many events for longer than it asked. At
# about 1 KB each that is some 200 MB; smaller ones would make planning slower where there are many.
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
    """Holds the positions from `first` up to, not including, `beyond`."""

    name: str
    first: int
    beyond: int


async def partitions(connection: "asyncpg.Connection[asyncpg.Record]") -> list[Partition]:
    """All there are, oldest first."""
    return [Partition(row["name"], row["first"], row["beyond"]) for row in await connection.fetch(BOUNDS)]


async def make_partitions(connection: "asyncpg.Connection[asyncpg.Record]", *, head: int, size: int) -> int:
    """Make what is missing for one whole partition of room after `head`; returns the first position without room.

    Somebody else's lock on the log (an index being built, a manual ANALYZE) may be in the way: then there is as much
    room as there was.
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
    # Made apart and then attached: CREATE ... PARTITION OF would lock every reader of the log out, ATTACH none.
    name = f"event_from_{first}"
    async with connection.transaction():
        await connection.execute("SET LOCAL lock_timeout = '200ms'")
        await connection.execute(f"CREATE TABLE {name} (LIKE event INCLUDING ALL)")
        await connection.execute(f"ALTER TABLE event ATTACH PARTITION {name} FOR VALUES FROM ({first}) TO ({beyond})")
