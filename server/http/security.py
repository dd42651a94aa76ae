"""Middleware: refuses ambiguous headers and unknown hosts, and adds security headers."""

import re
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from uuid import uuid4

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.config import Settings

# Added where the response does not set them itself; pages have a content policy of their own.
SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
# With two of one of these, a proxy may have checked the one that we do not read.
SINGLE_HEADERS = frozenset((b"host", b"authorization", b"origin", b"content-type"))
# Load balancers probe these with HTTP/1.0, which has no Host header.
HEALTH_PATHS = ("/healthz", "/readyz")


class SecurityMiddleware:
    """The outermost layer. It refuses a header given twice and, as HTTP/1.1 demands, a request without a Host.

    On loopback it answers only to loopback names and ALLOWED_HOSTS. Otherwise a web page whose name resolves to
    127.0.0.1 (DNS rebinding) would share our origin.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._checks_host = settings.is_loopback
        self._hosts = frozenset(name.lower() for name in settings.allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            send = _with_security_headers(send)
        refusal = self._refusal_of(scope)
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await _refuse(scope, receive, send, refusal)

    def _refusal_of(self, scope: Scope) -> "_Refusal | None":
        seen: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            if name in SINGLE_HEADERS:
                if name in seen:
                    return _Refusal(400, "BAD_REQUEST", f"The header {name.decode()} is given twice.")
                seen[name] = value
        host = seen.get(b"host")
        if host is None:
            is_health_check = scope.get("http_version") == "1.0" and scope["path"] in HEALTH_PATHS
            return None if is_health_check else _Refusal(400, "BAD_REQUEST", "The header Host is missing.")
        if self._checks_host and not self._is_allowed(without_port(host.decode("latin-1"))):
            return _Refusal(421, "UNKNOWN_HOST", "Unknown host name; add it to ALLOWED_HOSTS.")
        return None

    def _is_allowed(self, host: str) -> bool:
        return host in self._hosts or is_loopback_name(host)


@lru_cache(maxsize=64)
def is_loopback_name(host: str) -> bool:
    """Whether a host name without its port can only mean this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=64)
def without_port(host: str) -> str:
    return re.sub(r":\d*$", "", host.lower())


def _with_security_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = message["headers"] = list(message.get("headers", ()))
            present = {name for name, _ in headers}
            headers.extend(each for each in SECURITY_HEADERS if each[0] not in present)
            if b"x-request-id" not in present:
                headers.append((b"x-request-id", b"req_" + uuid4().hex[:20].encode()))
        await send(message)

    return send_with_headers


@dataclass(frozen=True, slots=True)
class _Refusal:
    status: int
    code: str
    message: str


async def _refuse(scope: Scope, receive: Receive, send: Send, refusal: _Refusal) -> None:
    kind = "http.response"
    if scope["type"] == "websocket":
        await receive()
        kind = "websocket.http.response"
    error = {"message": refusal.message, "extensions": {"code": refusal.code, "retryable": False}}
    headers = [(b"content-type", b"application/json; charset=utf-8"), (b"cache-control", b"no-store")]
    await send({"type": f"{kind}.start", "status": refusal.status, "headers": headers})
    await send({"type": f"{kind}.body", "body": orjson.dumps({"errors": [error]})})
