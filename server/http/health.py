"""Liveness and readiness endpoints: /healthz and /readyz."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import orjson
from sqlalchemy import text
from starlette.requests import Request
from starlette.responses import Response

from server.db.migrate import check_is_current
from server.db.outages import DATABASE_ERRORS
from server.errors import StartupProblem
from server.http.shared_responses import SharedResponse
from server.novita.transport.circuit_breaker import BreakerState
from server.queue.queries import count_workers
from server.runtime import Runtime
from server.server_info import NO_WORKERS, REDIS_LOST

CHECK_TIMEOUT = timedelta(seconds=3)
# Events get their position within milliseconds; later only if there is no sequencer, or it can't write.
OUTBOX_AGE_MAX = timedelta(seconds=10)

OLDEST = text("SELECT extract(epoch FROM clock_timestamp() - occurred_at)::float8 FROM outbox ORDER BY seq LIMIT 1")

# Returns None when all is well, else the problem in a few words.
Check = Callable[[], Awaitable[str | None]]


async def alive(_request: Request) -> Response:
    """The event loop runs. Nothing else is checked, so that a database outage never restarts the process."""
    return _json(200, {"status": "alive"})


async def starting(_request: Request) -> Response:
    """For every other path while the process waits for its database."""
    return _json(503, {"status": "not ready", "checks": {"database": "can't be reached; the process waits for it"}})


class Readiness:
    """Whether this process can do its work. Failed required checks answer 503; optional ones only degrade."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._required: dict[str, Check] = {
            "stopping": self._stopping,
            "database": self._database,
            "migrations": self._migrations,
        }
        # Requests are served without these: accepted work and events wait in the database.
        self._optional: dict[str, Check] = {"provider": self._provider, "sequencer": self._sequencer}
        if runtime.settings.redis_url is not None:
            self._optional["redis"] = self._redis
        if runtime.follows_events:
            self._required["events"] = self._events
            self._optional["workers"] = self._workers
        else:
            self._required["jobs"] = self._jobs
        self._shared = SharedResponse(self._check)

    async def answer(self, _request: Request) -> Response:
        return await self._shared.get()

    async def _check(self) -> Response:
        names = [*self._required, *self._optional]
        checks = [*self._required.values(), *self._optional.values()]
        problems = dict(zip(names, await asyncio.gather(*(_with_timeout(check) for check in checks)), strict=True))
        is_ready = not any(problems[name] for name in self._required)
        status = "not ready" if not is_ready else "degraded" if any(problems.values()) else "ready"
        results = {name: problem or "ok" for name, problem in problems.items()}
        return _json(200 if is_ready else 503, {"status": status, "checks": results})

    async def _stopping(self) -> str | None:
        return "the process is stopping; send requests elsewhere" if self._runtime.is_draining else None

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
        return None if self._runtime.active_workers else "no lease is held; other workers run the jobs"

    async def _workers(self) -> str | None:
        async with self._runtime.database.read() as session:
            return None if await count_workers(session) else NO_WORKERS

    async def _provider(self) -> str | None:
        guard = self._runtime.provider
        if not await guard.reach():
            return guard.problem or "the provider has not been reached yet"
        if guard.problem is not None:
            return guard.problem
        breaker = self._runtime.novita.breaker.snapshot()
        if breaker.state is BreakerState.CLOSED:
            return None
        refusal = next(iter(breaker.refusals.values()), None)
        if refusal is not None:
            return f"the provider refuses our key or account: {refusal}; accepted work waits"
        return f"calls to the provider are suspended ({breaker.state.value})"

    async def _redis(self) -> str | None:
        return None if await self._runtime.caches.reach_redis() else REDIS_LOST

    async def _sequencer(self) -> str | None:
        async with self._runtime.database.read() as session:
            seconds: float | None = await session.scalar(OLDEST)
        if seconds is None or seconds < OUTBOX_AGE_MAX.total_seconds():
            return None
        return f"the oldest event has waited {seconds:.0f} s for its position; no sequencer is working"


async def _with_timeout(check: Check) -> str | None:
    try:
        async with asyncio.timeout(CHECK_TIMEOUT.total_seconds()):
            return await check()
    except TimeoutError:
        return "no answer in time"
    except DATABASE_ERRORS as error:
        return f"can't be reached ({type(error).__name__})"


def _json(status: int, body: dict[str, object]) -> Response:
    return Response(orjson.dumps(body), status_code=status, media_type="application/json")
