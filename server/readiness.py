"""/healthz and /readyz: whether a process turns, whether it can do its work, and if not, why."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import asyncpg
import orjson
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import Request
from starlette.responses import Response

from server.db.migrate import check_is_current
from server.errors import StartupProblem
from server.novita.breaker import BreakerState
from server.runtime import Runtime

CHECK_TIMEOUT = timedelta(seconds=3)
# Events get their place within milliseconds. For this long only if nobody leads, or the leader can't write.
PLACED_WITHIN = timedelta(seconds=10)

OLDEST = text("SELECT extract(epoch FROM clock_timestamp() - occurred_at)::float8 FROM outbox ORDER BY seq LIMIT 1")
ALIVE = text("SELECT count(*) FROM job_worker WHERE lease_until > clock_timestamp()")

# A look answers None when all is well, else what is wrong in a few words.
Look = Callable[[], Awaitable[str | None]]


async def alive(_request: Request) -> Response:
    """The event loop turns; nothing else is asked, so that a database outage never restarts the process."""
    return _json(200, {"status": "alive"})


class Readiness:
    """Whether this process can do its work. Some things keep traffic away, others are only said."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._needed: dict[str, Look] = {
            "stopping": self._stopping,
            "database": self._database,
            "migrations": self._migrations,
        }
        # Reading and accepting go on without these: accepted work waits in the database, and so do events.
        self._wished: dict[str, Look] = {"provider": self._provider, "sequencer": self._sequencer}
        if runtime.follows_events:
            self._needed["events"] = self._events
            self._wished["workers"] = self._workers
        else:
            self._needed["jobs"] = self._jobs

    async def answer(self, _request: Request) -> Response:
        names = [*self._needed, *self._wished]
        looks = [*self._needed.values(), *self._wished.values()]
        problems = dict(zip(names, await asyncio.gather(*(_in_time(look) for look in looks)), strict=True))
        is_ready = not any(problems[name] for name in self._needed)
        status = "not ready" if not is_ready else "degraded" if any(problems.values()) else "ready"
        checks = {name: problem or "ok" for name, problem in problems.items()}
        return _json(200 if is_ready else 503, {"status": status, "checks": checks})

    async def _stopping(self) -> str | None:
        return "it was told to stop; send requests elsewhere" if self._runtime.is_draining else None

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

    async def _jobs(self) -> str | None:
        return None if self._runtime.workers_working else "no lease is held; jobs are left to others"

    async def _workers(self) -> str | None:
        async with self._runtime.database.read() as session:
            found = await session.scalar(ALIVE)
        return None if found else "no worker is alive; accepted work waits"

    async def _provider(self) -> str | None:
        breaker = self._runtime.novita.breaker
        if breaker.state is BreakerState.CLOSED:
            return None
        return f"calls to the provider are suspended ({breaker.state.value})"

    async def _sequencer(self) -> str | None:
        async with self._runtime.database.read() as session:
            seconds: float | None = await session.scalar(OLDEST)
        if seconds is None or seconds < PLACED_WITHIN.total_seconds():
            return None
        return f"events have waited for {seconds:.0f} s to be told; nobody gives them their place in the log"


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
