"""The handshake of a WebSocket: where it comes from, and which protocol it speaks."""

from typing import cast

from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from schema.http.origins import is_welcome
from schema.live.hub import Hub
from schema.live.socket import BAD_PROTOCOL, PROTOCOL, Socket, Wire

EXTENSION = "pilotlight.wire"  # of `server.wire`, which is above us


async def serve_socket(
    hub: Hub, scope: Scope, receive: Receive, send: Send, *, allowed_origins: tuple[str, ...]
) -> None:
    """From the handshake to the end of the connection."""
    await receive()  # websocket.connect
    headers = Headers(scope=scope)
    if not is_welcome(headers.get("origin"), headers.get("host"), allowed_origins):
        await send({"type": "websocket.close", "code": 1008})  # before the handshake: 403
        return
    if hub.is_stopping or hub.census.is_full:
        await send({"type": "websocket.http.response.start", "status": 503, "headers": [(b"retry-after", b"1")]})
        await send({"type": "websocket.http.response.body", "body": b""})
        return
    wire = cast("Wire", scope["extensions"][EXTENSION])
    if PROTOCOL not in scope["subprotocols"]:
        await send({"type": "websocket.accept"})
        wire.end(BAD_PROTOCOL, "Subprotocol not acceptable")
        return
    await send({"type": "websocket.accept", "subprotocol": PROTOCOL})
    await Socket(hub, wire).serve(receive, headers.get("authorization"))
