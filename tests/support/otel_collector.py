"""A collector of traces for tests and pictures: OTLP over HTTP on loopback, decoded."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

ERROR = 2


@dataclass(frozen=True)
class Span:
    """One span as it arrived."""

    trace_id: str
    id: str
    parent_id: str
    name: str
    service: str
    process: str
    start: float
    end: float
    is_error: bool
    attributes: dict[str, Any]


@dataclass
class Collector:
    url: str = ""
    spans: list[Span] = field(default_factory=list[Span])
    raw: list[bytes] = field(default_factory=list[bytes])
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])

    def of_trace(self, trace_id: str) -> list[Span]:
        """In the order in which they began."""
        return sorted((each for each in self.spans if each.trace_id == trace_id), key=lambda each: each.start)

    def named(self, name: str) -> list[Span]:
        return [each for each in self.spans if each.name == name]

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.read()
        if request.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        self.raw.append(body)
        self.spans += _spans(ExportTraceServiceRequest.FromString(body))
        return web.Response(content_type="application/x-protobuf")


def _spans(message: Any) -> list[Span]:
    found: list[Span] = []
    for resource in message.resource_spans:
        of = _attributes(resource.resource.attributes)
        for scope in resource.scope_spans:
            found += [
                Span(
                    trace_id=each.trace_id.hex(),
                    id=each.span_id.hex(),
                    parent_id=each.parent_span_id.hex(),
                    name=each.name,
                    service=str(of["service.name"]),
                    process=str(of["service.instance.id"]),
                    start=each.start_time_unix_nano / 1e9,
                    end=each.end_time_unix_nano / 1e9,
                    is_error=each.status.code == ERROR,
                    attributes=_attributes(each.attributes),
                )
                for each in scope.spans
            ]
    return found


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


@asynccontextmanager
async def collector() -> AsyncIterator[Collector]:
    """Listening at `url`, which is what OTEL_EXPORTER_OTLP_ENDPOINT wants to know."""
    collecting = Collector()
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/v1/traces", collecting.handle)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    collecting.url = f"http://{host}:{port}"
    try:
        yield collecting
    finally:
        await runner.cleanup()
        await asyncio.sleep(0)
