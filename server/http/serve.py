"""Serves the whole API: GraphQL, MCP, pages, login, health and metrics."""

import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette

from server.http.app import create_app
from server.http.pages import Pages
from server.http.protocols import protocol_for
from server.http.security import SecurityMiddleware
from server.http.uvicorn_server import running
from server.http.websocket import DirectWebSocketProtocol
from server.runtime import Runtime
from server.ssrf import raise_open_files


@asynccontextmanager
async def serve_http(
    runtime: Runtime, listener: socket.socket, *, pages: Pages | None = None
) -> AsyncGenerator[Starlette]:
    """Serve until the block ends; then finish requests and close sockets with a code that makes clients resume."""
    raise_open_files()  # before the protocol reads how many connections there may be
    app = create_app(runtime, pages)
    config = uvicorn.Config(
        SecurityMiddleware(app, runtime.settings),
        http=protocol_for(runtime.settings),
        log_config=None,
        access_log=False,  # requests are in our own log
        lifespan="off",
        proxy_headers=False,  # the protocol reads them, and only from TRUSTED_PROXIES
        ws=DirectWebSocketProtocol,
        ws_per_message_deflate=False,  # measured: 2.7 times the memory and up to 3 times the CPU
        ws_max_size=app.state.service.settings.socket_message_bytes,
        ws_ping_interval=None,  # graphql-transport-ws has its own pings, sent by one task for all sockets
        server_header=False,
        timeout_graceful_shutdown=max(1, int(runtime.settings.shutdown_timeout.total_seconds())),
    )
    async with running(config, listener):
        try:
            yield app
        finally:
            await runtime.drain()
            await app.state.mcp.stop()
            await app.state.login.close()
            await app.state.service.stop()
