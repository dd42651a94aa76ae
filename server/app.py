"""Composition: routes and what they need; the only file that knows both HTTP and the rest."""

from starlette.applications import Starlette
from starlette.routing import Route, WebSocketRoute

from schema.context import Services
from schema.edge import Edge
from schema.live.hub import Hub
from server.observe.requests import Observed
from server.pages import Pages
from server.readiness import Readiness, alive
from server.runtime import Runtime
from server.scrape import Scrape


def create_app(runtime: Runtime, pages: Pages | None = None) -> Starlette:
    pages = pages or Pages()
    edge = Edge(
        Services(
            database=runtime.database,
            rehearsal=runtime.rehearsal,
            catalog=runtime.catalog,
            caches=runtime.caches,
            watch=runtime.watch,
            tail=runtime.tail,
            tokens=runtime.tokens,
            projects=runtime.projects,
            facts=runtime.facts,
            settings=runtime.settings,
            webhook_key=runtime.webhook_key,
        ),
        page=pages.visit_graphiql,
    )
    app = Starlette(
        routes=[
            # First, for it is asked for most. A Mount answers POST with a redirect and a WebSocket with 403.
            Route("/graphql", Observed(edge)),
            WebSocketRoute("/graphql", edge),
            *pages.routes(),
            *_looks(runtime, edge.hub),
        ],
    )
    app.state.hub = edge.hub  # whoever serves the application stops it before the server
    return app


def create_worker_app(runtime: Runtime) -> Starlette:
    """What a process that only runs jobs shows of itself."""
    return Starlette(routes=_looks(runtime, None))


def _looks(runtime: Runtime, hub: Hub | None) -> list[Route]:
    return [
        Route("/healthz", alive),
        Route("/readyz", Readiness(runtime).answer),
        Route("/metrics", Scrape(runtime, hub).answer),
    ]
