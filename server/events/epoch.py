"""Which log this is. A copy of the database goes on under another name, so that old cursors do not fit it."""

from dataclasses import dataclass

import asyncpg

# The cluster, its timeline and the database in it. A dump restored elsewhere changes the first or the last; a base
# backup brought to an earlier moment, or a standby promoted, changes the timeline. A restart changes none of them.
HOME = """
    SELECT system_identifier || '/' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) || '/' || database.oid
    FROM pg_control_system(), pg_database AS database WHERE datname = current_database()
"""
# For servers whose owners keep these functions to themselves: only drop and recreate is noticed there.
POORER_HOME = "SELECT '?/?/' || oid FROM pg_database WHERE datname = current_database()"

READ = "SELECT epoch, head, home FROM event_log"
# Two processes may both find the old name: the second waits for the first, looks again and changes nothing.
RENAME = """
    INSERT INTO event_log AS log (epoch, home, head)
    SELECT hashtextextended(gen_random_uuid()::text, 0), $1, coalesce(max(position), 0) FROM event
    ON CONFLICT (is_the_only_row) DO UPDATE SET epoch = excluded.epoch, home = excluded.home
    WHERE log.home <> excluded.home
"""


@dataclass(frozen=True, slots=True)
class LogState:
    """The log's name and its last position."""

    epoch: int
    head: int


async def confirm_epoch(connection: "asyncpg.Connection[asyncpg.Record]") -> LogState:
    """Read the log's name, after giving it a new one if this is not where it was named.

    Done at each new connection of a sequencer or tail: that is when the server behind it may be another.
    """
    home = await _home(connection)
    row = await connection.fetchrow(READ)
    if row is None or row["home"] != home:
        await connection.execute(RENAME, home)
        row = await connection.fetchrow(READ)
    if row is None:
        raise asyncpg.InterfaceError("the event log has no row, though one was just written")
    return LogState(row["epoch"], row["head"])


async def _home(connection: "asyncpg.Connection[asyncpg.Record]") -> str:
    try:
        home = await connection.fetchval(HOME)
    except (asyncpg.InsufficientPrivilegeError, asyncpg.FeatureNotSupportedError, asyncpg.UndefinedFunctionError):
        home = await connection.fetchval(POORER_HOME)
    return str(home)
