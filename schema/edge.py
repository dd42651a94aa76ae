"""GraphQL over HTTP and WebSocket: who is asking is settled here, before any of it runs."""

import json
import time
from typing import cast
from uuid import uuid4

import orjson
import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send
from starlette.websockets import WebSocket
from strawberry.asgi import GraphQL

from schema.context import Context, Services
from schema.live.door import serve_socket
from schema.live.hub import Hub
from schema.live.stream import Stream, wants_stream
from schema.root import schema
from server.auth.caller import Caller
from server.db.trouble import is_database_away

log = structlog.get_logger(__name__)


class Edge(GraphQL[Context, None]):
    """Strawberry's view, behind our door."""

    def __init__(self, services: Services) -> None:
        super().__init__(
            schema,
            graphql_ide=None,  # its page loads from elsewhere and is blank without internet
            subscription_protocols=(),  # sockets are ours: see schema/live
        )
        self._services = services
        self.hub = Hub(schema, services)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            origins = self._services.settings.allowed_origins
            await serve_socket(self.hub, scope, receive, send, allowed_origins=origins)
            return
        request_id = f"req_{uuid4().hex[:20]}"
        with structlog.contextvars.bound_contextvars(request_id=request_id):
            scope.setdefault("state", {})["request_id"] = request_id
            send = _logged(send)
            request = Request(scope)
            refusal = await self._let_in(request)
            if refusal is not None:
                await refusal(scope, receive, send)
            elif wants_stream(request):
                await Stream(self.hub, scope["state"]["caller"], request_id).answer(scope, receive, send)
            else:
                await super().__call__(scope, receive, send)

    async def _let_in(self, request: Request) -> Response | None:
        """None when the caller is known; else what to answer."""
        try:
            caller = await self.hub.caller_of(request.headers.get("authorization"))
        except Exception as error:
            if not is_database_away(error):
                raise
            log.warning("request.database_away", error=type(error).__name__)
            message = "The database can't be reached at the moment. Try again."
            return _error(request, 503, message, code="UNAVAILABLE", retryable=True, retryAfterMs=1000)
        if caller is None:
            message = "Send a valid token: Authorization: Bearer pl_..."
            response = _error(request, 401, message, code="UNAUTHENTICATED", retryable=False)
            response.headers["www-authenticate"] = "Bearer"
            return response
        request.scope["state"]["caller"] = caller
        return None

    async def get_context(self, request: Request | WebSocket, response: Response | WebSocket) -> Context:
        request_id = str(request.scope["state"]["request_id"])
        context = Context(self._services, request_id=request_id, is_socket=False)
        context.admit(cast("Caller", request.scope["state"]["caller"]))
        cast("Response", response).headers["x-request-id"] = request_id
        return context

    def encode_json(self, data: object) -> str:  # type: ignore[override] # bytes would go out as binary frames, which clients refuse
        try:
            return orjson.dumps(data).decode()
        except TypeError:
            return json.dumps(data)  # an error may repeat half a character of the request; only escapes can hold it


def _logged(send: Send) -> Send:
    """The same, with a line about the answer once it begins."""
    began = time.perf_counter()

    async def logged(message: Message) -> None:
        if message["type"] == "http.response.start":
            taken = round((time.perf_counter() - began) * 1000, 1)
            log.debug("request.answered", status=message["status"], duration_ms=taken)
        await send(message)

    return logged


def _error(request: Request, status: int, message: str, **extensions: object) -> Response:
    request_id = str(request.scope["state"]["request_id"])
    body = {"errors": [{"message": message, "extensions": {**extensions, "requestId": request_id}}]}
    headers = {"x-request-id": request_id}
    return Response(orjson.dumps(body), status_code=status, media_type="application/json", headers=headers)
