"""Spans by OpenTelemetry, sent over OTLP/HTTP. Imported only if a collector is configured: see tracing.py."""

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
from server.observe.tracing import Kind, attributes

# An unreachable collector must not delay the end of a process.
SHUTDOWN_TIMEOUT = 3.0
KINDS = {
    Kind.INTERNAL: SpanKind.INTERNAL,
    Kind.SERVER: SpanKind.SERVER,
    Kind.CLIENT: SpanKind.CLIENT,
    Kind.CONSUMER: SpanKind.CONSUMER,
}

_propagator = TraceContextTextMapPropagator()


class OpenTelemetry:
    """One per process. The SDK reads sampler and collector headers from its own OTEL_ variables."""

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

    def span(self, name: str, kind: Kind, parent: str | None, facts: dict[str, object]) -> "OtelSpan":
        context = None if parent is None else _propagator.extract({"traceparent": parent}, contexts.Context())
        return OtelSpan(self._tracer, name, KINDS[kind], context, facts)

    def traceparent(self) -> str | None:
        carrier: dict[str, str] = {}
        _propagator.inject(carrier)
        return carrier.get("traceparent")

    def trace_id(self) -> str | None:
        context = trace.get_current_span().get_span_context()
        return trace.format_trace_id(context.trace_id) if context.is_valid else None

    async def close(self) -> None:
        """On a daemon thread: the SDK's shutdown takes up to 30 s, and Python's exit waits for executor threads."""
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def shut_down() -> None:
            self._provider.shutdown()
            if not loop.is_closed():
                loop.call_soon_threadsafe(done.set)

        threading.Thread(target=shut_down, name="last spans", daemon=True).start()
        try:
            async with asyncio.timeout(SHUTDOWN_TIMEOUT):
                await done.wait()
        except TimeoutError:
            return


class OtelSpan:
    """A span that begins and ends with its block."""

    __slots__ = ("_context", "_facts", "_kind", "_name", "_span", "_token", "_tracer")

    def __init__(
        self,
        tracer: trace.Tracer,
        name: str,
        kind: SpanKind,
        context: contexts.Context | None,
        facts: dict[str, object],
    ) -> None:
        self._tracer, self._name, self._kind, self._context, self._facts = tracer, name, kind, context, facts
        self._span: trace.Span = trace.INVALID_SPAN
        self._token: Token[contexts.Context] | None = None

    def __enter__(self) -> Self:
        self._span = self._tracer.start_span(
            self._name, context=self._context, kind=self._kind, attributes=attributes(self._facts)
        )
        self._token = contexts.attach(trace.set_span_in_context(self._span))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            contexts.detach(self._token)
        if kind is not None:
            # Its type only: exception messages contain addresses, statements and values.
            self.fail(kind.__name__)
        self._span.end()
        metrics.SPANS.add()

    def note(self, **facts: object) -> None:
        self._span.set_attributes(attributes(facts))

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def fail(self, code: str) -> None:
        self._span.set_status(Status(StatusCode.ERROR, code))
