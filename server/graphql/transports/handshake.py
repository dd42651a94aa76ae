"""The WebSocket handshake: origin, capacity and subprotocol."""

from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network
from typing import cast

from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from server.graphql.service import GraphQLService
from server.graphql.transports.cookies import SessionCookie
from server.graphql.transports.origins import is_allowed_origin
from server.graphql.transports.websocket import BAD_PROTOCOL, PROTOCOL, Socket, SocketTransport

# Under which `server.http` puts the WebSocket, and the connection of an HTTP request, into the scope.
EXTENSION = "pilotlight.wire"
CONNECTION = "pilotlight.connection"


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


def address_of(scope: Scope) -> str:
    """What the limits per address count: the client, or the last proxy that is not trusted."""
    client = scope.get("client")
    return network_of(client[0]) if client else ""


@lru_cache(maxsize=4096)
def network_of(address: str) -> str:
    """An IPv4 address; of an IPv6 address its /64, because one client has all of that."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address):
        return str(parsed.ipv4_mapped or ip_network((int(parsed), 64), strict=False))
    return address
