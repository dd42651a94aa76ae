"""Spans by OpenTelemetry, sent over OTLP/HTTP. Imported only when there is a collector: see traces.py."""

import asyncio
import os
import socket
import threading
from contextvars import Token
from types import TracebackType
from typing import Self

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from server.observe import metrics
from server.observe.traces import Kind, attributes

# A collector that is away must not keep a process from ending.
LAST_WORDS = 3.0
KINDS = {
    Kind.INTERNAL: SpanKind.INTERNAL,
    Kind.SERVER: SpanKind.SERVER,
    Kind.CLIENT: SpanKind.CLIENT,
    Kind.CONSUMER: SpanKind.CONSUMER,
}

_propagator = TraceContextTextMapPropagator()


class OpenTelemetry:
    """One per process. The sampler and headers for the collector are what the SDK reads from its own OTEL_ names."""

    def __init__(self, endpoint: str, *, service: str, version: str) -> None:
        resource = Resource.create(
            {
                "service.name": service,
                "service.version": version,
                "service.instance.id": f"{socket.gethostname()}:{os.getpid()}",
            }
        )
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)  # see close()
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{endpoint}/v1/traces")))
        self._tracer = self._provider.get_tracer("pilotlight", version)

    def span(self, name: str, kind: Kind, parent: str | None, facts: dict[str, object]) -> "OpenSpan":
        context = None if parent is None else _propagator.extract({"traceparent": parent}, contexts.Context())
        return OpenSpan(self._tracer, name, KINDS[kind], context, facts)

    def traceparent(self) -> str | None:
        carrier: dict[str, str] = {}
        _propagator.inject(carrier)
        return carrier.get("traceparent")

    def trace_id(self) -> str | None:
        found = trace.get_current_span().get_span_context()
        return trace.format_trace_id(found.trace_id) if found.is_valid else None

    async def close(self) -> None:
        """Its own shutdown waits for half a minute, and Python's exit would wait for a thread of a pool."""
        loop = asyncio.get_running_loop()
        over = asyncio.Event()

        def shut_down() -> None:
            self._provider.shutdown()
            if not loop.is_closed():
                loop.call_soon_threadsafe(over.set)

        threading.Thread(target=shut_down, name="last spans", daemon=True).start()
        try:
            async with asyncio.timeout(LAST_WORDS):
                await over.wait()
        except TimeoutError:
            return


class OpenSpan:
    """Begins when the block is entered and ends with it."""

    __slots__ = ("_begun", "_context", "_facts", "_kind", "_name", "_token", "_tracer")

    def __init__(
        self,
        tracer: trace.Tracer,
        name: str,
        kind: SpanKind,
        context: contexts.Context | None,
        facts: dict[str, object],
    ) -> None:
        self._tracer, self._name, self._kind, self._context, self._facts = tracer, name, kind, context, facts
        self._begun: trace.Span = trace.INVALID_SPAN
        self._token: Token[contexts.Context] | None = None

    def __enter__(self) -> Self:
        self._begun = self._tracer.start_span(
            self._name, context=self._context, kind=self._kind, attributes=attributes(self._facts)
        )
        self._token = contexts.attach(trace.set_span_in_context(self._begun))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            contexts.detach(self._token)
        if kind is not None:
            # Its type only: messages of exceptions hold addresses, statements and values.
            self.fail(kind.__name__)
        self._begun.end()
        metrics.SPANS.add()

    def note(self, **facts: object) -> None:
        self._begun.set_attributes(attributes(facts))

    def rename(self, name: str) -> None:
        self._begun.update_name(name)

    def fail(self, code: str) -> None:
        self._begun.set_status(Status(StatusCode.ERROR, code))
