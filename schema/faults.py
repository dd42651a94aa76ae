"""What a client is told about a fault: an id and what to do; the whole story is in the log."""

import re
from collections.abc import Iterable
from typing import Any

import structlog
from graphql import GraphQLError
from strawberry.types import ExecutionContext

from server.db.trouble import is_database_away
from server.errors import CircuitOpen, NovitaError, RateLimited
from server.observe import metrics

log = structlog.get_logger(__name__)

# Where the library repeats what it was given. That may be a password in the wrong place, and errors are written down
# by clients.
_REPEATED = (
    (re.compile(r", found: .*$", re.DOTALL), "."),
    (re.compile(r"(cannot represent [^:]*): .*$", re.DOTALL), r"\1."),
    (re.compile(r"Value (?:'[^']*'|\"[^\"]*\") does not exist"), "The value does not exist"),
)


class Faults:
    """For a Schema: rewrites each error before it leaves."""

    def process_errors(self, errors: list[GraphQLError], execution_context: ExecutionContext | None = None) -> None:
        context = execution_context.context if execution_context is not None else None
        request_id = getattr(context, "request_id", None)
        for error in errors:
            _rewrite(error, request_id)


def shown(errors: Iterable[GraphQLError], request_id: str | None) -> list[dict[str, Any]]:
    """As clients see them; faults of ours are logged and masked on the way."""
    told: list[dict[str, Any]] = []
    for error in errors:
        _rewrite(error, request_id)
        told.append(dict(error.formatted))
    return told


def _rewrite(error: GraphQLError, request_id: str | None) -> None:
    original = error.original_error
    extensions: dict[str, Any] = dict(error.extensions or {})
    if original is None or isinstance(original, GraphQLError):
        if "code" not in extensions:
            error.message = _without_values(error.message)
        extensions.setdefault("code", "BAD_REQUEST")
        extensions.setdefault("retryable", False)
    elif isinstance(original, NovitaError):
        error.message = f"The provider can't be asked at the moment: {original.message}"
        extensions |= {"code": original.code, "retryable": original.retryable}
        after = original.retry_after if isinstance(original, RateLimited | CircuitOpen) else None
        if after is not None:
            extensions["retryAfterMs"] = int(after.total_seconds() * 1000)
        log.warning("request.provider_failed", code=original.code, path=error.path)
    elif is_database_away(original):
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


def _without_values(message: str) -> str:
    for pattern, instead in _REPEATED:
        message = pattern.sub(instead, message)
    return message
