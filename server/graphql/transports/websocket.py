"""The graphql-transport-ws protocol: https://github.com/enisdenjo/graphql-ws/blob/master/PROTOCOL.md"""

import asyncio
import time
from collections.abc import MutableMapping
from dataclasses import replace
from typing import Any, Protocol
from uuid import UUID

import structlog
from graphql import GraphQLError, OperationType
from starlette.types import Receive

from server.auth.caller import Caller
from server.auth.wrong_tokens import TooManyWrongTokens
from server.clock import now
from server.db.outages import is_database_unavailable
from server.graphql.documents.document import Document, Operation
from server.graphql.execution.encode import encoded
from server.graphql.live.subscriber import Errors, Message, Subscriber
from server.graphql.request import Request, caller_ids
from server.graphql.service import GraphQLService
from server.graphql.transports.ws_messages import BadMessage, ClientMessage, read_message

log = structlog.get_logger(__name__)

PROTOCOL = "graphql-transport-ws"

GOING_AWAY, TRY_AGAIN_LATER = 1012, 1013  # clients reconnect after both
BAD_REQUEST, UNAUTHORIZED, FORBIDDEN = 4400, 4401, 4403
BAD_PROTOCOL, INIT_TIMEOUT, DUPLICATE, TOO_MANY_INITS = 4406, 4408, 4409, 4429

PING = b'{"type":"ping"}'
PONG = b'{"type":"pong"}'
ACK = b'{"type":"connection_ack"}'


class SocketTransport(Protocol):
    """The connection as `server.http.protocols` provides it."""

    is_full: bool
    on_room: Any

    @property
    def is_open(self) -> bool: ...

    def admit(self, project_id: UUID) -> None: ...

    def write(self, start: bytes, rest: bytes) -> None: ...

    async def wait_for_room(self) -> None: ...

    def close_with(self, code: int, reason: str = "") -> None: ...


class Socket:
    """One connection after its handshake."""

    __slots__ = (
        "__weakref__",
        "_address",
        "_caller_ids",
        "_lagging",
        "_last_message_at",
        "_opened_at",
        "_operations",
        "_pinged",
        "_service",
        "_session",
        "_state",
        "caller",
        "transport",
    )

    def __init__(self, service: GraphQLService, transport: SocketTransport, address: str = "") -> None:
        self.transport = transport
        self.caller: Caller | None = None
        self._service = service
        self._address = address
        self._operations: dict[str, SocketSubscriber | asyncio.Task[None]] = {}
        self._lagging: list[Subscriber] | None = None
        self._opened_at = self._last_message_at = time.monotonic()
        self._pinged = False
        self._caller_ids: tuple[str | None, str | None] = (None, None)  # of connection_init
        self._session: str | None = None
        self._state = "new"  # then "initialising", then "admitted"
        transport.on_room = self._on_room

    async def serve(self, receive: Receive, authorization: str | None, session: str | None = None) -> None:
        """Serve until either side closes it. `session` is the secret of a login's cookie."""
        self._session = session
        self._service.connections.add(self)
        self._service.start_keeper()
        try:
            while True:
                event = await receive()
                if event["type"] == "websocket.disconnect":
                    return
                await self._handle(event, authorization)
                if self.transport.is_full:
                    await self.transport.wait_for_room()  # a client that does not read is not read from either
                else:
                    await asyncio.sleep(0)  # thousands of messages may have arrived: let other tasks run
        finally:
            self._service.connections.remove(self, was_admitted=self._state == "admitted")
            self._complete_all()

    async def _handle(self, event: MutableMapping[str, Any], authorization: str | None) -> None:
        if not self.transport.is_open:
            return
        self._last_message_at = time.monotonic()
        self._pinged = False
        try:
            text = event.get("text")
            if text is None:
                raise BadMessage("Messages are text, not binary")
            message = read_message(text)
        except BadMessage as error:
            self.transport.close_with(BAD_REQUEST, str(error))
            return
        match message.type:
            case "connection_init":
                await self._init(message, authorization)
            case "ping":
                self._send(PONG if message.payload is None else encoded({"type": "pong", "payload": message.payload}))
            case "subscribe":
                await self._subscribe(message)
            case "complete":
                self._complete(message.id)
            case _:
                pass  # a pong only updates the time of the last message

    async def _init(self, message: ClientMessage, authorization: str | None) -> None:
        if self._state != "new":
            self.transport.close_with(TOO_MANY_INITS, "Too many initialisation requests")
            return
        self._state = "initialising"
        # Browsers can't set headers on a WebSocket, so the token may come with this message.
        token = (message.payload or {}).get("Authorization") or (message.payload or {}).get("authorization")
        try:
            given = token if token is not None else authorization
            caller = await self._service.authenticate_socket(given, session=self._session, address=self._address)
        except TooManyWrongTokens as refusal:
            self.transport.close_with(TRY_AGAIN_LATER, str(refusal))
            return
        except Exception as error:
            if not is_database_unavailable(error):
                raise
            log.warning("socket.database_away", error=type(error).__name__)
            self.transport.close_with(TRY_AGAIN_LATER, "The database can't be reached at the moment")
            return
        if caller is None:
            self.transport.close_with(FORBIDDEN, "Forbidden")
        elif not self._service.connections.count_connection(caller):
            self.transport.close_with(TRY_AGAIN_LATER, "This token has too many sockets")
        else:
            self.caller = caller
            self._caller_ids = caller_ids(message.payload or {})
            self._state = "admitted"
            self.transport.admit(caller.project_id)
            self._send(ACK)

    async def _subscribe(self, message: ClientMessage) -> None:
        caller, request = self.caller, message.request
        if caller is None or request is None:
            self.transport.close_with(UNAUTHORIZED, "Unauthorized")
            return
        if message.id in self._operations:
            self.transport.close_with(DUPLICATE, f"Subscriber for {message.id[:60]} already exists")
            return
        service = self._service
        request_id, traceparent = self._caller_ids
        if request_id or traceparent:
            request = replace(
                request,
                request_id=request.request_id or request_id,
                traceparent=request.traceparent or traceparent,
            )
        result = service.find_operation(request, caller)
        if isinstance(result, list):
            self._send_errors(message.id, result)
            return
        document, operation = result
        if len(self._operations) >= service.settings.operations_per_socket or not service.connections.begin_operation(
            caller
        ):
            self._send_errors(message.id, service.public_errors([_too_many_operations()], request))
            return
        if operation.kind is OperationType.SUBSCRIPTION:
            subscriber = SocketSubscriber(self, message.id)
            self._operations[message.id] = subscriber
            await service.subscribe(subscriber, request, document, caller)
        else:
            # A mutation that has begun runs to its end, even if the client leaves.
            is_mutation = operation.kind is OperationType.MUTATION
            work = self._respond(message.id, document, operation, request, caller)
            task = service.run(work, is_mutation=is_mutation)
            task.add_done_callback(lambda _: service.connections.end_operation(caller))
            self._operations[message.id] = task

    async def _respond(
        self, id: str, document: Document, operation: Operation, request: Request, caller: Caller
    ) -> None:
        """Run a query or mutation; send its result and `complete`, or its errors."""
        answer = await self._service.respond(document, operation, request, caller)
        if self._operations.get(id) is not asyncio.current_task():
            return
        del self._operations[id]
        if answer.has_data:
            self.transport.write(_next_prefix(id), encoded(answer.body) + b"}")
            self._send(encoded({"id": id, "type": "complete"}))
        else:
            self._send_errors(id, answer.errors)

    def _complete(self, id: str) -> None:
        operation = self._operations.pop(id, None)
        if isinstance(operation, SocketSubscriber):
            operation.leave()
            self._forget(operation)
        elif operation is not None:
            self._service.abandon(operation)

    def end_subscriber(self, subscriber: "SocketSubscriber", errors: Errors | None) -> None:
        """A subscription has ended by itself or failed."""
        if self._operations.get(subscriber.id) is subscriber:
            del self._operations[subscriber.id]
            self._forget(subscriber)
        if errors is None:
            self._send(encoded({"id": subscriber.id, "type": "complete"}))
        else:
            self._send_errors(subscriber.id, errors)

    def _forget(self, subscriber: "SocketSubscriber") -> None:
        if self.caller is not None:
            self._service.connections.end_operation(self.caller)
        if self._lagging is not None and subscriber in self._lagging:
            self._lagging.remove(subscriber)

    def _complete_all(self) -> None:
        for id in list(self._operations):
            self._complete(id)
        self._lagging = None

    def add_lagging(self, subscriber: Subscriber) -> None:
        if self._lagging is None:
            self._lagging = []
        self._lagging.append(subscriber)

    def _on_room(self) -> None:
        self._last_message_at = time.monotonic()  # it reads, so it is alive
        lagging, self._lagging = self._lagging or [], None
        for subscriber in lagging:
            if self.transport.is_full:
                self.add_lagging(subscriber)
            elif subscriber.owner is not None:
                subscriber.owner.resume(subscriber)

    def check(self, moment: float) -> None:
        """Called about once a second: init timeout, token expiry, pings."""
        settings = self._service.settings
        if self._state != "admitted":
            if moment - self._opened_at > settings.socket_init_timeout.total_seconds():
                self.transport.close_with(INIT_TIMEOUT, "Connection initialisation timeout")
            return
        if self.caller is not None and self.caller.expires_at is not None and self.caller.expires_at <= now():
            self.close_unauthorized()
            return
        silence = moment - self._last_message_at
        every = settings.socket_ping_interval.total_seconds()
        if silence > 2 * every:
            self.transport.close_with(TRY_AGAIN_LATER, "No answer to a ping")
        elif silence > every and not self._pinged and not self.transport.is_full:
            self._pinged = True
            self._send(PING)

    def close_unauthorized(self) -> None:
        self.transport.close_with(FORBIDDEN, "The token has expired or was revoked")

    def close_for_restart(self) -> None:
        self.transport.close_with(GOING_AWAY, "The server is restarting; reconnect with your last cursor")

    def _send(self, message: bytes) -> None:
        self.transport.write(b"", message)

    def _send_errors(self, id: str, errors: Errors) -> None:
        self._send(encoded({"id": id, "type": "error", "payload": errors}))


class SocketSubscriber(Subscriber):
    """A subscription over a socket: each message is its own prefix and the shared body."""

    __slots__ = ("_socket", "_start", "id")

    def __init__(self, socket: Socket, id: str) -> None:
        super().__init__()
        self.id = id
        self._socket = socket
        self._start = _next_prefix(id)

    @property
    def is_full(self) -> bool:
        return self._socket.transport.is_full

    async def wait_until_writable(self) -> None:
        await self._socket.transport.wait_for_room()

    def resume_when_writable(self) -> None:
        self._socket.add_lagging(self)

    def send(self, message: Message) -> None:
        self._socket.transport.write(self._start, message.body)

    def send_end(self, errors: Errors | None) -> None:
        self._socket.end_subscriber(self, errors)


def _next_prefix(id: str) -> bytes:
    return b'{"id":' + encoded(id) + b',"type":"next","payload":'


def _too_many_operations() -> GraphQLError:
    message = "This socket, or this token, has too many operations open."
    return GraphQLError(message, extensions={"code": "TOO_MANY_OPERATIONS", "retryable": True})
