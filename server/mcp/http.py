"""`/mcp` of the API process: the tools over Streamable HTTP, with the caller's token.

The SDK is imported by the first request: a process that no agent uses does not pay for it. Each call runs GraphQL
documents through the process's own endpoint, so token, role, project, rate and limits are those of GraphQL.
"""

import asyncio
import importlib
from typing import Any

import orjson
from pilotlight_client import AsyncRequests
from pilotlight_client.transport import data_of
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.config import Settings
from server.graphql.transports.body import ClientGone, HttpError, read_body
from server.graphql.transports.http import GraphQLEndpoint


class McpEndpoint:
    """An ASGI application; `graphql` is the endpoint that documents are sent to."""

    def __init__(self, settings: Settings, graphql: GraphQLEndpoint, *, version: str) -> None:
        self._settings = settings
        self._graphql = graphql
        self._version = version
        self._starting = asyncio.Lock()
        self._app: ASGIApp | None = None
        self._running: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["method"] != "POST":
                # The stream that a GET would open stays empty, because no state is kept.
                raise HttpError(405, "Use POST.", "METHOD_NOT_ALLOWED", headers=((b"allow", b"POST"),))
            await self._graphql.check_caller(scope)
            # Here, because the SDK logs a client that leaves in the middle as an error, with a traceback.
            body = await read_body(dict(scope["headers"]), receive, self._settings.request_body_limit)
        except ClientGone:
            return
        except HttpError as refused:
            headers = {name.decode(): value.decode() for name, value in refused.headers}
            await JSONResponse({"error": refused.message}, refused.status, headers)(scope, receive, send)
            return
        try:
            app = await self._started()
        except ImportError:
            text = "The MCP server is not installed: pip install 'pilotlight[mcp]'"
            await JSONResponse({"error": text}, 501)(scope, receive, send)
            return
        await app(scope, _replayed(body, receive), send)

    async def stop(self) -> None:
        self._stop.set()
        if self._running is not None:
            await self._running

    async def _started(self) -> ASGIApp:
        async with self._starting:
            if self._app is None:
                self._app = await self._start()
            return self._app

    async def _start(self) -> ASGIApp:
        # In a thread: the import takes half a second, during which others are served.
        parts: Any = await asyncio.to_thread(importlib.import_module, "server.mcp.server")
        server = parts.build_server(
            self._connect, version=self._version, require_lifetime=self._settings.mcp_require_lifetime
        )
        # Stateless: any process answers any request. Host and Origin are checked by our own code.
        server.streamable_http_app(
            json_response=True,
            stateless_http=True,
            max_request_body_size=self._settings.request_body_limit,
            transport_security=parts.TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        is_up = asyncio.Event()
        self._running = asyncio.create_task(self._run(server.session_manager, is_up), name="mcp")
        await is_up.wait()
        return server.session_manager.handle_request

    async def _run(self, manager: Any, is_up: asyncio.Event) -> None:
        async with manager.run():
            is_up.set()
            await self._stop.wait()

    def _connect(self, ctx: Any) -> AsyncRequests:
        request = ctx.request_context.request
        headers = {name.lower(): value for name, value in request.headers.items()}
        return AsyncRequests(InProcess(self._graphql, request.scope, headers["authorization"]))


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Gives the body that has been read, then what follows it."""
    is_given = False

    async def replay() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


class InProcess:
    """Sends a client's documents to the GraphQL endpoint of this process, as a request with the caller's token."""

    def __init__(self, graphql: ASGIApp, scope: Scope, authorization: str) -> None:
        self._graphql = graphql
        self._scope = scope
        self._authorization = authorization

    async def execute(self, document: str, variables: dict[str, Any], *, is_repeatable: bool = True) -> dict[str, Any]:
        body = orjson.dumps({"query": document, "variables": variables})
        kept = [(name, value) for name, value in self._scope["headers"] if name in (b"host", b"x-request-id")]
        headers = [
            *kept,
            (b"authorization", self._authorization.encode()),
            (b"content-type", b"application/json"),
            (b"accept", b"application/graphql-response+json"),
            (b"content-length", str(len(body)).encode()),
        ]
        scope = {**self._scope, "method": "POST", "path": "/graphql", "raw_path": b"/graphql", "query_string": b""}
        scope["headers"] = headers
        parts: list[bytes] = []
        is_sent = False

        async def receive() -> Message:
            nonlocal is_sent
            if is_sent:
                await asyncio.Event().wait()  # the caller stays connected
            is_sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.body":
                parts.append(message.get("body", b""))

        await self._graphql(scope, receive, send)
        return data_of(orjson.loads(b"".join(parts)))

    async def close(self) -> None:
        """There is nothing to close."""
