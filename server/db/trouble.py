"""What it looks like when PostgreSQL can't be reached or went away in the middle."""

import traceback

import asyncpg
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

# What the way to the database may raise when it breaks. InternalClientError is how asyncpg says that the server's
# farewell arrived in the middle of something; it belongs to neither of its two families.
DATABASE_TROUBLE = (
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    SQLAlchemyError,
)

GONE = (
    ConnectionError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
)


def is_database_gone(error: BaseException) -> bool:
    """Whether a handler failed only because our own database was away: that is no attempt of the job's.

    A timeout is not among them: a statement that is always too slow must come to an end some time.
    """
    if isinstance(error, DBAPIError):
        driver_error = getattr(error.orig, "__cause__", None) or error.orig
        return error.connection_invalidated or isinstance(driver_error, GONE)
    if not isinstance(error, GONE):
        return False
    # A ConnectionError may as well come from the work itself; the driver's frames tell which one it is.
    frames = traceback.walk_tb(error.__traceback__)
    return any(str(frame.f_globals.get("__name__")).startswith("asyncpg") for frame, _ in frames)
