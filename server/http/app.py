"""The Starlette applications: routes and what they need."""

from starlette.applications import Starlette
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from schema.context import Services
from server import __version__
from server.conversion import convert
from server.graphql.service import GraphQLService
from server.graphql.transports.http import GraphQLEndpoint
from server.http.health import Readiness, alive, starting
from server.http.login import Login
from server.http.metrics import MetricsEndpoint
from server.http.pages import Pages
from server.mcp.http import McpEndpoint
from server.observe.http_requests import ObservedApp
from server.runtime import Runtime


class App(Starlette):
    """GraphQL requests go to their endpoint at once: it answers for its own errors, and Starlette's two error handlers
    and its router take a tenth of a small request's time."""

    graphql: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST" and scope["path"] == "/graphql":
            await self.graphql(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def create_app(runtime: Runtime, pages: Pages | None = None) -> Starlette:
    pages = pages or Pages()
    login = Login(runtime)
    pages.offers_login = login.is_offered
    endpoint = GraphQLEndpoint(convert(Services, runtime), page=pages.visit_graphiql)
    observed = ObservedApp(endpoint)
    mcp = McpEndpoint(runtime.settings, endpoint, version=__version__)
    app = App(
        routes=[
            # A Mount would answer POST with a redirect and a WebSocket with 403.
            Route("/graphql", observed),
            WebSocketRoute("/graphql", endpoint),
            Route("/mcp", ObservedApp(mcp)),
            *pages.routes(),
            *login.routes(),
            *_health_routes(runtime, endpoint.service),
        ],
    )
    app.graphql = observed
    app.state.service = endpoint.service  # serve_http stops both before the server
    app.state.mcp = mcp
    app.state.login = login
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
