"""graphql-transport-ws, to the letter: https://github.com/enisdenjo/graphql-ws/blob/master/PROTOCOL.md"""

import asyncio
import time
from collections.abc import MutableMapping
from typing import Any, Protocol

import structlog
from graphql import GraphQLError, OperationType
from starlette.types import Receive

from schema.documents.document import Document, Operation
from schema.documents.request import Request
from schema.live.execution import Unfit
from schema.live.hub import Hub
from schema.live.member import Errors, Member, Message
from schema.live.messages import BadMessage, ClientMessage, read_message
from schema.live.results import encoded, fault_of
from server.auth.caller import Caller
from server.clock import now
from server.db.trouble import is_database_away

log = structlog.get_logger(__name__)

PROTOCOL = "graphql-transport-ws"

GOING_AWAY, TRY_AGAIN_LATER = 1012, 1013  # clients come back after both
BAD_REQUEST, UNAUTHORIZED, FORBIDDEN = 4400, 4401, 4403
BAD_PROTOCOL, INIT_TIMEOUT, DUPLICATE, TOO_MANY_INITS = 4406, 4408, 4409, 4429

PING = b'{"type":"ping"}'
PONG = b'{"type":"pong"}'
ACK = b'{"type":"connection_ack"}'


class Wire(Protocol):
    """What a socket needs of its connection."""

    is_full: bool
    on_room: Any

    @property
    def is_open(self) -> bool: ...

    def write(self, start: bytes, rest: bytes) -> None: ...

    async def room(self) -> None: ...

    def end(self, code: int, reason: str = "") -> None: ...


class Socket:
    """One connection, from its handshake on."""

    __slots__ = (
        "__weakref__",
        "_began",
        "_heard",
        "_hub",
        "_lagging",
        "_operations",
        "_pinged",
        "_state",
        "caller",
        "wire",
    )

    def __init__(self, hub: Hub, wire: Wire) -> None:
        self.wire = wire
        self.caller: Caller | None = None
        self._hub = hub
        self._operations: dict[str, SocketMember | asyncio.Task[None]] = {}
        self._lagging: list[Member] | None = None
        self._began = self._heard = time.monotonic()
        self._pinged = False
        self._state = "new"  # then "asked", then "admitted"
        wire.on_room = self._on_room

    async def serve(self, receive: Receive, authorization: str | None) -> None:
        """Until it is closed, by either side."""
        self._hub.census.enter(self)
        self._hub.wake()
        try:
            while True:
                event = await receive()
                if event["type"] == "websocket.disconnect":
                    return
                await self._hear(event, authorization)
                if self.wire.is_full:
                    await self.wire.room()  # who does not read our answers is not listened to either
                else:
                    await asyncio.sleep(0)  # thousands of messages may have come at once: the others have their turn
        finally:
            self._hub.census.leave(self, was_admitted=self._state == "admitted")
            self._leave_all()

    async def _hear(self, event: MutableMapping[str, Any], authorization: str | None) -> None:
        if not self.wire.is_open:
            return
        self._heard = time.monotonic()
        self._pinged = False
        try:
            text = event.get("text")
            if text is None:
                raise BadMessage("Messages are text, not binary")
            message = read_message(text)
        except BadMessage as error:
            self.wire.end(BAD_REQUEST, str(error))
            return
        match message.type:
            case "connection_init":
                await self._introduce(message, authorization)
            case "ping":
                self._say(PONG if message.payload is None else encoded({"type": "pong", "payload": message.payload}))
            case "subscribe":
                await self._subscribe(message)
            case "complete":
                self._complete(message.id)
            case _:
                pass  # a pong: it was heard, which is all it is for

    async def _introduce(self, message: ClientMessage, authorization: str | None) -> None:
        if self._state != "new":
            self.wire.end(TOO_MANY_INITS, "Too many initialisation requests")
            return
        self._state = "asked"
        # Browsers can't set headers on a WebSocket, so the token may come with this message.
        given = (message.payload or {}).get("Authorization") or (message.payload or {}).get("authorization")
        try:
            caller = await self._hub.greeted(given if given is not None else authorization)
        except Exception as error:
            if not is_database_away(error):
                raise
            log.warning("socket.database_away", error=type(error).__name__)
            self.wire.end(TRY_AGAIN_LATER, "The database can't be reached at the moment")
            return
        if caller is None:
            self.wire.end(FORBIDDEN, "Forbidden")
        elif not self._hub.census.admit(caller):
            self.wire.end(TRY_AGAIN_LATER, "This token has too many sockets")
        else:
            self.caller = caller
            self._state = "admitted"
            self._say(ACK)

    async def _subscribe(self, message: ClientMessage) -> None:
        caller, request = self.caller, message.request
        if caller is None or request is None:
            self.wire.end(UNAUTHORIZED, "Unauthorized")
            return
        if message.id in self._operations:
            self.wire.end(DUPLICATE, f"Subscriber for {message.id[:60]} already exists")
            return
        hub = self._hub
        found = hub.find(request, caller)
        if isinstance(found, list):
            self._say_errors(message.id, found)
            return
        document, operation = found
        if len(self._operations) >= hub.limits.operations_per_socket or not hub.census.begin(caller):
            self._say_errors(message.id, hub.shown([_too_many()]))
            return
        if operation.kind is OperationType.SUBSCRIPTION:
            member = SocketMember(self, message.id)
            self._operations[message.id] = member
            await self._join(member, request, document, caller)
        else:
            # A change that was begun is carried through, whoever is still there to hear of it.
            is_change = operation.kind is OperationType.MUTATION
            work = self._answer(message.id, document, operation, request, caller)
            task = hub.run(work, is_change=is_change)
            task.add_done_callback(lambda _: hub.census.end(caller))
            self._operations[message.id] = task

    async def _join(self, member: "SocketMember", request: Request, document: Document, caller: Caller) -> None:
        hub = self._hub
        try:
            await hub.cohorts.join(member, request, document, caller)
        except Unfit as unfit:
            member.finish(hub.shown(unfit.errors))
        except Exception as error:  # noqa: BLE001  # told to the client, and logged where it is a bug
            fault = fault_of(error) or GraphQLError("Something went wrong on our side.", original_error=error)
            member.finish(hub.shown([fault]))

    async def _answer(
        self, id: str, document: Document, operation: Operation, request: Request, caller: Caller
    ) -> None:
        """A query or a mutation: one result and the end, or why it was not carried out."""
        answer = await self._hub.answer(document, operation, request, caller)
        if self._operations.get(id) is not asyncio.current_task():
            return
        del self._operations[id]
        if answer.has_data:
            self.wire.write(_start(id), encoded(answer.body) + b"}")
            self._say(encoded({"id": id, "type": "complete"}))
        else:
            self._say_errors(id, answer.errors)

    def _complete(self, id: str) -> None:
        operation = self._operations.pop(id, None)
        if isinstance(operation, SocketMember):
            operation.leave()
            self._forget(operation)
        elif operation is not None:
            self._hub.let_go(operation)

    def end_of(self, member: "SocketMember", errors: Errors | None) -> None:
        """A member has come to its end by itself."""
        if self._operations.get(member.id) is member:
            del self._operations[member.id]
            self._forget(member)
        if errors is None:
            self._say(encoded({"id": member.id, "type": "complete"}))
        else:
            self._say_errors(member.id, errors)

    def _forget(self, member: "SocketMember") -> None:
        if self.caller is not None:
            self._hub.census.end(self.caller)
        if self._lagging is not None and member in self._lagging:
            self._lagging.remove(member)

    def _leave_all(self) -> None:
        for id in list(self._operations):
            self._complete(id)
        self._lagging = None

    def wait_for_room(self, member: Member) -> None:
        if self._lagging is None:
            self._lagging = []
        self._lagging.append(member)

    def _on_room(self) -> None:
        self._heard = time.monotonic()  # it reads, so it lives
        lagging, self._lagging = self._lagging or [], None
        for member in lagging:
            if self.wire.is_full:
                self.wait_for_room(member)
            elif member.home is not None:
                member.home.resume(member)

    def look(self, moment: float) -> None:
        """From the keeper, about once a second."""
        limits = self._hub.limits
        if self._state != "admitted":
            if moment - self._began > limits.socket_init_timeout.total_seconds():
                self.wire.end(INIT_TIMEOUT, "Connection initialisation timeout")
            return
        if self.caller is not None and self.caller.expires_at is not None and self.caller.expires_at <= now():
            self.expel()
            return
        quiet = moment - self._heard
        every = limits.socket_ping_interval.total_seconds()
        if quiet > 2 * every:
            self.wire.end(TRY_AGAIN_LATER, "No answer to a ping")
        elif quiet > every and not self._pinged and not self.wire.is_full:
            self._pinged = True
            self._say(PING)

    def expel(self) -> None:
        self.wire.end(FORBIDDEN, "The token has expired or was revoked")

    def say_goodbye(self) -> None:
        self.wire.end(GOING_AWAY, "This server is being restarted; come back with your last cursor")

    def _say(self, message: bytes) -> None:
        self.wire.write(b"", message)

    def _say_errors(self, id: str, errors: Errors) -> None:
        self._say(encoded({"id": id, "type": "error", "payload": errors}))


class SocketMember(Member):
    """A subscription over a socket; each message is its own few bytes and the shared rest."""

    __slots__ = ("_socket", "_start", "id")

    def __init__(self, socket: Socket, id: str) -> None:
        super().__init__()
        self.id = id
        self._socket = socket
        self._start = _start(id)

    @property
    def is_full(self) -> bool:
        return self._socket.wire.is_full

    async def room(self) -> None:
        await self._socket.wire.room()

    def wait_for_room(self) -> None:
        self._socket.wait_for_room(self)

    def send(self, message: Message) -> None:
        self._socket.wire.write(self._start, message.body)

    def say_end(self, errors: Errors | None) -> None:
        self._socket.end_of(self, errors)


def _start(id: str) -> bytes:
    return b'{"id":' + encoded(id) + b',"type":"next","payload":'


def _too_many() -> GraphQLError:
    message = "This socket, or this token, has too many operations open."
    return GraphQLError(message, extensions={"code": "TOO_MANY_OPERATIONS", "retryable": True})
