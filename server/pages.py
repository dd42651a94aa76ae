"""The pages for people: the dashboard at /, GraphiQL at /graphql, and the files that both load."""

import asyncio
import base64
import gzip
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from server import welcome

HERE = Path(__file__).parent
# In a wheel the built pages are inside the package; in a clone they are where they are built.
DASHBOARD = (HERE / "built" / "dashboard", HERE.parent / "web" / "dist")
GRAPHIQL = (HERE / "built" / "graphiql", HERE.parent / "web" / "graphiql" / "dist")

KINDS = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".html": "text/html",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".woff2": "font/woff2",
    ".ttf": "font/ttf",
}
# Asked for behind a proxy, a loopback name says nothing about where the reader is.
FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
COMMON = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
FOR_EVER = {**COMMON, "cache-control": "public, max-age=31536000, immutable"}
SELDOM_KEPT = 200  # compressed files; a build has a few dozen, and only a developer makes many builds


class Standing(StrEnum):
    """Whether there is a page to show."""

    ABSENT = "ABSENT"
    BUILDING = "BUILDING"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class Development:
    """What `pilotlight up` on loopback adds: a token that need not be typed, and how the build goes."""

    token: str | None = None
    standing: Callable[[], Standing] = lambda: Standing.ABSENT


class Pages:
    def __init__(self, development: Development | None = None, *, is_loopback: bool = False) -> None:
        self._development = development or Development()
        self._is_loopback = is_loopback
        self._compressed: dict[tuple[Path, int], bytes] = {}

    def routes(self) -> list[Route]:
        return [
            Route("/", self.dashboard),
            Route("/assets/{name}", self._asset(DASHBOARD)),
            Route("/graphiql/assets/{name}", self._asset(GRAPHIQL)),
        ]

    async def dashboard(self, request: Request) -> Response:
        # Old browsers don't count our own sockets as 'self'.
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
        """For whoever opens the API's address in a browser."""
        response = await self.graphiql(Request(scope))
        response.headers["vary"] = "accept"
        await response(scope, receive, send)

    async def _page(
        self, request: Request, places: tuple[Path, ...], policy: str, *, what: str, command: str
    ) -> Response:
        headers = {**COMMON, "cache-control": "no-store"}
        file = _first(places, "index.html")
        if file is None:
            standing = self._development.standing()
            body = welcome.page(what=what, command=command, is_building=standing is Standing.BUILDING)
            policy = f"style-src '{_hash_of(welcome.STYLE)}'"
        else:
            body = file.read_text()
            if self._may_have_token(request):
                told = json.dumps({"token": self._development.token}).replace("<", "\\u003c")
                data = f'<script type="application/json" id="pilotlight">{told}</script>'
                body = body.replace("</head>", f"{data}</head>", 1)
        limits = "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        headers["content-security-policy"] = f"default-src 'none'; {policy}; {limits}"
        return Response(body, media_type="text/html", headers=headers)

    def _may_have_token(self, request: Request) -> bool:
        """Only somebody at this machine: a name that others can point here (DNS rebinding) is not enough.

        A page of another origin can make a browser ask for this, but then it says so in `Origin`, or can't read it.
        """
        headers = request.headers
        if self._development.token is None or not self._is_loopback or "origin" in headers:
            return False
        return _is_loopback_name(headers.get("host", "")) and not any(name in headers for name in FORWARDED)

    def _asset(self, places: tuple[Path, ...]) -> Callable[[Request], object]:
        async def answer(request: Request) -> Response:
            name = str(request.path_params["name"])
            file = _first(places, f"assets/{name}") if re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", name) else None
            if file is None:
                return Response("There is no such file.", status_code=404, media_type="text/plain", headers=COMMON)
            headers = {**FOR_EVER, "vary": "accept-encoding"}
            if "gzip" in request.headers.get("accept-encoding", ""):
                content, headers["content-encoding"] = await self._gzipped(file), "gzip"
            else:
                content = file.read_bytes()
            kind = KINDS.get(file.suffix, "application/octet-stream")
            return Response(content, media_type=kind, headers=headers)

        return answer

    async def _gzipped(self, file: Path) -> bytes:
        key = (file, file.stat().st_mtime_ns)
        if key not in self._compressed:
            content = await asyncio.to_thread(gzip.compress, file.read_bytes(), 6)
            if len(self._compressed) >= SELDOM_KEPT:
                self._compressed.clear()
            self._compressed[key] = content
        return self._compressed[key]


def _first(places: tuple[Path, ...], name: str) -> Path | None:
    return next((place / name for place in places if (place / name).is_file()), None)


def _is_loopback_name(host: str) -> bool:
    name = host.rsplit(":", 1)[0] if re.search(r":\d*$", host) and not host.endswith("]") else host
    name = name.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def _hash_of(style: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
