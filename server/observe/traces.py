"""Spans, if somebody collects them. Without OTEL_EXPORTER_OTLP_ENDPOINT nothing is imported, made or sent.

    with span("webhook.send", kind=Kind.CLIENT, delivery_id=delivery.id) as sending:
        ...
        sending.note(http_status=204)

Facts become attributes. They are ids, words of ours and numbers: never a body, a URL of a caller's, or a message of
an exception, which may hold anything.
"""

import importlib
from enum import Enum, auto
from types import TracebackType
from typing import Any, Protocol, Self
from uuid import UUID

from server.errors import StartupProblem
from server.observe.names import PREFIXES

NEEDS = "OTEL_EXPORTER_OTLP_ENDPOINT needs the OpenTelemetry packages: pip install 'pilotlight[otel]'"


class Kind(Enum):
    """On which side of a conversation a span stands."""

    INTERNAL = auto()
    SERVER = auto()
    CLIENT = auto()
    CONSUMER = auto()


class Span(Protocol):
    """One stretch of work. Used as a context manager; an exception that passes marks it as failed, by its type."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def note(self, **facts: object) -> None:
        """Add what was learned meanwhile."""
        ...

    def rename(self, name: str) -> None:
        """It has become clear what this is."""
        ...

    def fail(self, code: str) -> None:
        """It did not go well, though nothing was raised."""
        ...


class Tracing(Protocol):
    """What makes spans and sends them off."""

    def span(self, name: str, kind: Kind, parent: str | None, facts: dict[str, object]) -> Span: ...

    def traceparent(self) -> str | None: ...

    def trace_id(self) -> str | None: ...

    async def close(self) -> None: ...


class _Nothing:
    """A span that nobody will see."""

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


_NOTHING = _Nothing()
_tracing: Tracing | None = None


def span(name: str, *, kind: Kind = Kind.INTERNAL, parent: str | None = None, **facts: object) -> Span:
    """A stretch of work, inside the one that is under way; or below `parent`, a traceparent from elsewhere."""
    return _NOTHING if _tracing is None else _tracing.span(name, kind, parent, facts)


def are_collected() -> bool:
    """For hot paths that would have to work for a span's facts."""
    return _tracing is not None


def traceparent() -> str | None:
    """Where we are, for whoever goes on from here; None when nobody collects."""
    return None if _tracing is None else _tracing.traceparent()


def headers() -> dict[str, str]:
    """The same as a header to send along."""
    here = traceparent()
    return {} if here is None else {"traceparent": here}


def trace_id() -> str | None:
    return None if _tracing is None else _tracing.trace_id()


def begin(endpoint: str, *, service: str, version: str) -> None:
    """From now on spans are made, and sent to the collector at that address."""
    global _tracing
    try:
        otel: Any = importlib.import_module("server.observe.otel")
    except ImportError:
        raise StartupProblem(NEEDS) from None
    _tracing = otel.OpenTelemetry(endpoint, service=service, version=version)


async def end() -> None:
    """Send what is left, in a few seconds at most."""
    global _tracing
    tracing, _tracing = _tracing, None
    if tracing is not None:
        await tracing.close()


def attributes(facts: dict[str, object]) -> dict[str, str | int | float | bool]:
    """Facts as a collector takes them, with ids as callers see them; what is None is left out."""
    found: dict[str, str | int | float | bool] = {}
    for name, value in facts.items():
        if value is None:
            continue
        if isinstance(value, UUID):
            value = PREFIXES.get(name, "") + value.hex
        found[f"pilotlight.{name}"] = value if isinstance(value, str | int | float | bool) else str(value)
    return found
