"""Classifies database errors: outage, lost connection, or a bug of ours."""

import traceback

import asyncpg
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

# All errors of a database call, for loops that must go on. asyncpg raises InternalClientError, which is in neither of
# its error families, when the server ends the connection in the middle of an exchange.
DATABASE_ERRORS = (
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    SQLAlchemyError,
)

# Errors of a connection, not of a statement. asyncpg's own come from connections outside SQLAlchemy.
_UNREACHABLE = (
    OSError,
    TimeoutError,
    PoolTimeout,
    InterfaceError,
    OperationalError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
# Prefixes of SQLSTATE after which the same statement may succeed: connection failure, a server that takes no writes, a
# transaction that was silent for too long, refused connections (login, missing or closed database), serialization
# failure and deadlock, insufficient resources, a lock that was not free in time, a cancelled statement, shutdown.
_OUTAGE_CODES = ("08", "25006", "25P", "28", "3D000", "40001", "40P01", "53", "55000", "55P03", "57014", "57P")


def is_database_unavailable(error: BaseException) -> bool:
    """Whether a request failed because the database was away or busy: it may succeed when it is sent again."""
    cause = _driver_error(error)
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return True
    if isinstance(cause, ValueError):  # the driver's InterfaceError about a value that we sent
        return False
    # SQLAlchemy has no class for the driver's InternalClientError, which ends a connection that is being made.
    is_broken_off = isinstance(error, _UNREACHABLE) or isinstance(cause, asyncpg.InternalClientError)
    return is_broken_off or str(getattr(cause, "sqlstate", None) or "").startswith(_OUTAGE_CODES)


def is_database_outage(error: BaseException) -> bool:
    """Whether a handler failed only because the database was away or busy: no attempt is counted, it runs again later.

    A handler may also raise an OSError or a timeout of its own work; the stack frames tell.
    """
    if not is_database_unavailable(error):
        return False
    if isinstance(error, SQLAlchemyError | asyncpg.PostgresError):
        return True
    frames = traceback.walk_tb(error.__traceback__)
    modules = [str(frame.f_globals.get("__name__")) for frame, _ in frames]
    return any(module.startswith(("asyncpg", "server.db.hosts", "server.db.pool")) for module in modules)


def is_database_away(error: BaseException) -> bool:
    """Whether the server is unreachable, starting or stopping; not if it refuses our login or has no such database."""
    code = str(getattr(_driver_error(error), "sqlstate", None) or "")
    return is_database_unavailable(error) and not code.startswith(("28", "3D000"))


def _driver_error(error: BaseException) -> BaseException | None:
    if not isinstance(error, DBAPIError):
        return error
    return getattr(error.orig, "__cause__", None) or error.orig
