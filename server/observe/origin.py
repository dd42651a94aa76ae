"""Where work comes from, carried from a request to its jobs, and from job to job: ids for the logs, a place in a trace.

In a job's row it is one line of words, such as `req_4f2a... tok_0190... op_0190... 00-4bf9...-01`. Each word says by
its first letters what it is; words that are not known are passed over, so that newer processes may add some.
"""

from uuid import UUID

from structlog.contextvars import bind_contextvars, get_contextvars

from server.observe import traces

REQUEST = "request_id"
WORDS = {"req_": REQUEST, "tok_": "token_id", "op_": "operation_id"}
TRACE = "00-"


def here(*, operation_id: UUID | None = None) -> str | None:
    """What brought us here, for the row of a job; None when nothing is known."""
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
    place = traces.traceparent()
    if place is not None:
        words.append(place)
    return " ".join(words) or None


def resume(origin: str) -> str | None:
    """Bind the ids to the log lines from here on; returns the place in a trace, if there is one."""
    place: str | None = None
    for word in origin.split():
        if word.startswith(TRACE):
            place = word
            continue
        name = WORDS.get(word[: word.find("_") + 1])
        if name is not None:
            bind_contextvars(**{name: word})
    return place
