"""GraphQL over server-sent events, one connection per operation; readable with `curl -N`.

The distinct connections mode of https://github.com/enisdenjo/graphql-sse/blob/master/PROTOCOL.md
"""

import asyncio
from typing import Any

from graphql import GraphQLError, OperationType
from starlette.types import Receive, Send

from server.auth.caller import Caller
from server.clock import now
from server.graphql.documents.document import Document, Operation
from server.graphql.execution.encode import encoded
from server.graphql.live.subscriber import Errors, Message, Subscriber
from server.graphql.request import Malformed, Request
from server.graphql.service import GraphQLService
from server.graphql.transports.body import HttpError
from server.graphql.transports.ws_messages import check_depth
from server.observe import http_requests

Headers = list[tuple[bytes, bytes]]
BACKLOG_BYTES_MAX = 64 * 1024  # a subscriber further behind catches up from the log
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),  # else a proxy buffers messages
]
HEARTBEAT = b":\n\n"
COMPLETE = b"event: complete\ndata:\n\n"


class Stream:
    """One request whose response is a stream of messages."""

    def __init__(self, service: GraphQLService, caller: Caller, request_id: str) -> None:
        self.caller: Caller | None = caller
        self._caller = caller
        self._service = service
        self._request_id = request_id
        self._waiting: list[bytes] = []
        self._bytes = 0
        self._changed = asyncio.Event()
        self._writable = asyncio.Event()
        self._subscriber: StreamSubscriber | None = None
        self._is_last = False
        self._is_closed = False

    async def serve(
        self,
        request: Request,
        headers: Headers,
        last_event_id: str | None,
        receive: Receive,
        send: Send,
        *,
        is_get: bool,
    ) -> None:
        """`headers` go out with those of a stream; raises HttpError before anything is sent."""
        service = self._service
        try:
            check_depth(request.variables)
        except Malformed as error:
            raise HttpError(400, f"{error}.") from None
        result = service.find_operation(request, self._caller)
        if is_get and not isinstance(result, list) and result[1].kind is OperationType.MUTATION:
            raise HttpError(405, "Mutations must be sent with POST.", headers=((b"allow", b"POST"),))
        if not isinstance(result, list):
            http_requests.classify_request(result[1].kind.value, result[1].fields)  # before the response starts
        if service.is_stopping or service.connections.is_full or not service.connections.count_connection(self._caller):
            raise HttpError(429, "Too many streams are open.", "TOO_MANY_OPERATIONS", retry_after_ms=1000)
        service.connections.add(self)
        service.start_keeper()
        try:
            await send({"type": "http.response.start", "status": 200, "headers": [*HEADERS, *headers]})
            if isinstance(result, list):
                await self._fail(result, send)
            else:
                await self._run(request, *result, last_event_id, receive, send)
        finally:
            service.connections.remove(self, was_admitted=True)

    async def _run(
        self,
        request: Request,
        document: Document,
        operation: Operation,
        last_event_id: str | None,
        receive: Receive,
        send: Send,
    ) -> None:
        if not self._service.connections.begin_operation(self._caller):
            message = "This token has too many operations open."
            extensions = {"code": "TOO_MANY_OPERATIONS", "retryable": True}
            await self._fail(self._service.public_errors([GraphQLError(message, extensions=extensions)], request), send)
            return
        try:
            if operation.kind is OperationType.SUBSCRIPTION:
                await self._subscribe(request, document, last_event_id, receive, send)
            else:
                answer = await self._service.responder.respond(
                    document, operation, request.variables, self._caller, self._request_id
                )
                await send(_body(_next(encoded(answer.body)) + COMPLETE, more=False))
        finally:
            self._service.connections.end_operation(self._caller)

    async def _fail(self, errors: Errors, send: Send) -> None:
        """Errors go into the stream: with status 400 an EventSource would stop without showing them."""
        await send(_body(_next(_failed(errors)) + COMPLETE, more=False))

    async def _subscribe(
        self, request: Request, document: Document, last_event_id: str | None, receive: Receive, send: Send
    ) -> None:
        self._subscriber = subscriber = StreamSubscriber(self)
        gone = asyncio.create_task(self._wait_until_gone(receive), name="stream")
        try:
            await self._service.subscribe(subscriber, request, document, self._caller, resume_at=last_event_id or None)
            while not self._is_closed:
                while self._waiting:
                    chunk = b"".join(self._waiting)
                    self._waiting.clear()
                    await send(_body(chunk, more=True))  # waits until the client has read
                    self._bytes -= len(chunk)
                    self._on_writable()
                if self._is_last:
                    await send(_body(COMPLETE, more=False))
                    return
                self._changed.clear()
                await self._wait_for_change(send)
            # Without `complete`, so that the client reconnects with its last event id.
            await send(_body(b"", more=False))
        finally:
            gone.cancel()
            subscriber.leave()

    async def _wait_for_change(self, send: Send) -> None:
        try:
            async with asyncio.timeout(self._service.settings.socket_ping_interval.total_seconds()):
                await self._changed.wait()
        except TimeoutError:
            await send(_body(HEARTBEAT, more=True))

    async def _wait_until_gone(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._close()

    def push(self, chunk: bytes) -> None:
        self._waiting.append(chunk)
        self._bytes += len(chunk)
        self._changed.set()

    def finish(self, errors: Errors | None) -> None:
        if errors is not None:
            self.push(_next(_failed(errors)))
        self._is_last = True
        self._changed.set()

    @property
    def is_full(self) -> bool:
        return self._bytes >= BACKLOG_BYTES_MAX and not self._is_closed

    async def wait_until_writable(self) -> None:
        self._writable.clear()
        await self._writable.wait()

    def _on_writable(self) -> None:
        self._writable.set()
        subscriber = self._subscriber
        if subscriber is not None and subscriber.is_lagging and subscriber.owner is not None:
            subscriber.is_lagging = False
            subscriber.owner.resume(subscriber)

    def check(self, moment: float) -> None:
        if self._caller.expires_at is not None and self._caller.expires_at <= now():
            self.close_unauthorized()

    def close_unauthorized(self) -> None:
        self._close()

    def close_for_restart(self) -> None:
        self._close()

    def _close(self) -> None:
        self._is_closed = True
        self._changed.set()
        self._writable.set()


class StreamSubscriber(Subscriber):
    """The one subscription of a stream."""

    __slots__ = ("_stream", "is_lagging")

    def __init__(self, stream: Stream) -> None:
        super().__init__()
        self._stream = stream
        self.is_lagging = False

    @property
    def is_full(self) -> bool:
        return self._stream.is_full

    async def wait_until_writable(self) -> None:
        await self._stream.wait_until_writable()

    def resume_when_writable(self) -> None:
        self.is_lagging = True

    def send(self, message: Message) -> None:
        id = b"" if message.cursor is None else b"id: " + message.cursor.encode() + b"\n"
        self._stream.push(id + _next(message.body[:-1]))

    def send_end(self, errors: Errors | None) -> None:
        self._stream.finish(errors)


def _next(body: bytes) -> bytes:
    return b"event: next\ndata: " + body + b"\n\n"


def _failed(errors: Errors) -> bytes:
    return encoded({"errors": errors})


def _body(chunk: bytes, *, more: bool) -> dict[str, Any]:
    return {"type": "http.response.body", "body": chunk, "more_body": more}
