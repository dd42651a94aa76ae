"""Which log this is. A copy of the database goes on under another name, so that old cursors do not fit it."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

import asyncpg
import structlog

log = structlog.get_logger(__name__)

# The cluster, its timeline and the database in it. A dump restored elsewhere changes the first or the last; a base
# backup brought to an earlier moment, or a standby promoted, changes the timeline. A restart changes none of them.
HOME = """
    SELECT system_identifier || '/' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) || '/' || database.oid
    FROM pg_control_system(), pg_database AS database WHERE datname = current_database()
"""
# For servers whose owners keep these functions to themselves: only drop and recreate is noticed there.
POORER_HOME = "SELECT '?/?/' || oid FROM pg_database WHERE datname = current_database()"

READ = "SELECT epoch, head, home, is_replicated FROM event_log"
# Two processes may both find the old name: the second waits for the first, looks again and changes nothing.
RENAME = """
    INSERT INTO event_log AS log (epoch, home, head)
    SELECT hashtextextended(gen_random_uuid()::text, 0), $1, coalesce(max(position), 0) FROM event
    ON CONFLICT (is_the_only_row) DO UPDATE SET epoch = excluded.epoch, home = excluded.home
    WHERE log.home <> excluded.home
"""
RENAME_LOSSY = """
    UPDATE event_log SET epoch = hashtextextended(gen_random_uuid()::text, 0), home = $1 WHERE epoch = $2
"""
MOVE_HOME = "UPDATE event_log SET home = $1 WHERE home = $2"
# Whether whoever is promoted next has every position that was given out. Asked where the positions are given out.
IS_REPLICATED = """
    UPDATE event_log SET is_replicated = now.is_replicated
    FROM (
        SELECT current_setting('synchronous_standby_names') <> ''
           AND current_setting('synchronous_commit') NOT IN ('off', 'local') AS is_replicated
    ) AS now
    WHERE event_log.is_replicated <> now.is_replicated
"""
# How long a process that knows nothing waits for one that has seen the log before its server changed.
WITNESS_WITHIN = timedelta(seconds=30)
LOOK_AGAIN_AFTER = timedelta(milliseconds=250)


@dataclass(frozen=True, slots=True)
class LogState:
    """The log's name and its last position."""

    epoch: int
    head: int


async def confirm_epoch(
    connection: "asyncpg.Connection[asyncpg.Record]",
    seen: LogState | None = None,
    *,
    witness_within: timedelta = WITNESS_WITHIN,
) -> LogState:
    """Read the log's name, after giving it a new one if this is not where it was named.

    Done at each new connection of a sequencer or tail: that is when the server behind it may be another.

    A standby that was promoted goes on with the log's name only if nothing can be missing. Two things have to come
    together: the commits of the old primary waited for a standby (`is_replicated`), and somebody who followed the log
    before (`seen`) finds here everything that he saw. The second is what tells a promotion from a backup that was
    brought to an earlier moment, which begins a new timeline just the same.
    """
    home = await _home(connection)
    deadline = asyncio.get_running_loop().time() + witness_within.total_seconds()
    while True:
        row = await connection.fetchrow(READ)
        if row is not None and seen is not None and row["epoch"] == seen.epoch and row["head"] < seen.head:
            log.warning("events.lost", seen=seen.head, head=row["head"])
            await connection.execute(RENAME_LOSSY, home, row["epoch"])
        elif row is not None and row["home"] == home:
            return LogState(row["epoch"], row["head"])
        elif row is None or not row["is_replicated"] or not _is_promotion(row["home"], home):
            await connection.execute(RENAME, home)
        elif seen is not None and seen.epoch == row["epoch"]:
            log.info("events.promoted", head=row["head"])
            await connection.execute(MOVE_HOME, home, row["home"])
        elif asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(LOOK_AGAIN_AFTER.total_seconds())
        else:
            await connection.execute(RENAME, home)


async def note_replication(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    """For the leader, now and then: what may be believed after the next promotion."""
    await connection.execute(IS_REPLICATED)


def _is_promotion(before: str, now: str) -> bool:
    """The same cluster and database, on another timeline."""
    old, new = before.split("/"), now.split("/")
    return len(old) == len(new) == 3 and (old[0], old[2]) == (new[0], new[2]) and "?" not in now


async def _home(connection: "asyncpg.Connection[asyncpg.Record]") -> str:
    try:
        home = await connection.fetchval(HOME)
    except (asyncpg.InsufficientPrivilegeError, asyncpg.FeatureNotSupportedError, asyncpg.UndefinedFunctionError):
        home = await connection.fetchval(POORER_HOME)
    return str(home)
