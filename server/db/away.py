"""Telling a database that can't be reached from a mistake of ours."""

import asyncpg
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

# Unwrapped, the driver's own errors come from connecting alone: the server is starting, stopping, full, or refuses.
UNREACHABLE = (
    OSError,
    TimeoutError,
    PoolTimeout,
    InterfaceError,
    OperationalError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
# Connection trouble, no room, and an operator's shutdown, by the first letters of PostgreSQL's codes.
GOING_AWAY = ("08", "53", "57P")


def is_database_away(error: BaseException) -> bool:
    """A connection that broke, could not be made, or did not come free in time."""
    if isinstance(error, UNREACHABLE):
        return True
    if not isinstance(error, DBAPIError):
        return False
    code = str(getattr(error.orig, "sqlstate", None) or "")
    return error.connection_invalidated or code.startswith(GOING_AWAY)
