"""Counts, times and traces requests over HTTP and WebSockets.

The kind of a request is known only after its document is parsed, so the parser calls `classify_request`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Self

from structlog.contextvars import get_contextvars

from server.observe import metrics, tracing
from server.observe.job_origin import REQUEST
from server.observe.tracing import Kind, Span, span

UNKNOWN = "none"
OK, ERROR, CANCELLED = "ok", "error", "left"

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

_current: ContextVar["RequestObservation | None"] = ContextVar("request", default=None)


class RequestObservation:
    """One request, from its arrival to the start of its response."""

    __slots__ = ("_began", "_is_over", "_span", "_token", "_transport", "kind", "status")

    def __init__(self, transport: str, *, traceparent: str | None = None) -> None:
        self.kind = UNKNOWN
        self.status = CANCELLED
        self._transport = transport
        self._span: Span = span(transport, kind=Kind.SERVER, parent=traceparent)
        self._token: Token[RequestObservation | None] | None = None
        self._is_over = False

    def __enter__(self) -> Self:
        self._began = time.perf_counter()
        self._token = _current.set(self)
        self._span.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and not self._is_over:
            self.status = CANCELLED if issubclass(kind, asyncio.CancelledError) else ERROR
        self.answered()
        self._span.__exit__(kind, error, trace)
        if self._token is not None:
            _current.reset(self._token)

    def classify(self, kind: str, fields: Sequence[str]) -> None:
        self.kind = kind
        self._span.rename(f"{kind} {fields[0]}" if fields else kind)
        if tracing.is_enabled():  # reading all context variables takes as long as the rest
            self._span.note(request_id=get_contextvars().get(REQUEST))

    def answered(self, status: str | None = None) -> None:
        """The response starts; a stream may continue long after that."""
        if self._is_over:
            return
        self._is_over = True
        self.status = status or self.status
        metrics.REQUESTS.observe(time.perf_counter() - self._began, self._transport, self.kind, self.status)
        self._span.note(status=self.status)


def classify_request(kind: str, fields: Sequence[str]) -> None:
    """Record the operation (query, mutation or subscription) and its root fields; only the first call counts."""
    request = _current.get()
    if request is not None:
        if request.kind != UNKNOWN:
            return
        request.classify(kind, fields)
    for field in fields:
        metrics.FIELDS.add(kind, field)


class ObservedApp:
    """ASGI middleware that observes HTTP requests; WebSocket handlers observe their own."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with RequestObservation("http", traceparent=_header(scope, b"traceparent")) as request:

            async def send_observed(message: Message) -> None:
                if message["type"] == "http.response.start":
                    request.answered(str(message["status"]))
                await send(message)

            await self._app(scope, receive, send_observed)


def _header(scope: Message, name: bytes) -> str | None:
    return next((value.decode("latin-1") for each, value in scope["headers"] if each == name), None)
