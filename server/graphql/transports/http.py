"""The GraphQL endpoint: authentication, GraphQL over HTTP, and the hand-over to WebSocket and SSE.

Follows https://graphql.github.io/graphql-over-http; docs/decisions/0008 says why it is our own.
"""

import time
from dataclasses import replace
from typing import Any

import structlog
from graphql import GraphQLError, OperationType
from starlette.types import ASGIApp, Receive, Scope, Send

from schema.context import Services
from schema.error_masking import public_errors
from schema.root import schema
from server.auth.caller import Caller
from server.auth.wrong_tokens import TooManyWrongTokens
from server.db.outages import is_database_unavailable
from server.graphql.documents.document import Document, Operation
from server.graphql.execution.encode import encoded
from server.graphql.request import Request
from server.graphql.service import GraphQLService, new_request_id
from server.graphql.transports.body import ClientGone, HttpError, read_http_request
from server.graphql.transports.cookies import SessionCookie
from server.graphql.transports.handshake import serve_socket
from server.graphql.transports.negotiation import JSON, RESPONSE, STREAM, media_type, prefers_page
from server.graphql.transports.origins import check_origin, cors_headers, preflight_headers
from server.graphql.transports.scope import CONNECTION, address_of
from server.graphql.transports.sse import Stream
from server.observe.job_origin import bound_traceparent

log = structlog.get_logger(__name__)

Headers = list[tuple[bytes, bytes]]

METHODS = b"GET, POST, OPTIONS"
# Status by error code where it is not 400.
STATUS_OF = {"DOCUMENT_NOT_ALLOWED": 403, "TIMEOUT": 503}


class GraphQLEndpoint:
    """`page` serves GraphiQL to browsers that open this address."""

    def __init__(self, services: Services, *, page: ASGIApp | None = None) -> None:
        self._services = services
        self._origins = services.settings.allowed_origins
        self._page = page
        self._cookie = SessionCookie.of(services.settings)
        self.service = GraphQLService(schema, services)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await serve_socket(self.service, scope, receive, send, allowed_origins=self._origins, cookie=self._cookie)
            return
        headers = _headers(scope)
        if self._page is not None and scope["method"] in ("GET", "HEAD") and _wants_page(headers):
            await self._page(scope, receive, send)
            return
        request_id = new_request_id(headers.get(b"x-request-id", b"").decode("latin-1"))
        trace = bound_traceparent(headers.get(b"traceparent", b"").decode("latin-1"))
        # Not `bound_contextvars`, which reads all variables of the context first.
        bound = structlog.contextvars.bind_contextvars(request_id=request_id, **trace)
        try:
            await HttpExchange(self.service, scope, headers, request_id, self._origins, self._cookie).run(receive, send)
        finally:
            structlog.contextvars.reset_contextvars(**bound)

    async def check_caller(self, scope: Scope) -> None:
        """For an endpoint of programs beside this one: raise HttpError unless origin, token and rate allow it."""
        exchange = HttpExchange(self.service, scope, _headers(scope), "", self._origins, None)
        await exchange.check_rate(await exchange.check_caller())


class HttpExchange:
    """One HTTP request and its response."""

    def __init__(
        self,
        service: GraphQLService,
        scope: Scope,
        headers: dict[bytes, bytes],
        request_id: str,
        origins: tuple[str, ...],
        cookie: SessionCookie | None,
    ) -> None:
        self._service = service
        self._scope = scope
        self._headers = headers
        self._request_id = request_id
        self._origins = origins
        self._cookie = cookie
        self._media_type = JSON
        self._began = time.perf_counter()
        self._is_started = False

    async def run(self, receive: Receive, send: Send) -> None:
        """Always send a response."""
        try:
            await self._handle(receive, send)
        except HttpError as refusal:
            body = {"errors": [refusal.public_error(self._request_id)]}
            await self._send(send, refusal.status, body, refusal.headers)
        except ClientGone:
            log.debug("request.left")
        except Exception as error:
            if self._is_started:
                raise  # the response has started; the connection is closed
            fault = GraphQLError("", original_error=error)
            await self._send(send, 500, {"errors": public_errors([fault], self._request_id)})

    async def _handle(self, receive: Receive, send: Send) -> None:
        method = self._scope["method"]
        if method == "OPTIONS":
            await self._start(send, 204, [*preflight_headers(self._headers, self._origins), (b"allow", METHODS)])
            await send({"type": "http.response.body", "body": b""})
            return
        self._media_type = self._negotiate()
        if method not in ("GET", "POST"):
            raise HttpError(405, "Use POST or GET.", "METHOD_NOT_ALLOWED", headers=((b"allow", METHODS),))
        is_stream = self._media_type == STREAM
        caller = await self.check_caller()
        if not is_stream:
            await self.check_rate(caller)
        settings = self._service.settings
        limit = settings.socket_message_bytes if is_stream else settings.request_body_limit
        request = await read_http_request(self._scope, self._headers, receive, max_bytes=limit)
        if is_stream:
            await self._stream(replace(request, request_id=self._request_id), caller, receive, send)
        else:
            await self._respond(request, caller, send)

    async def _respond(self, request: Request, caller: Caller, send: Send) -> None:
        document = self._service.read_document(request, caller)
        if not isinstance(document, Document):
            await self._fail(send, public_errors(document, self._request_id))
            return
        operation = self._operation(document, request)
        if isinstance(operation, list):
            await self._fail(send, operation)
            return
        result = await self._service.responder.respond(document, operation, request.variables, caller, self._request_id)
        if result.has_data:
            await self._send(send, 200, result.body)
        else:
            await self._fail(send, result.errors, result.body.get("extensions"))

    def _operation(self, document: Document, request: Request) -> Operation | list[dict[str, Any]]:
        try:
            operation = document.operation(request.operation_name)
        except GraphQLError as error:
            return public_errors([error], self._request_id)
        if operation.kind is OperationType.MUTATION and self._scope["method"] == "GET":
            raise HttpError(405, "Mutations must be sent with POST.", headers=((b"allow", b"POST"),))
        if operation.kind is OperationType.SUBSCRIPTION:
            message = (
                "A subscription needs a WebSocket with the subprotocol graphql-transport-ws, "
                "or server-sent events with Accept: text/event-stream."
            )
            error = GraphQLError(message, extensions={"code": "NEEDS_STREAM", "retryable": False})
            return public_errors([error], self._request_id)
        return operation

    async def _stream(self, request: Request, caller: Caller, receive: Receive, send: Send) -> None:
        self._media_type = JSON  # of errors before the stream starts
        last_event_id = self._headers.get(b"last-event-id")
        await Stream(self._service, caller, self._request_id).serve(
            request,
            [(b"x-request-id", self._request_id.encode()), *cors_headers(self._headers, self._origins)],
            None if last_event_id is None else last_event_id.decode("latin-1"),
            receive,
            send,
            is_get=self._scope["method"] == "GET",
        )

    def _negotiate(self) -> str:
        accept = self._headers.get(b"accept")
        chosen = media_type(None if accept is None else accept.decode("latin-1"))
        if chosen is None:
            message = f"Accept one of {RESPONSE}, {JSON} and {STREAM}."
            raise HttpError(406, message, "NOT_ACCEPTABLE")
        return chosen

    async def check_caller(self) -> Caller:
        """Raises HttpError."""
        check_origin(self._headers, self._origins)
        authorization = self._headers.get(b"authorization")
        try:
            caller = await self._service.authenticate(
                None if authorization is None else authorization.decode("latin-1"),
                session=None if self._cookie is None else self._cookie.secret_of(self._headers),
                address=address_of(self._scope),
            )
        except TooManyWrongTokens as refusal:
            raise HttpError(429, str(refusal), "RATE_LIMITED", retry_after_ms=refusal.wait_ms) from None
        except Exception as error:
            if not is_database_unavailable(error):
                raise
            log.warning("request.database_away", error=type(error).__name__)
            message = "The database can't be reached at the moment. Try again."
            raise HttpError(503, message, "UNAVAILABLE", retry_after_ms=1000) from None
        if caller is None:
            message = "Send a valid token: Authorization: Bearer pl_..."
            raise HttpError(401, message, "UNAUTHENTICATED", headers=((b"www-authenticate", b"Bearer"),))
        connection = self._scope.get("extensions", {}).get(CONNECTION)
        if connection is not None:
            connection.admit(caller.project_id)  # its limits are those of the token from now on
        return caller

    async def check_rate(self, caller: Caller) -> None:
        """Raises HttpError."""
        wait = self._service.take_request(caller)
        if wait is not None:
            await self._service.rate_limiter.delay_refusal(caller)
            raise HttpError(
                429, "Too many requests with this token or in this project.", "RATE_LIMITED", retry_after_ms=wait
            )

    async def _fail(self, send: Send, errors: list[dict[str, Any]], extensions: dict[str, Any] | None = None) -> None:
        """Nothing was executed: `data` is left out, and graphql-response+json has a 4xx status.

        With application/json the status is 200, which tells our response from one of a proxy.
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
        raw = encoded(body)
        media_type = JSON if self._media_type == STREAM else self._media_type
        all_headers: Headers = [
            (b"content-type", f"{media_type}; charset=utf-8".encode()),
            (b"content-length", b"%d" % len(raw)),
            (b"cache-control", b"no-store"),
            *cors_headers(self._headers, self._origins),
            *headers,
        ]
        await self._start(send, status, all_headers)
        await send({"type": "http.response.body", "body": raw})

    async def _start(self, send: Send, status: int, headers: Headers) -> None:
        duration_ms = round((time.perf_counter() - self._began) * 1000, 1)
        log.debug("request.answered", status=status, duration_ms=duration_ms)
        self._is_started = True
        headers = [*headers, (b"x-request-id", self._request_id.encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})


def _headers(scope: Scope) -> dict[bytes, bytes]:
    """By name; repeated Accept headers are joined."""
    headers: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name == b"accept" and name in headers:
            headers[name] += b"," + value
        else:
            headers[name] = value
    return headers


def _wants_page(headers: dict[bytes, bytes]) -> bool:
    accept = headers.get(b"accept")
    return prefers_page(None if accept is None else accept.decode("latin-1"))
