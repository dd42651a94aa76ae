"""What comes in: counted, timed and traced, over HTTP and over sockets.

What a request carries is known only when its document has been read, so whoever reads it says so with `carries`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Self

from structlog.contextvars import get_contextvars

from server.observe import metrics
from server.observe.origin import REQUEST
from server.observe.traces import Kind, Span, span

UNKNOWN = "none"
OK, ERROR, LEFT = "ok", "error", "left"

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

_current: ContextVar["Arrival | None"] = ContextVar("arrival", default=None)


class Arrival:
    """One request, from when it came in to when its answer begins."""

    __slots__ = ("_began", "_is_over", "_span", "_token", "_transport", "kind", "status")

    def __init__(self, transport: str, *, traceparent: str | None = None) -> None:
        self.kind = UNKNOWN
        self.status = LEFT
        self._transport = transport
        self._span: Span = span(transport, kind=Kind.SERVER, parent=traceparent)
        self._token: Token[Arrival | None] | None = None
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
            self.status = LEFT if issubclass(kind, asyncio.CancelledError) else ERROR
        self.answered()
        self._span.__exit__(kind, error, trace)
        if self._token is not None:
            _current.reset(self._token)

    def carries(self, kind: str, fields: Sequence[str]) -> None:
        self.kind = kind
        self._span.rename(f"{kind} {fields[0]}" if fields else kind)
        self._span.note(request_id=get_contextvars().get(REQUEST))

    def answered(self, status: str | None = None) -> None:
        """The answer begins; a stream goes on for long after that."""
        if self._is_over:
            return
        self._is_over = True
        self.status = status or self.status
        metrics.REQUESTS.observe(time.perf_counter() - self._began, self._transport, self.kind, self.status)
        self._span.note(status=self.status)


def carries(kind: str, fields: Sequence[str]) -> None:
    """Say what the request brought: query, mutation or subscription, and its root fields as the schema names them.

    Once is enough: what is said again of the same request is not counted again.
    """
    arrival = _current.get()
    if arrival is not None:
        if arrival.kind != UNKNOWN:
            return
        arrival.carries(kind, fields)
    for field in fields:
        metrics.FIELDS.add(kind, field)


class Observed:
    """An ASGI application, with an eye on its HTTP requests. Its sockets see to theirs."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with Arrival("http", traceparent=_header(scope, b"traceparent")) as arrival:

            async def noted(message: Message) -> None:
                if message["type"] == "http.response.start":
                    arrival.answered(str(message["status"]))
                await send(message)

            await self._app(scope, receive, noted)


def _header(scope: Message, name: bytes) -> str | None:
    return next((value.decode("latin-1") for each, value in scope["headers"] if each == name), None)
