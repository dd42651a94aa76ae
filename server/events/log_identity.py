"""The identity of the event log: a copied or restored database gets a new epoch, so that old cursors are refused."""

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta

import asyncpg
import structlog
from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.tables import EventLog

log = structlog.get_logger(__name__)

# The home of a log: system identifier of the cluster, timeline, and OID of the database. Restoring a dump elsewhere
# changes the first or the last; point-in-time recovery or a promotion changes the timeline; a restart changes nothing.
READ_HOME = """
    SELECT system_identifier || '/' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) || '/' || database.oid
    FROM pg_control_system(), pg_database AS database WHERE datname = current_database()
"""
# For roles that may not call these functions: only dropping and recreating the database is noticed.
READ_HOME_UNPRIVILEGED = "SELECT '?/?/' || oid FROM pg_database WHERE datname = current_database()"

READ_LOG = "SELECT epoch, head, home, is_replicated FROM event_log"
# Two processes may both find the old home: the second waits for the first, checks again and changes nothing.
START_EPOCH = """
    INSERT INTO event_log AS log (epoch, home, head)
    SELECT hashtextextended(gen_random_uuid()::text, 0), $1, coalesce(max(position), 0) FROM event
    ON CONFLICT (is_the_only_row) DO UPDATE
    SET epoch = excluded.epoch, home = excluded.home, restored_at = clock_timestamp()
    WHERE log.home <> excluded.home
"""
START_EPOCH_AFTER_LOSS = """
    UPDATE event_log
    SET epoch = hashtextextended(gen_random_uuid()::text, 0), home = $1, restored_at = clock_timestamp()
    WHERE epoch = $2
"""
START_EPOCH_AFTER_RESTORE = """
    UPDATE event_log SET epoch = hashtextextended(gen_random_uuid()::text, 0), restored_at = clock_timestamp()
"""
KEEP_EPOCH = "UPDATE event_log SET home = $1 WHERE home = $2"
# Whether the next promoted standby has every assigned position. Run on the connection that assigns positions.
RECORD_REPLICATION = """
    UPDATE event_log SET is_replicated = now.is_replicated
    FROM (
        SELECT current_setting('synchronous_standby_names') <> ''
           AND current_setting('synchronous_commit') NOT IN ('off', 'local') AS is_replicated
    ) AS now
    WHERE event_log.is_replicated <> now.is_replicated
"""
# How long a process without `seen` waits for one that followed the log before the promotion.
PROMOTION_TIMEOUT = timedelta(seconds=30)
POLL_INTERVAL = timedelta(milliseconds=250)


@dataclass(frozen=True, slots=True)
class LogState:
    """The log's epoch and its last position."""

    epoch: int
    head: int


async def confirm_epoch(
    connection: "asyncpg.Connection[asyncpg.Record]",
    seen: LogState | None = None,
    *,
    promotion_timeout: timedelta = PROMOTION_TIMEOUT,
) -> LogState:
    """Read the log's state, after starting a new epoch if the database is not the log's home.

    Called for each new connection of a sequencer or tail, because it may lead to another server.

    A promoted standby keeps the epoch only if no event can be missing. Both conditions must hold: commits of the old
    primary waited for a standby (`is_replicated`), and a process that followed the log before (`seen`) finds every
    event that it saw. The second condition tells a promotion from point-in-time recovery, which starts a new timeline
    as well.
    """
    home = await _read_home(connection)
    deadline = asyncio.get_running_loop().time() + promotion_timeout.total_seconds()
    while True:
        row = await connection.fetchrow(READ_LOG)
        if row is not None and seen is not None and row["epoch"] == seen.epoch and row["head"] < seen.head:
            log.warning("events.lost", seen=seen.head, head=row["head"])
            await connection.execute(START_EPOCH_AFTER_LOSS, home, row["epoch"])
        elif row is not None and row["home"] == home:
            return LogState(row["epoch"], row["head"])
        elif row is None or not row["is_replicated"] or not _is_promotion(row["home"], home):
            await connection.execute(START_EPOCH, home)
        elif seen is not None and seen.epoch == row["epoch"]:
            log.info("events.promoted", head=row["head"])
            await connection.execute(KEEP_EPOCH, home, row["home"])
        elif asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(POLL_INTERVAL.total_seconds())
        else:
            await connection.execute(START_EPOCH, home)


async def start_epoch_after_restore(session: AsyncSession) -> None:
    """Refuse all cursors from before, and let creates look for their machines first.

    A restored server is mostly noticed by itself (`confirm_epoch`); this is for the operator, who knows.
    """
    await session.execute(text(START_EPOCH_AFTER_RESTORE))


async def restored_at(session: AsyncSession) -> datetime | None:
    """When the database was last restored from a backup, if ever."""
    return (await session.execute(select(EventLog.restored_at))).scalar_one_or_none()


async def record_replication(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Called by the leader at intervals: stores whether a promotion would keep every event."""
    await connection.execute(RECORD_REPLICATION)


def _is_promotion(before: str, now: str) -> bool:
    """Whether only the timeline differs."""
    old, new = before.split("/"), now.split("/")
    return len(old) == len(new) == 3 and (old[0], old[2]) == (new[0], new[2]) and "?" not in now


async def _read_home(connection: "asyncpg.Connection[asyncpg.Record]") -> str:
    try:
        home = await connection.fetchval(READ_HOME)
    except (asyncpg.InsufficientPrivilegeError, asyncpg.FeatureNotSupportedError, asyncpg.UndefinedFunctionError):
        home = await connection.fetchval(READ_HOME_UNPRIVILEGED)
    return str(home)
