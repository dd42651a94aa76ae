"""Configures logging: one line per event, with the ids of its request, operation and job."""

import logging
import re
import sys
from io import StringIO
from typing import Any, TextIO, cast
from uuid import UUID

import orjson
import structlog
from structlog.typing import EventDict, ExcInfo, Processor, WrappedLogger

from server.observe import tracing

# No values of local variables: they include keys, tokens and users' environment variables.
_TRACEBACKS = structlog.processors.ExceptionRenderer(
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False, max_frames=20)
)
# PostgreSQL adds the refused row, which contains users' data, as a line of its own; its driver quotes a refused value.
_REFUSED_ROW = re.compile(r"^DETAIL:.*$|(?<=invalid input for query argument )(\$\d+:).*$", re.MULTILINE)


def configure(*, level: str, format: str) -> None:
    """Send the lines of structlog and of the standard library through one formatter to standard error."""
    as_json = format == "json" or (format == "auto" and not sys.stderr.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        _with_id_prefixes,
        _with_trace,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        cache_logger_on_first_use=True,
    )
    last: list[Processor] = (
        [_TRACEBACKS, _without_rows, structlog.processors.JSONRenderer(serializer=_dumps)]
        if as_json
        else [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=_plain_traceback)]
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "alembic"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    # At debug level every request has a line of Pilotlight's with its ids; uvicorn's says less.
    logging.getLogger("uvicorn.access").setLevel(logging.WARNING)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    # Their debug lines only hide our own. Those of `mcp` also quote what callers send and why it is refused.
    for name in ("alembic", "aiocache", "asyncio", "urllib3", "mcp"):
        logging.getLogger(name).setLevel(logging.WARNING)


def _with_id_prefixes(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    for name, prefix in tracing.ID_PREFIXES.items():
        value = event.get(name)
        if isinstance(value, UUID):
            event[name] = prefix + value.hex
        elif value is None:
            event.pop(name, None)
    return event


def _without_rows(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    for each in event.get("exception", ()):
        if isinstance(each, dict):
            exception = cast("dict[str, Any]", each)
            exception["exc_value"] = _REFUSED_ROW.sub("...", str(exception.get("exc_value")))
    return event


def _plain_traceback(out: TextIO, exc_info: ExcInfo) -> None:
    text = StringIO()
    structlog.dev.plain_traceback(text, exc_info)
    out.write(_REFUSED_ROW.sub("...", text.getvalue()))


def _with_trace(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Adds the trace id if traces are collected."""
    trace_id = tracing.trace_id()
    if trace_id is not None:
        event["trace_id"] = trace_id
    return event


def _dumps(value: Any, **_: Any) -> str:
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
