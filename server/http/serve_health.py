"""Serves health and metrics, which is all that a worker serves; imports no part of GraphQL."""

import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Route

from server.config import Settings
from server.http.health import Readiness, alive, starting
from server.http.metrics import MetricsEndpoint
from server.http.protocols import protocol_for
from server.http.security import SecurityMiddleware
from server.http.uvicorn_server import running
from server.runtime import Runtime

if TYPE_CHECKING:
    from server.graphql.service import GraphQLService


@asynccontextmanager
async def serve_health(runtime: Runtime, listener: socket.socket) -> AsyncGenerator[None]:
    """For a process that only runs jobs: health and metrics."""
    async with running(_health_config(_worker_app(runtime), runtime.settings), listener):
        yield


@asynccontextmanager
async def serve_starting(settings: Settings, listener: socket.socket) -> AsyncGenerator[None]:
    """While a process waits for its database: it is alive and not ready. The listener stays open after the block."""
    async with running(_health_config(_starting_app(), settings), listener.dup()):
        yield


def _health_config(app: Starlette, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        SecurityMiddleware(app, settings),
        http=protocol_for(settings),
        log_config=None,
        access_log=False,  # requests are in our own log
        lifespan="off",
        proxy_headers=False,  # the protocol reads them, and only from TRUSTED_PROXIES
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=1,
    )


def _worker_app(runtime: Runtime) -> Starlette:
    """For a process that only runs jobs: health and metrics."""
    return Starlette(routes=health_routes(runtime, None))


def _starting_app() -> Starlette:
    """For a process that waits for its database: alive, and not ready for anything else."""
    return Starlette(routes=[Route("/healthz", alive), Route("/{path:path}", starting)])


def health_routes(runtime: Runtime, service: "GraphQLService | None") -> list[Route]:
    return [
        Route("/healthz", alive),
        Route("/readyz", Readiness(runtime).answer),
        Route("/metrics", MetricsEndpoint(runtime, service).answer),
    ]
