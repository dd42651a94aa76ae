"""The WebSocket handshake: origin, capacity and subprotocol."""

from typing import cast

from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from server.graphql.service import GraphQLService
from server.graphql.transports.cookies import SessionCookie
from server.graphql.transports.origins import is_allowed_origin
from server.graphql.transports.scope import EXTENSION, address_of
from server.graphql.transports.websocket import BAD_PROTOCOL, PROTOCOL, Socket, SocketTransport


async def serve_socket(
    service: GraphQLService,
    scope: Scope,
    receive: Receive,
    send: Send,
    *,
    allowed_origins: tuple[str, ...],
    cookie: SessionCookie | None,
) -> None:
    """Serve one WebSocket from its handshake to its end."""
    await receive()  # websocket.connect
    headers = Headers(scope=scope)
    if not is_allowed_origin(headers.get("origin"), headers.get("host"), allowed_origins):
        await send({"type": "websocket.close", "code": 1008})  # before the handshake: 403
        return
    if service.is_stopping or service.connections.is_full:
        await send({"type": "websocket.http.response.start", "status": 503, "headers": [(b"retry-after", b"1")]})
        await send({"type": "websocket.http.response.body", "body": b""})
        return
    transport = cast("SocketTransport", scope["extensions"][EXTENSION])
    if PROTOCOL not in scope["subprotocols"]:
        await send({"type": "websocket.accept"})
        transport.close_with(BAD_PROTOCOL, "Subprotocol not acceptable")
        return
    await send({"type": "websocket.accept", "subprotocol": PROTOCOL})
    session = None if cookie is None else cookie.secret_of(dict(scope["headers"]))
    await Socket(service, transport, address_of(scope)).serve(receive, headers.get("authorization"), session)
