"""Around every answer: by which name we were called, and what browsers may do with what they get."""

import re
from functools import lru_cache
from ipaddress import ip_address
from uuid import uuid4

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.config import Settings

# Added where an answer does not say something else itself; a page has a policy of its own.
COMMON = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)


class Shield:
    """Outermost. A server that only this machine can reach answers only to names that nobody else can point at it.

    Without that, a page whose name is made to lead to 127.0.0.1 would be of the same origin as we are.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._checks_host = settings.is_loopback
        self._hosts = frozenset(name.lower() for name in settings.allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            send = _shielded(send)
        host = _host_of(scope) if self._checks_host else None
        if host is not None and not self._knows(host):
            await _refuse(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _knows(self, host: str) -> bool:
        return host in self._hosts or is_loopback_name(host)


@lru_cache(maxsize=64)
def is_loopback_name(host: str) -> bool:
    """Of a name without its port."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _host_of(scope: Scope) -> str | None:
    """The name without its port. Every browser says one; the checks of a load balancer may not."""
    host = next((value for name, value in scope["headers"] if name == b"host"), None)
    return None if host is None else re.sub(r":\d*$", "", host.decode("latin-1").lower())


def _shielded(send: Send) -> Send:
    async def shielded(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = message["headers"] = list(message.get("headers", ()))
            told = {name for name, _ in headers}
            headers.extend(each for each in COMMON if each[0] not in told)
            if b"x-request-id" not in told:
                headers.append((b"x-request-id", b"req_" + uuid4().hex[:20].encode()))
        await send(message)

    return shielded


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008})  # before the handshake: 403
        return
    error = {
        "message": "This server is not known by that name; see ALLOWED_HOSTS.",
        "extensions": {"code": "UNKNOWN_HOST", "retryable": False},
    }
    headers = [(b"content-type", b"application/json; charset=utf-8"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 421, "headers": headers})
    await send({"type": "http.response.body", "body": orjson.dumps({"errors": [error]})})
