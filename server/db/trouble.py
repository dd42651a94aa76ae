"""What it looks like when PostgreSQL can't be reached or went away in the middle; three questions, one place."""

import traceback

import asyncpg
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

# What the way to the database may raise when it breaks: for loops that go on whatever happens. InternalClientError is
# how asyncpg says that the server's farewell arrived in the middle of something; it belongs to neither of its families.
DATABASE_TROUBLE = (
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    SQLAlchemyError,
)

# The driver's own errors, unwrapped, come from connections outside the pool.
_UNREACHABLE = (
    OSError,
    TimeoutError,
    PoolTimeout,
    InterfaceError,
    OperationalError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
# By the first letters of PostgreSQL's codes: connection trouble, no room, an operator's shutdown, and what it answers
# to who wants to connect when it lets nobody in (login refused, no such database, database closed), or takes no writes.
_GOING_AWAY = ("08", "25006", "53", "57P", "28", "3D000", "55000")

_GONE = (
    ConnectionError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.ReadOnlySQLTransactionError,  # it was deposed
    asyncpg.InsufficientResourcesError,  # no room: disk full, out of memory, too many connections
)


def is_database_away(error: BaseException) -> bool:
    """Whether a request failed for a connection that broke, could not be made, or did not come free in time."""
    if isinstance(error, _UNREACHABLE):
        return True
    if isinstance(error, asyncpg.PostgresError):
        return _is_going_away(error)
    return isinstance(error, DBAPIError) and (error.connection_invalidated or _is_going_away(error.orig))


def _is_going_away(error: BaseException | None) -> bool:
    """By the server's own word: a statement of ours that is wrong is no outage."""
    return str(getattr(error, "sqlstate", None) or "").startswith(_GOING_AWAY)


def is_database_gone(error: BaseException) -> bool:
    """Whether a handler failed only because our own database was away: that is no attempt of the job's.

    A timeout is not among them: a statement that is always too slow must come to an end some time.
    """
    if isinstance(error, DBAPIError):
        driver_error = getattr(error.orig, "__cause__", None) or error.orig
        return error.connection_invalidated or isinstance(driver_error, _GONE)
    if not isinstance(error, _GONE):
        return False
    # A ConnectionError may as well come from the work itself; the driver's frames tell which one it is.
    frames = traceback.walk_tb(error.__traceback__)
    return any(str(frame.f_globals.get("__name__")).startswith(("asyncpg", "server.db.servers")) for frame, _ in frames)
