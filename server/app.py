"""Composition: routes and what they need; the only file that knows both HTTP and the rest."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import asyncpg
import orjson
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute

from schema.context import Services
from schema.edge import Edge
from server.db.migrate import check_is_current
from server.errors import StartupProblem
from server.novita.breaker import BreakerState
from server.pages import ApiOrGraphiQL, Pages
from server.runtime import Runtime
from server.scrape import Scrape

CHECK_TIMEOUT = timedelta(seconds=3)

# A look answers None when all is well, else what is wrong in a few words.
Look = Callable[[], Awaitable[str | None]]


def create_app(runtime: Runtime, pages: Pages | None = None) -> Starlette:
    pages = pages or Pages()
    edge = Edge(
        Services(
            database=runtime.database,
            catalog=runtime.catalog,
            caches=runtime.caches,
            watch=runtime.watch,
            tail=runtime.tail,
            tokens=runtime.tokens,
            projects=runtime.projects,
            facts=runtime.facts,
            settings=runtime.settings,
            webhook_key=runtime.webhook_key,
        )
    )
    readiness = Readiness(runtime)
    app = Starlette(
        routes=[
            *pages.routes(),
            Route("/healthz", _alive),
            Route("/readyz", readiness.answer),
            Route("/metrics", Scrape(runtime).answer),
            # Route and WebSocketRoute: a Mount answers POST with a redirect and a WebSocket with 403.
            Route("/graphql", ApiOrGraphiQL(pages, edge), methods=["GET", "POST"]),
            WebSocketRoute("/graphql", edge),
        ],
        middleware=[
            Middleware(
                CORSMiddleware,
                allow_origins=runtime.settings.allowed_origins,
                allow_methods=["GET", "POST"],
                allow_headers=["authorization", "content-type", "last-event-id"],
            )
        ],
    )
    app.state.hub = edge.hub  # whoever serves the application stops it before the server
    return app


async def _alive(_request: Request) -> Response:
    """The event loop turns; nothing else is asked, so that a database outage never restarts the process."""
    return _json(200, {"status": "alive"})


class Readiness:
    """Whether this process can do its work. Some things keep traffic away, others are only said."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._needed: dict[str, Look] = {
            "database": self._database,
            "migrations": self._migrations,
            "events": self._events,
        }
        # Reading and accepting go on without these: accepted work waits in the database.
        self._wished: dict[str, Look] = {"workers": self._workers, "provider": self._provider}

    async def answer(self, _request: Request) -> Response:
        names = [*self._needed, *self._wished]
        looks = [*self._needed.values(), *self._wished.values()]
        problems = dict(zip(names, await asyncio.gather(*(_in_time(look) for look in looks)), strict=True))
        is_ready = not any(problems[name] for name in self._needed)
        status = "not ready" if not is_ready else "degraded" if any(problems.values()) else "ready"
        checks = {name: problem or "ok" for name, problem in problems.items()}
        return _json(200 if is_ready else 503, {"status": status, "checks": checks})

    async def _database(self) -> str | None:
        async with self._runtime.database.read() as session:
            await session.execute(text("SELECT 1"))
        return None

    async def _migrations(self) -> str | None:
        try:
            await check_is_current(self._runtime.database)
        except StartupProblem as problem:
            return str(problem)
        return None

    async def _events(self) -> str | None:
        return None if self._runtime.tail.is_following else "the event log is not being followed"

    async def _workers(self) -> str | None:
        async with self._runtime.database.read() as session:
            alive = await session.scalar(text("SELECT count(*) FROM job_worker WHERE lease_until > clock_timestamp()"))
        return None if alive else "no worker is alive; accepted work waits"

    async def _provider(self) -> str | None:
        breaker = self._runtime.novita.breaker
        if breaker.state is BreakerState.CLOSED:
            return None
        return f"calls to the provider are suspended ({breaker.state.value})"


async def _in_time(look: Look) -> str | None:
    try:
        async with asyncio.timeout(CHECK_TIMEOUT.total_seconds()):
            return await look()
    except TimeoutError:
        return "no answer in time"
    except (OSError, SQLAlchemyError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        return f"can't be reached ({type(error).__name__})"


def _json(status: int, body: dict[str, object]) -> Response:
    return Response(orjson.dumps(body), status_code=status, media_type="application/json")
