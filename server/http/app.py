"""The Starlette applications: routes and what they need."""

from starlette.applications import Starlette
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from schema.context import Services
from server import __version__
from server.conversion import convert
from server.graphql.transports.http import GraphQLEndpoint
from server.http.login import Login
from server.http.pages import Pages
from server.http.serve_health import health_routes
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
            *health_routes(runtime, endpoint.service),
        ],
    )
    app.graphql = observed
    app.state.service = endpoint.service  # serve_http stops both before the server
    app.state.mcp = mcp
    app.state.login = login
    return app
