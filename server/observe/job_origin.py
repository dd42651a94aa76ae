"""The origin of a job, passed from a request to its jobs and from job to job: ids for logs, and a trace context.

In a job's row it is one line of words, such as `req_4f2a... tok_0190... op_0190... 00-4bf9...-01`. The prefix of a word
is its type (`rid:` is a request id that the caller chose); unknown words are ignored, so that newer processes may add
some.
"""

import re
from uuid import UUID

from structlog.contextvars import bind_contextvars, get_contextvars

from server.observe import tracing

REQUEST = "request_id"
WORDS = {"req_": REQUEST, "tok_": "token_id", "op_": "operation_id"}
CALLERS_REQUEST = "rid:"
TRACE = "00-"
TRACEPARENT = "traceparent"
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def is_request_id(value: str) -> bool:
    """Whether it may be written to logs, job rows and headers as it is."""
    return _REQUEST_ID.fullmatch(value) is not None


def bound_traceparent(value: str | None) -> dict[str, str]:
    """A caller's trace context as a context variable; nothing if it is malformed, or if spans carry it."""
    if value is None or tracing.is_enabled() or _TRACEPARENT.fullmatch(value) is None:
        return {}
    return {TRACEPARENT: value}


def outgoing_headers() -> dict[str, str]:
    """For requests that a job sends on behalf of a caller: the request's id and the trace context."""
    bound = get_contextvars()
    request_id, traceparent = bound.get(REQUEST), tracing.traceparent() or bound.get(TRACEPARENT)
    headers = {"x-request-id": request_id, TRACEPARENT: traceparent}
    return {name: value for name, value in headers.items() if isinstance(value, str)}


def current_origin(*, operation_id: UUID | None = None) -> str | None:
    """The origin for the row of a new job; None if nothing is known."""
    bound = get_contextvars()
    if operation_id is not None:
        bound["operation_id"] = operation_id
    words: list[str] = []
    for prefix, name in WORDS.items():
        value = bound.get(name)
        if isinstance(value, UUID):
            words.append(prefix + value.hex)
        elif isinstance(value, str) and value.startswith(prefix):
            words.append(value)
    request_id = bound.get(REQUEST)
    if isinstance(request_id, str) and not request_id.startswith("req_"):
        words.insert(0, CALLERS_REQUEST + request_id)
    traceparent = tracing.traceparent() or bound.get(TRACEPARENT)
    if traceparent is not None:
        words.append(traceparent)
    return " ".join(words) or None


def resume_origin(origin: str) -> str | None:
    """Bind the ids to the following log lines; returns the traceparent, if any."""
    traceparent: str | None = None
    for word in origin.split():
        if word.startswith(TRACE):
            traceparent = word
            bind_contextvars(**bound_traceparent(word))
            continue
        if word.startswith(CALLERS_REQUEST):
            bind_contextvars(**{REQUEST: word.removeprefix(CALLERS_REQUEST)})
            continue
        name = WORDS.get(word[: word.find("_") + 1])
        if name is not None:
            bind_contextvars(**{name: word})
    return traceparent
