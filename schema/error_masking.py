"""Rewrites errors for clients: code, request id and whether to retry; details go to the log only."""

import re
from collections.abc import Iterable
from typing import Any

import structlog
from graphql import GraphQLError
from strawberry.types import ExecutionContext

from server.db.outages import is_database_unavailable
from server.errors import CircuitOpen, CursorExpired, Lagging, NovitaError, RateLimited, Refused, TooManyLiveReads
from server.observe import metrics

log = structlog.get_logger(__name__)

# Messages in which the library quotes an input value. It may be a password in the wrong field, and clients log errors.
_QUOTED_VALUES = (
    (re.compile(r", found: .*$", re.DOTALL), "."),
    (re.compile(r"([.?]) Found: .*$", re.DOTALL), r"\1"),  # after a suggestion
    (re.compile(r"(cannot represent [^:]*): .*$", re.DOTALL), r"\1."),
    (re.compile(r"Value (?:'[^']*'|\"[^\"]*\") does not exist"), "The value does not exist"),
)


class ErrorMasking:
    """Schema mixin that rewrites each error before it is sent."""

    def process_errors(self, errors: list[GraphQLError], execution_context: ExecutionContext | None = None) -> None:
        context = execution_context.context if execution_context is not None else None
        request_id = getattr(context, "request_id", None)
        for error in errors:
            _rewrite(error, request_id)


def public_errors(errors: Iterable[GraphQLError], request_id: str | None) -> list[dict[str, Any]]:
    """Errors as clients see them; internal errors are logged and masked."""
    formatted: list[dict[str, Any]] = []
    for error in errors:
        _rewrite(error, request_id)
        formatted.append(dict(error.formatted))
    return formatted


def _rewrite(error: GraphQLError, request_id: str | None) -> None:
    original = error.original_error
    extensions: dict[str, Any] = dict(error.extensions or {})
    if original is None or isinstance(original, GraphQLError):
        if "code" not in extensions:
            error.message = _without_values(error.message)
        extensions.setdefault("code", "BAD_REQUEST")
        extensions.setdefault("retryable", False)
    elif isinstance(original, NovitaError):
        error.message = f"The provider call failed: {original.message}"
        extensions |= {"code": original.code, "retryable": original.retryable}
        after = original.retry_after if isinstance(original, RateLimited | CircuitOpen) else None
        if after is not None:
            extensions["retryAfterMs"] = int(after.total_seconds() * 1000)
        log.warning("request.provider_failed", code=original.code, path=error.path)
    elif isinstance(original, TooManyLiveReads):
        error.message = str(original)
        after_ms = max(1, round(original.retry_after.total_seconds() * 1000))
        extensions |= {"code": "RATE_LIMITED", "retryable": True, "retryAfterMs": after_ms}
    elif is_database_unavailable(original):
        error.message = "The database can't be reached at the moment. Try again; with an idempotency key that is safe."
        extensions |= {"code": "UNAVAILABLE", "retryable": True, "retryAfterMs": 1000}
        log.warning("request.database_away", error=type(original).__name__, path=error.path)
    else:
        error.message = "Something went wrong on our side."
        extensions |= {"code": "INTERNAL", "retryable": False}
        log.error("request.failed", path=error.path, exc_info=original)
    metrics.FAULTS.add(str(extensions["code"]))
    if request_id is not None:
        extensions["requestId"] = request_id
    error.extensions = extensions


def error_code(error: Exception) -> str:
    """The code that `_rewrite` gives an error that a resolver raised."""
    match error:
        case GraphQLError():
            return str((error.extensions or {}).get("code", "BAD_REQUEST"))
        case NovitaError():
            return error.code
        case TooManyLiveReads():
            return "RATE_LIMITED"
        case _:
            return "UNAVAILABLE" if is_database_unavailable(error) else "INTERNAL"


def _without_values(message: str) -> str:
    for pattern, instead in _QUOTED_VALUES:
        message = pattern.sub(instead, message)
    return message


def to_graphql_error(error: Exception) -> GraphQLError:
    """The error for the client; an internal error is masked and logged when it is sent."""
    match error:
        case GraphQLError():
            return error
        case CursorExpired():
            message = (
                "The events after this cursor are no longer stored; read the current state and continue from there."
            )
            return GraphQLError(message, extensions={"code": "CURSOR_EXPIRED", "retryable": False})
        case Lagging():
            message = "This server can't read the event log at the moment; subscribe again with your last cursor."
            return GraphQLError(message, extensions={"code": "RESUME", "retryable": True})
        case Refused():
            return GraphQLError(error.message, extensions={"code": error.code, "retryable": False})
        case _:
            return GraphQLError("Something went wrong on our side.", original_error=error)
