"""The Starlette applications: routes and what they need."""

from starlette.applications import Starlette
from starlette.routing import Route, WebSocketRoute

from schema.context import Services
from server import __version__
from server.conversion import convert
from server.graphql.service import GraphQLService
from server.graphql.transports.http import GraphQLEndpoint
from server.http.health import Readiness, alive, starting
from server.http.metrics import MetricsEndpoint
from server.http.pages import Pages
from server.mcp.http import McpEndpoint
from server.observe.http_requests import ObservedApp
from server.runtime import Runtime


def create_app(runtime: Runtime, pages: Pages | None = None) -> Starlette:
    pages = pages or Pages()
    endpoint = GraphQLEndpoint(convert(Services, runtime), page=pages.visit_graphiql)
    mcp = McpEndpoint(runtime.settings, endpoint, version=__version__)
    app = Starlette(
        routes=[
            # First, because it gets most requests. A Mount would answer POST with a redirect and a WebSocket with 403.
            Route("/graphql", ObservedApp(endpoint)),
            WebSocketRoute("/graphql", endpoint),
            Route("/mcp", ObservedApp(mcp)),
            *pages.routes(),
            *_health_routes(runtime, endpoint.service),
        ],
    )
    app.state.service = endpoint.service  # serve_http stops both before the server
    app.state.mcp = mcp
    return app


def create_worker_app(runtime: Runtime) -> Starlette:
    """For a process that only runs jobs: health and metrics."""
    return Starlette(routes=_health_routes(runtime, None))


def create_starting_app() -> Starlette:
    """For a process that waits for its database: alive, and not ready for anything else."""
    return Starlette(routes=[Route("/healthz", alive), Route("/{path:path}", starting)])


def _health_routes(runtime: Runtime, service: GraphQLService | None) -> list[Route]:
    return [
        Route("/healthz", alive),
        Route("/readyz", Readiness(runtime).answer),
        Route("/metrics", MetricsEndpoint(runtime, service).answer),
    ]
