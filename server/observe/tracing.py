"""Spans of traces. Without OTEL_EXPORTER_OTLP_ENDPOINT nothing is imported, created or sent.

    with span("webhook.send", kind=Kind.CLIENT, delivery_id=delivery.id) as sending:
        ...
        sending.note(http_status=204)

Facts become attributes. They are ids, words of our own and numbers: never a body, a caller's URL or an exception's
message, which may contain secrets.
"""

import importlib
from enum import Enum, auto
from types import TracebackType
from typing import Any, Protocol, Self
from uuid import UUID

from server.errors import StartupProblem

# Prefixes of ids in spans and log lines.
ID_PREFIXES = {"instance_id": "inst_", "operation_id": "op_", "token_id": "tok_", "delivery_id": "dlv_"}
MISSING_PACKAGES = "OTEL_EXPORTER_OTLP_ENDPOINT needs the OpenTelemetry packages: pip install 'pilotlight[otel]'"


class Kind(Enum):
    """The role of a span, as in OpenTelemetry."""

    INTERNAL = auto()
    SERVER = auto()
    CLIENT = auto()
    CONSUMER = auto()


class Span(Protocol):
    """One span, used as a context manager; an exception marks it as failed, with the exception's type."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def note(self, **facts: object) -> None:
        """Add attributes."""
        ...

    def rename(self, name: str) -> None:
        """Replace the name once it is known."""
        ...

    def fail(self, code: str) -> None:
        """Mark it as failed without an exception."""
        ...


class Tracing(Protocol):
    """Creates and exports spans."""

    def span(self, name: str, kind: Kind, parent: str | None, facts: dict[str, object]) -> Span: ...

    def traceparent(self) -> str | None: ...

    def trace_id(self) -> str | None: ...

    async def close(self) -> None: ...


class _NoSpan:
    """A span that is not recorded."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def note(self, **facts: object) -> None:
        pass

    def rename(self, name: str) -> None:
        pass

    def fail(self, code: str) -> None:
        pass


_NO_SPAN = _NoSpan()
_tracing: Tracing | None = None


def span(name: str, *, kind: Kind = Kind.INTERNAL, parent: str | None = None, **facts: object) -> Span:
    """A span inside the current one, or below `parent`, a traceparent of another process."""
    return _NO_SPAN if _tracing is None else _tracing.span(name, kind, parent, facts)


def is_enabled() -> bool:
    """For hot paths where computing a span's facts costs time."""
    return _tracing is not None


def traceparent() -> str | None:
    """The current trace context, to pass on; None if tracing is off."""
    return None if _tracing is None else _tracing.traceparent()


def trace_id() -> str | None:
    return None if _tracing is None else _tracing.trace_id()


def begin(endpoint: str, *, service: str, version: str) -> None:
    """Start creating spans and sending them to the collector."""
    global _tracing
    try:
        otel: Any = importlib.import_module("server.observe.otel")
    except ImportError:
        raise StartupProblem(MISSING_PACKAGES) from None
    _tracing = otel.OpenTelemetry(endpoint, service=service, version=version)


async def end() -> None:
    """Send the remaining spans, within a few seconds."""
    global _tracing
    tracing, _tracing = _tracing, None
    if tracing is not None:
        await tracing.close()


def attributes(facts: dict[str, object]) -> dict[str, str | int | float | bool]:
    """Facts as span attributes, with ids in their public form; None is left out."""
    values: dict[str, str | int | float | bool] = {}
    for name, value in facts.items():
        if value is None:
            continue
        if isinstance(value, UUID):
            value = ID_PREFIXES.get(name, "") + value.hex
        values[f"pilotlight.{name}"] = value if isinstance(value, str | int | float | bool) else str(value)
    return values
