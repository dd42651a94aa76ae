"""GraphQL over HTTP and WebSocket: who is asking is settled here, before any of it runs.

To the letter of https://graphql.github.io/graphql-over-http; docs/decisions/0008 tells why it is our own.
"""

import time
from typing import Any

import structlog
from graphql import GraphQLError, OperationType
from starlette.types import ASGIApp, Receive, Scope, Send

from schema.context import Services
from schema.documents.document import Document, Operation
from schema.documents.request import Request
from schema.execution.known import written
from schema.faults import shown
from schema.http.accept import JSON, RESPONSE, STREAM, media_type, prefers_page
from schema.http.origins import check_origin, preflight, shared_with
from schema.http.reading import Gone, read
from schema.http.refusal import Refusal
from schema.live.door import serve_socket
from schema.live.hub import Hub, new_request_id
from schema.live.stream import Stream
from schema.root import schema
from server.auth.caller import Caller
from server.db.trouble import is_database_away

log = structlog.get_logger(__name__)

Headers = list[tuple[bytes, bytes]]

METHODS = b"GET, POST, OPTIONS"
# What is wrong with the request as such keeps its status in either form; these are of the document that it brought.
STATUS_OF = {"DOCUMENT_NOT_ALLOWED": 403, "TIMEOUT": 503}


class Edge:
    """`page` answers browsers that come to look, not to ask; without one they are told what is spoken here."""

    def __init__(self, services: Services, *, page: ASGIApp | None = None) -> None:
        self._services = services
        self._origins = services.settings.allowed_origins
        self._page = page
        self.hub = Hub(schema, services)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await serve_socket(self.hub, scope, receive, send, allowed_origins=self._origins)
            return
        headers = _headers(scope)
        if self._page is not None and scope["method"] in ("GET", "HEAD") and _is_visit(headers):
            await self._page(scope, receive, send)
            return
        request_id = new_request_id()
        with structlog.contextvars.bound_contextvars(request_id=request_id):
            await Exchange(self.hub, scope, headers, request_id, self._origins).run(receive, send)


class Exchange:
    """One request and its answer."""

    def __init__(
        self, hub: Hub, scope: Scope, headers: dict[bytes, bytes], request_id: str, origins: tuple[str, ...]
    ) -> None:
        self._hub = hub
        self._scope = scope
        self._headers = headers
        self._request_id = request_id
        self._origins = origins
        self._media_type = JSON
        self._began = time.perf_counter()
        self._is_started = False

    async def run(self, receive: Receive, send: Send) -> None:
        """Answer, whatever happens."""
        try:
            await self._answer(receive, send)
        except Refusal as refusal:
            body = {"errors": [refusal.shown(self._request_id)]}
            await self._send(send, refusal.status, body, refusal.headers)
        except Gone:
            log.debug("request.left")
        except Exception as error:
            if self._is_started:
                raise  # it can only be cut off
            fault = GraphQLError("", original_error=error)
            await self._send(send, 500, {"errors": shown([fault], self._request_id)})

    async def _answer(self, receive: Receive, send: Send) -> None:
        method = self._scope["method"]
        if method == "OPTIONS":
            await self._start(send, 204, [*preflight(self._headers, self._origins), (b"allow", METHODS)])
            await send({"type": "http.response.body", "body": b""})
            return
        self._media_type = self._negotiated()
        if method not in ("GET", "POST"):
            raise Refusal(405, "Ask with POST or GET.", "METHOD_NOT_ALLOWED", headers=((b"allow", METHODS),))
        check_origin(self._headers, self._origins)
        is_stream = self._media_type == STREAM
        caller = await self._caller()
        if not is_stream:
            self._check_rate(caller)
        limits, settings = self._hub.limits, self._hub.settings
        most = limits.socket_message_bytes if is_stream else settings.request_body_limit
        request = await read(self._scope, self._headers, receive, most_bytes=most)
        if is_stream:
            await self._stream(request, caller, receive, send)
        else:
            await self._once(request, caller, send)

    async def _once(self, request: Request, caller: Caller, send: Send) -> None:
        document = self._hub.read(request, caller)
        if not isinstance(document, Document):
            await self._fail(send, shown(document, self._request_id))
            return
        operation = self._operation(document, request)
        if isinstance(operation, list):
            await self._fail(send, operation)
            return
        answer = await self._hub.answers.of(document, operation, request.variables, caller, self._request_id)
        if answer.has_data:
            await self._send(send, 200, answer.body)
        else:
            await self._fail(send, answer.errors, answer.body.get("extensions"))

    def _operation(self, document: Document, request: Request) -> Operation | list[dict[str, Any]]:
        try:
            operation = document.operation(request.operation_name)
        except GraphQLError as error:
            return shown([error], self._request_id)
        if operation.kind is OperationType.MUTATION and self._scope["method"] == "GET":
            raise Refusal(405, "A GET must not change anything: send it with POST.", headers=((b"allow", b"POST"),))
        if operation.kind is OperationType.SUBSCRIPTION:
            message = (
                "A subscription needs a connection that stays: a WebSocket with the subprotocol graphql-transport-ws, "
                "or server-sent events with Accept: text/event-stream."
            )
            error = GraphQLError(message, extensions={"code": "NEEDS_STREAM", "retryable": False})
            return shown([error], self._request_id)
        return operation

    async def _stream(self, request: Request, caller: Caller, receive: Receive, send: Send) -> None:
        self._media_type = JSON  # of what is refused
        last_event_id = self._headers.get(b"last-event-id")
        await Stream(self._hub, caller, self._request_id).answer(
            request,
            [(b"x-request-id", self._request_id.encode()), *shared_with(self._headers, self._origins)],
            None if last_event_id is None else last_event_id.decode("latin-1"),
            receive,
            send,
            is_get=self._scope["method"] == "GET",
        )

    def _negotiated(self) -> str:
        accept = self._headers.get(b"accept")
        found = media_type(None if accept is None else accept.decode("latin-1"))
        if found is None:
            message = f"Accept one of {RESPONSE}, {JSON} and {STREAM}."
            raise Refusal(406, message, "NOT_ACCEPTABLE")
        return found

    async def _caller(self) -> Caller:
        given = self._headers.get(b"authorization")
        try:
            caller = await self._hub.caller_of(None if given is None else given.decode("latin-1"))
        except Exception as error:
            if not is_database_away(error):
                raise
            log.warning("request.database_away", error=type(error).__name__)
            message = "The database can't be reached at the moment. Try again."
            raise Refusal(503, message, "UNAVAILABLE", retry_after_ms=1000) from None
        if caller is None:
            message = "Send a valid token: Authorization: Bearer pl_..."
            raise Refusal(401, message, "UNAUTHENTICATED", headers=((b"www-authenticate", b"Bearer"),))
        return caller

    def _check_rate(self, caller: Caller) -> None:
        wait = self._hub.rates.take(caller.token_id)
        if wait is not None:
            raise Refusal(429, "This token asks too often.", "RATE_LIMITED", retry_after_ms=wait)

    async def _fail(self, send: Send, errors: list[dict[str, Any]], extensions: dict[str, Any] | None = None) -> None:
        """Nothing was carried out: `data` is left out, and the newer form has a status for it.

        In the older one 200 is all that tells an answer of ours from one of some proxy on the way.
        """
        code = errors[0]["extensions"]["code"] if errors else ""
        status = STATUS_OF.get(code, 400)
        if self._media_type == JSON and status == 400:
            status = 200
        body: dict[str, Any] = {"errors": errors}
        if extensions is not None:
            body["extensions"] = extensions
        await self._send(send, status, body, ((b"retry-after", b"1"),) if status == 503 else ())

    async def _send(
        self, send: Send, status: int, body: dict[str, Any], headers: tuple[tuple[bytes, bytes], ...] = ()
    ) -> None:
        raw = written(body)
        media_type = JSON if self._media_type == STREAM else self._media_type
        told: Headers = [
            (b"content-type", f"{media_type}; charset=utf-8".encode()),
            (b"content-length", b"%d" % len(raw)),
            (b"cache-control", b"no-store"),
            *shared_with(self._headers, self._origins),
            *headers,
        ]
        await self._start(send, status, told)
        await send({"type": "http.response.body", "body": raw})

    async def _start(self, send: Send, status: int, headers: Headers) -> None:
        taken = round((time.perf_counter() - self._began) * 1000, 1)
        log.debug("request.answered", status=status, duration_ms=taken)
        self._is_started = True
        told = [*headers, (b"x-request-id", self._request_id.encode())]
        await send({"type": "http.response.start", "status": status, "headers": told})


def _headers(scope: Scope) -> dict[bytes, bytes]:
    """By name; what is said twice is put together where that means something."""
    found: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name == b"accept" and name in found:
            found[name] += b"," + value
        else:
            found[name] = value
    return found


def _is_visit(headers: dict[bytes, bytes]) -> bool:
    accept = headers.get(b"accept")
    return prefers_page(None if accept is None else accept.decode("latin-1"))
