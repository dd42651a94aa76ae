"""Server-sent events for the same documents, one connection each: what `curl -N` can read.

The distinct connections mode of https://github.com/enisdenjo/graphql-sse/blob/master/PROTOCOL.md
"""

import asyncio
from typing import Any

import orjson
from graphql import GraphQLError, OperationType
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from schema.live import messages
from schema.live.documents import Document, Operation
from schema.live.execution import Unfit
from schema.live.hub import Hub
from schema.live.member import Errors, Member, Message
from schema.live.results import encoded, fault_of
from server.auth.caller import Caller
from server.clock import now

MEDIA_TYPE = "text/event-stream"
WAITING = 64 * 1024  # bytes; who is further behind reads on from the log
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),  # or a proxy keeps messages back until it has many
]
HEARTBEAT = b":\n\n"
COMPLETE = b"event: complete\ndata:\n\n"


class Refusal(Exception):
    """Not even a stream: a status and a sentence."""

    def __init__(self, status: int, message: str, code: str = "BAD_REQUEST") -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code


def wants_stream(request: Request) -> bool:
    return MEDIA_TYPE in request.headers.get("accept", "")


class Stream:
    """One request, answered message by message."""

    def __init__(self, hub: Hub, caller: Caller, request_id: str) -> None:
        self.caller: Caller | None = caller
        self._who = caller
        self._hub = hub
        self._request_id = request_id
        self._waiting: list[bytes] = []
        self._bytes = 0
        self._rung = asyncio.Event()
        self._room = asyncio.Event()
        self._member: StreamMember | None = None
        self._is_last = False
        self._is_cut = False

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        hub = self._hub
        try:
            asked = await _read(Request(scope, receive), hub.limits.socket_message_bytes)
        except Refusal as refusal:
            await self._refuse(refusal)(scope, receive, send)
            return
        except ClientDisconnect:
            return
        try:
            document = hub.cohorts.documents.read(asked.query)
            operation = document.operation(asked.operation_name) if isinstance(document, Document) else None
            if scope["method"] == "GET" and operation is not None and operation.kind is OperationType.MUTATION:
                raise Refusal(405, "A GET must not change anything.")
            if hub.is_stopping or hub.census.is_full or not hub.census.admit(self._who):
                raise Refusal(429, "Too many streams are open.", "TOO_MANY_OPERATIONS")
        except Refusal as refusal:
            await self._refuse(refusal)(scope, receive, send)
            return
        except GraphQLError as error:
            document, operation = [error], None
        hub.census.enter(self)
        hub.wake()
        try:
            await send({"type": "http.response.start", "status": 200, "headers": [*HEADERS, self._id_header()]})
            await self._run(asked, document, operation, Request(scope).headers.get("last-event-id"), receive, send)
        finally:
            hub.census.leave(self, was_admitted=True)

    async def _run(
        self,
        asked: messages.Request,
        document: Document | list[GraphQLError],
        operation: Operation | None,
        last_event_id: str | None,
        receive: Receive,
        send: Send,
    ) -> None:
        if not isinstance(document, Document) or operation is None:
            await self._fail(document if isinstance(document, list) else [], send)
            return
        if not self._hub.census.begin(self._who):
            message = "This token has too many operations open."
            extensions = {"code": "TOO_MANY_OPERATIONS", "retryable": True}
            await self._fail([GraphQLError(message, extensions=extensions)], send)
            return
        try:
            if operation.kind is OperationType.SUBSCRIPTION:
                await self._watch(asked, document, last_event_id, receive, send)
            else:
                await send(_body(_next(await self._hub.execute(asked, self._who)) + COMPLETE, more=False))
        finally:
            self._hub.census.end(self._who)

    async def _fail(self, errors: list[GraphQLError], send: Send) -> None:
        """Told inside the stream: a status of 400 would make an EventSource give up without a word."""
        await send(_body(_next(_failed(self._hub.shown(errors))) + COMPLETE, more=False))

    async def _watch(
        self, asked: messages.Request, document: Document, last_event_id: str | None, receive: Receive, send: Send
    ) -> None:
        self._member = member = StreamMember(self)
        gone = asyncio.create_task(self._wait_until_gone(receive), name="stream")
        try:
            await self._join(member, asked, document, last_event_id)
            while not self._is_cut:
                while self._waiting:
                    chunk = b"".join(self._waiting)
                    self._waiting.clear()
                    await send(_body(chunk, more=True))  # waits until the client has read
                    self._bytes -= len(chunk)
                    self._make_room()
                if self._is_last:
                    await send(_body(COMPLETE, more=False))
                    return
                self._rung.clear()
                await self._next_ring(send)
            # Without `complete`: the client shall come back, with the last id that it saw.
            await send(_body(b"", more=False))
        finally:
            gone.cancel()
            member.leave()

    async def _join(
        self, member: "StreamMember", asked: messages.Request, document: Document, last_event_id: str | None
    ) -> None:
        try:
            await self._hub.cohorts.join(member, asked, document, self._who, resume_at=last_event_id or None)
        except Unfit as unfit:
            member.finish(self._hub.shown(unfit.errors))
        except Exception as error:  # noqa: BLE001  # told to the client, and logged where it is a bug
            fault = fault_of(error) or GraphQLError("Something went wrong on our side.", original_error=error)
            member.finish(self._hub.shown([fault]))

    async def _next_ring(self, send: Send) -> None:
        try:
            async with asyncio.timeout(self._hub.limits.socket_ping_interval.total_seconds()):
                await self._rung.wait()
        except TimeoutError:
            await send(_body(HEARTBEAT, more=True))

    async def _wait_until_gone(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._cut()

    def push(self, chunk: bytes) -> None:
        self._waiting.append(chunk)
        self._bytes += len(chunk)
        self._rung.set()

    def finish(self, errors: Errors | None) -> None:
        if errors is not None:
            self.push(_next(_failed(errors)))
        self._is_last = True
        self._rung.set()

    @property
    def is_full(self) -> bool:
        return self._bytes >= WAITING and not self._is_cut

    async def room(self) -> None:
        self._room.clear()
        await self._room.wait()

    def _make_room(self) -> None:
        self._room.set()
        member = self._member
        if member is not None and member.is_lagging and member.home is not None:
            member.is_lagging = False
            member.home.resume(member)

    def look(self, moment: float) -> None:
        if self._who.expires_at is not None and self._who.expires_at <= now():
            self.expel()

    def expel(self) -> None:
        self._cut()

    def say_goodbye(self) -> None:
        self._cut()

    def _cut(self) -> None:
        self._is_cut = True
        self._rung.set()
        self._room.set()

    def _refuse(self, refusal: Refusal) -> Response:
        extensions = {"code": refusal.code, "retryable": refusal.status == 429, "requestId": self._request_id}
        body = {"errors": [{"message": refusal.message, "extensions": extensions}]}
        response = Response(encoded(body), status_code=refusal.status, media_type="application/json")
        response.headers["x-request-id"] = self._request_id
        return response

    def _id_header(self) -> tuple[bytes, bytes]:
        return b"x-request-id", self._request_id.encode()


class StreamMember(Member):
    """The one subscription of a stream."""

    __slots__ = ("_stream", "is_lagging")

    def __init__(self, stream: Stream) -> None:
        super().__init__()
        self._stream = stream
        self.is_lagging = False

    @property
    def is_full(self) -> bool:
        return self._stream.is_full

    async def room(self) -> None:
        await self._stream.room()

    def wait_for_room(self) -> None:
        self.is_lagging = True

    def send(self, message: Message) -> None:
        id = b"" if message.cursor is None else b"id: " + message.cursor.encode() + b"\n"
        self._stream.push(id + _next(message.body[:-1]))

    def say_end(self, errors: Errors | None) -> None:
        self._stream.finish(errors)


async def _read(request: Request, most_bytes: int) -> messages.Request:
    if request.method == "GET":
        given: Any = dict(request.query_params)
        for name in ("variables", "extensions"):
            if name in given:
                given[name] = _json(given[name].encode(), f"{name} is not JSON.")
    else:
        if not request.headers.get("content-type", "").startswith("application/json"):
            raise Refusal(415, "Send application/json.")
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > most_bytes:
                raise Refusal(413, "The request is too large.")
        given = _json(bytes(body), "The body is not JSON.")
    if not messages.is_object(given):
        raise Refusal(400, "The body is not an object.")
    try:
        return messages.read_request(given)
    except messages.BadMessage as error:
        raise Refusal(400, f"{error}.") from None


def _json(raw: bytes, otherwise: str) -> Any:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise Refusal(400, otherwise) from None


def _next(body: bytes) -> bytes:
    return b"event: next\ndata: " + body + b"\n\n"


def _failed(errors: Errors) -> bytes:
    return encoded({"errors": errors})


def _body(chunk: bytes, *, more: bool) -> dict[str, Any]:
    return {"type": "http.response.body", "body": chunk, "more_body": more}
