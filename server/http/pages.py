"""Serves the dashboard at /, GraphiQL at /graphql, their assets, and a placeholder where they are not built."""

import asyncio
import base64
import gzip
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from server.http.security import SECURITY_HEADERS, is_loopback_name, without_port

PACKAGE = Path(__file__).parents[1]
# In a wheel the built pages are inside the package; in a clone they are in web/.
DASHBOARD = (PACKAGE / "built" / "dashboard", PACKAGE.parent / "web" / "dist")
GRAPHIQL = (PACKAGE / "built" / "graphiql", PACKAGE.parent / "web" / "graphiql" / "dist")

MEDIA_TYPES = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".html": "text/html",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".woff2": "font/woff2",
    ".ttf": "font/ttf",
}
# Behind a proxy, a loopback name says nothing about where the client is.
PROXY_HEADERS = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
HEADERS = {
    **{name.decode(): value.decode() for name, value in SECURITY_HEADERS if name != b"content-security-policy"},
    "cross-origin-opener-policy": "same-origin",
}
ASSET_HEADERS = {**HEADERS, "cache-control": "public, max-age=31536000, immutable"}
FILES_MAX = 400  # in memory, plain and compressed; a build has a few dozen, and only a developer makes many builds
PIECE = 16 * 1024  # bytes that are written at once: a client that reads nothing costs little more


class BuildStatus(StrEnum):
    """Whether there is a built page to serve."""

    ABSENT = "ABSENT"
    BUILDING = "BUILDING"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class Development:
    """What `pilotlight up` on loopback adds: a token that need not be typed, and the status of the build."""

    token: str | None = None
    build_status: Callable[[], BuildStatus] = lambda: BuildStatus.ABSENT


class Pages:
    def __init__(self, development: Development | None = None, *, is_loopback: bool = False) -> None:
        self._development = development or Development()
        self._is_loopback = is_loopback
        self.offers_login = False
        self._contents: dict[tuple[Path, int, bool], asyncio.Task[bytes]] = {}

    def routes(self) -> list[Route]:
        return [
            Route("/", self.dashboard),
            Route("/assets/{name}", self._asset(DASHBOARD)),
            Route("/graphiql/assets/{name}", self._asset(GRAPHIQL)),
        ]

    async def dashboard(self, request: Request) -> Response:
        # Old browsers don't count WebSockets of the same host as 'self'.
        host = request.headers.get("host", "")
        sockets = f" ws://{host} wss://{host}" if re.fullmatch(r"[A-Za-z0-9.\-:\[\]]+", host) else ""
        policy = f"script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'{sockets}"
        return await self._page(request, DASHBOARD, policy, what="the dashboard", command="make web")

    async def graphiql(self, request: Request) -> Response:
        # Monaco places lines and the cursor with inline styles; its fonts come inside its style sheet.
        policy = (
            "script-src 'self'; worker-src 'self'; connect-src 'self'; style-src 'self' 'unsafe-inline'; "
            "font-src 'self' data:; img-src 'self' data:"
        )
        return await self._page(request, GRAPHIQL, policy, what="GraphiQL", command="make graphiql")

    async def visit_graphiql(self, scope: Scope, receive: Receive, send: Send) -> None:
        """For a browser that opens the API's address."""
        response = await self.graphiql(Request(scope))
        response.headers["vary"] = "accept"
        await response(scope, receive, send)

    async def _page(
        self, request: Request, places: tuple[Path, ...], policy: str, *, what: str, command: str
    ) -> Response:
        headers = {**HEADERS, "cache-control": "no-store"}
        file = _first(places, "index.html")
        if file is None:
            is_building = self._development.build_status() is BuildStatus.BUILDING
            body = placeholder_page(what=what, command=command, is_building=is_building)
            policy = f"style-src '{_hash_of(STYLE)}'"
        else:
            body = file.read_text()
            known = {"login": True} if self.offers_login else {}
            if self._may_have_token(request):
                known = {**known, "token": self._development.token}
            if known:
                settings = json.dumps(known).replace("<", "\\u003c")
                data = f'<script type="application/json" id="pilotlight">{settings}</script>'
                body = body.replace("</head>", f"{data}</head>", 1)
        limits = "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        headers["content-security-policy"] = f"default-src 'none'; {policy}; {limits}"
        return Response(body, media_type="text/html", headers=headers)

    def _may_have_token(self, request: Request) -> bool:
        """Only for a browser on this machine; a name that others can point here (DNS rebinding) is not enough.

        A page of another origin can make a browser send this request, but then it has an `Origin` header, or the
        response can't be read.
        """
        headers = request.headers
        if self._development.token is None or not self._is_loopback or "origin" in headers:
            return False
        host = without_port(headers.get("host", ""))
        # A resolver may send the names below .localhost to another machine; "localhost" itself is in every hosts file.
        is_this_machine = is_loopback_name(host) and not host.endswith(".localhost")
        return is_this_machine and not any(name in headers for name in PROXY_HEADERS)

    def _asset(self, places: tuple[Path, ...]) -> Callable[[Request], object]:
        async def answer(request: Request) -> Response:
            name = str(request.path_params["name"])
            file = _first(places, f"assets/{name}") if re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", name) else None
            if file is None:
                return Response("There is no such file.", status_code=404, media_type="text/plain", headers=HEADERS)
            headers = {**ASSET_HEADERS, "vary": "accept-encoding"}
            is_compressed = "gzip" in request.headers.get("accept-encoding", "")
            if is_compressed:
                headers["content-encoding"] = "gzip"
            kind = MEDIA_TYPES.get(file.suffix, "application/octet-stream")
            return ResponseInPieces(await self._content(file, is_compressed), media_type=kind, headers=headers)

        return answer

    async def _content(self, file: Path, is_compressed: bool) -> bytes:
        """One copy for all clients that are reading it."""
        key = (file, file.stat().st_mtime_ns, is_compressed)
        if key not in self._contents:
            if len(self._contents) >= FILES_MAX:
                self._contents.clear()
            self._contents[key] = asyncio.create_task(asyncio.to_thread(_read, file, is_compressed))
        try:
            return await asyncio.shield(self._contents[key])
        except OSError:
            self._contents.pop(key, None)
            raise


class ResponseInPieces(Response):
    """The next piece is written when the client has read of those before it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        body = memoryview(self.body)
        for start in range(0, len(body), PIECE):
            await send({"type": "http.response.body", "body": bytes(body[start : start + PIECE]), "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def _read(file: Path, is_compressed: bool) -> bytes:
    content = file.read_bytes()
    return gzip.compress(content, 6) if is_compressed else content


def _first(places: tuple[Path, ...], name: str) -> Path | None:
    return next((place / name for place in places if (place / name).is_file()), None)


def _hash_of(style: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()


STYLE = """
  :root { color-scheme: light dark; }
  body { font: 16px/1.5 system-ui, sans-serif; max-width: 42rem; margin: 3rem auto; padding: 0 1rem; }
  code, pre { font: 14px/1.5 ui-monospace, monospace; }
  pre { padding: 1rem; border: 1px solid #8885; border-radius: 6px; overflow-x: auto; }
"""

RELOAD = '<meta http-equiv="refresh" content="2">\n'
BUILDING_NOTE = """<p role="status"><strong>This page is being built</strong>, once; it takes about half a minute
and will appear here by itself. The API is ready meanwhile.</p>"""
NOT_BUILT_NOTE = """<p>For {what}, run <code>{command}</code> in the clone and reload this page: it needs Node.js
20.19 or newer with npm, or else takes Node.js from PyPI.</p>"""


def placeholder_page(*, what: str, command: str, is_building: bool) -> str:
    """How to build the page; while it is being built, the placeholder reloads itself."""
    note = BUILDING_NOTE if is_building else NOT_BUILT_NOTE.format(what=what, command=command)
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
{RELOAD if is_building else ""}<title>Pilotlight</title>
<style>{STYLE}</style>
<h1>Pilotlight</h1>
<p>A GraphQL control plane for GPU instances on Novita.ai. It is running.</p>
{note}
<p>Send queries to <code>/graphql</code> with your token, and subscribe there over WebSocket
(<code>graphql-transport-ws</code>):</p>
<pre>curl -s localhost:8000/graphql \\
  -H "authorization: Bearer $TOKEN" -H "content-type: application/json" \\
  -d '{{"query": "{{ instances(first: 10) {{ nodes {{ id name status }} }} }}"}}'</pre>
<p>Health: <a href="/readyz">/readyz</a>.</p>
</html>
"""
