"""Telling a database that can't be reached from a mistake of ours."""

import asyncpg
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

# The driver's own errors, unwrapped, come from connections outside the pool.
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
# By the first letters of PostgreSQL's codes: connection trouble, no room, an operator's shutdown, and what it answers
# to who wants to connect when it lets nobody in (login refused, no such database, database closed).
GOING_AWAY = ("08", "53", "57P", "28", "3D000", "55000")


def is_database_away(error: BaseException) -> bool:
    """A connection that broke, could not be made, or did not come free in time."""
    if isinstance(error, UNREACHABLE):
        return True
    if not isinstance(error, DBAPIError):
        return False
    code = str(getattr(error.orig, "sqlstate", None) or "")
    return error.connection_invalidated or code.startswith(GOING_AWAY)
