"""Server-sent events for the same documents, one connection each: what `curl -N` can read.

The distinct connections mode of https://github.com/enisdenjo/graphql-sse/blob/master/PROTOCOL.md
"""

import asyncio
from typing import Any

from graphql import GraphQLError, OperationType
from starlette.types import Receive, Send

from schema.documents.document import Document, Operation
from schema.documents.request import Malformed, Request
from schema.execution.run import Unfit
from schema.http.refusal import Refusal
from schema.live.hub import Hub
from schema.live.member import Errors, Member, Message
from schema.live.messages import check_depth
from schema.live.results import encoded, fault_of
from server.auth.caller import Caller
from server.clock import now
from server.observe import requests

Headers = list[tuple[bytes, bytes]]
WAITING = 64 * 1024  # bytes; who is further behind reads on from the log
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),  # or a proxy keeps messages back until it has many
]
HEARTBEAT = b":\n\n"
COMPLETE = b"event: complete\ndata:\n\n"


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

    async def answer(
        self, asked: Request, headers: Headers, last_event_id: str | None, receive: Receive, send: Send, *, is_get: bool
    ) -> None:
        """`headers` go out with those of a stream; raises Refusal before anything is sent."""
        hub = self._hub
        try:
            check_depth(asked.variables)
        except Malformed as error:
            raise Refusal(400, f"{error}.") from None
        found = hub.find(asked, self._who)
        if is_get and not isinstance(found, list) and found[1].kind is OperationType.MUTATION:
            raise Refusal(405, "A GET must not change anything.", headers=((b"allow", b"POST"),))
        if not isinstance(found, list):
            requests.carries(found[1].kind.value, found[1].fields)  # now: the answer is about to begin
        if hub.is_stopping or hub.census.is_full or not hub.census.admit(self._who):
            raise Refusal(429, "Too many streams are open.", "TOO_MANY_OPERATIONS", retry_after_ms=1000)
        hub.census.enter(self)
        hub.wake()
        try:
            await send({"type": "http.response.start", "status": 200, "headers": [*HEADERS, *headers]})
            if isinstance(found, list):
                await self._fail(found, send)
            else:
                await self._run(asked, *found, last_event_id, receive, send)
        finally:
            hub.census.leave(self, was_admitted=True)

    async def _run(
        self,
        asked: Request,
        document: Document,
        operation: Operation,
        last_event_id: str | None,
        receive: Receive,
        send: Send,
    ) -> None:
        if not self._hub.census.begin(self._who):
            message = "This token has too many operations open."
            extensions = {"code": "TOO_MANY_OPERATIONS", "retryable": True}
            await self._fail(self._hub.shown([GraphQLError(message, extensions=extensions)]), send)
            return
        try:
            if operation.kind is OperationType.SUBSCRIPTION:
                await self._watch(asked, document, last_event_id, receive, send)
            else:
                answer = await self._hub.answers.of(document, operation, asked.variables, self._who, self._request_id)
                await send(_body(_next(encoded(answer.body)) + COMPLETE, more=False))
        finally:
            self._hub.census.end(self._who)

    async def _fail(self, errors: Errors, send: Send) -> None:
        """Told inside the stream: a status of 400 would make an EventSource give up without a word."""
        await send(_body(_next(_failed(errors)) + COMPLETE, more=False))

    async def _watch(
        self, asked: Request, document: Document, last_event_id: str | None, receive: Receive, send: Send
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
        self, member: "StreamMember", asked: Request, document: Document, last_event_id: str | None
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


def _next(body: bytes) -> bytes:
    return b"event: next\ndata: " + body + b"\n\n"


def _failed(errors: Errors) -> bytes:
    return encoded({"errors": errors})


def _body(chunk: bytes, *, more: bool) -> dict[str, Any]:
    return {"type": "http.response.body", "body": chunk, "more_body": more}
