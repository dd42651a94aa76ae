"""/metrics for Prometheus: counters and gauges of this process, and figures read from the database.

Every family is present in every process; a family without a sample does not apply to this process.
"""

import asyncio
import importlib.metadata
import platform
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

import structlog
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.requests import Request
from starlette.responses import Response

from server.auth.tokens import bearer_secret
from server.auth.wrong_tokens import TooManyWrongTokens
from server.db.outages import DATABASE_ERRORS, is_database_unavailable
from server.graphql.transports.scope import address_of
from server.http.shared_responses import SharedResponse
from server.novita.transport.circuit_breaker import BreakerState
from server.queue import metrics
from server.queue.queries import job_stats
from server.runtime import Runtime

if TYPE_CHECKING:
    from server.graphql.service import GraphQLService  # a worker has none, and need not load GraphQL

log = structlog.get_logger(__name__)


def process_metrics(runtime: Runtime, service: "GraphQLService | None") -> Iterator[Metric]:
    versions = {"version": importlib.metadata.version("pilotlight"), "python": platform.python_version()}
    yield _by("pilotlight_build_info", "What runs here; always 1.", ",".join(versions), {tuple(versions.values()): 1})
    yield _one("pilotlight_draining", "Whether it was told to stop.", runtime.is_draining)
    yield from _provider(runtime)
    yield from _caches(runtime)
    yield from _log(runtime)
    yield from _pools(runtime)
    yield from _subscriptions(service)
    working = runtime.active_workers if runtime.has_workers else None
    yield _one("pilotlight_workers_working", "Workers of this process that hold a lease.", working)


def _provider(runtime: Runtime) -> Iterator[Metric]:
    novita = runtime.novita.snapshot()
    states = {(state.value,): float(novita.breaker.state is state) for state in BreakerState}
    yield _by("pilotlight_provider_breaker", "1 for the state of the worst circuit.", "state", states)
    yield _one("pilotlight_provider_circuits_open", "Circuits that are not closed.", len(novita.breaker.circuits))
    suspended = len(novita.breaker.refusals)
    yield _one("pilotlight_provider_suspended", "Circuits open because our key or account is refused.", suspended)
    limiter = novita.limiter
    waiting = {(each.name,): count for each, count in limiter.waiting.items()}
    yield _by("pilotlight_provider_waiting", "Calls that wait for leave to be made.", "priority", waiting)
    left = limiter.available if limiter.calls_per_minute else None
    rate = limiter.calls_per_minute_now if limiter.calls_per_minute else None
    yield _one("pilotlight_provider_calls_per_minute", "The rate in use, at most NOVITA_RATE_LIMIT.", rate)
    yield _one("pilotlight_provider_calls_available", "Calls that could be made at once.", left)


def _caches(runtime: Runtime) -> Iterator[Metric]:
    hits = CounterMetricFamily("pilotlight_cache_hits", "Look-ups that found something.", labels=["cache"])
    misses = CounterMetricFamily("pilotlight_cache_misses", "Look-ups that had to load.", labels=["cache"])
    evictions = CounterMetricFamily("pilotlight_cache_evictions", "Values dropped for want of room.", labels=["cache"])
    size = GaugeMetricFamily("pilotlight_cache_size", "Values held in this process.", labels=["cache"])
    for cache in runtime.caches.counts():
        hits.add_metric([cache.name], cache.hits)
        misses.add_metric([cache.name], cache.misses)
        evictions.add_metric([cache.name], cache.evictions)
        size.add_metric([cache.name], cache.size)
    yield from (hits, misses, evictions, size)
    yield _one(
        "pilotlight_redis_away", "Whether the last look-up in Redis failed.", runtime.caches.is_redis_unavailable
    )


def _log(runtime: Runtime) -> Iterator[Metric]:
    yield _one("pilotlight_sequencer_leader", "Whether this process numbers events.", runtime.sequencer.is_leader)
    yield _one("pilotlight_signals_hearing", "Whether wake-ups are heard.", runtime.notifier.is_listening)
    following = runtime.tail.is_following if runtime.follows_events else None
    yield _one("pilotlight_tail_following", "Whether the log is being followed.", following)
    position = runtime.tail.ring.head if following else None
    yield _one("pilotlight_tail_position", "The last position handed to watchers.", position)


def _pools(runtime: Runtime) -> Iterator[Metric]:
    pools = runtime.database.pools()
    yield _by("pilotlight_database_pool_size", "Connections at most.", "pool", {(p.name,): p.size for p in pools})
    yield _by("pilotlight_database_pool_in_use", "Connections in use.", "pool", {(p.name,): p.in_use for p in pools})
    yield _by("pilotlight_database_pool_waiting", "Who waits for one.", "pool", {(p.name,): p.waiting for p in pools})


def _subscriptions(service: "GraphQLService | None") -> Iterator[Metric]:
    connections = operations = subscribers = broadcasts = None
    if service is not None:
        connections, operations = len(service.connections.open), service.connections.operations
        subscribers, broadcasts = service.broadcasts.subscribers, len(service.broadcasts)
    yield _one("pilotlight_sockets_open", "WebSockets and streams.", connections)
    yield _one("pilotlight_socket_operations_open", "Operations open on them.", operations)
    yield _one("pilotlight_subscriptions", "Subscriptions being served.", subscribers)
    yield _one("pilotlight_cohorts", "Executions that serve them.", broadcasts)


def _one(name: str, help: str, value: float | None) -> Metric:
    family = GaugeMetricFamily(name, help)
    if value is not None:
        family.add_metric([], float(value))
    return family


def _by(name: str, help: str, labels: str, values: Mapping[tuple[str, ...], float]) -> Metric:
    family = GaugeMetricFamily(name, help, labels=labels.split(","))
    for each, value in values.items():
        family.add_metric(each, float(value))
    return family


READ_TIMEOUT = timedelta(seconds=5)
# Counting all instances walks an index: a tenth of a second for a million of them.
COUNT_INTERVAL = timedelta(seconds=15)

# Bounded: without a sequencer there may be millions, and the exact number does not matter then.
COUNT_MAX = 10_000
LOG = text("""
    SELECT (SELECT head FROM event_log) AS head,
           (SELECT count(*) FROM (SELECT FROM outbox LIMIT :most) AS bounded) AS waiting,
           coalesce((SELECT extract(epoch FROM clock_timestamp() - occurred_at)::float8
                     FROM outbox ORDER BY seq LIMIT 1), 0) AS oldest
""")
WEBHOOK_FEED = text("""
    SELECT count(*) FILTER (WHERE disabled_at IS NULL) AS enabled, count(disabled_at) AS disabled,
           (SELECT head FROM event_log)
           - greatest(min(after) FILTER (WHERE disabled_at IS NULL), (SELECT position FROM webhook_feed)) AS behind
    FROM project_webhook
""")
OPERATIONS = text("""
    SELECT kind, status, count(*) AS many, extract(epoch FROM now() - min(created_at))::float8 AS oldest,
           count(last_error_code) AS waiting
    FROM operation WHERE status IN ('QUEUED', 'RUNNING') GROUP BY kind, status
""")
INSTANCES = text("""
    SELECT status, count(*) AS many, count(missing_since) AS missing
    FROM instance WHERE status <> 'DELETED' GROUP BY status
""")
DOUBT = text("""
    SELECT count(*) AS many, coalesce(extract(epoch FROM now() - min(created_at))::float8, 0) AS oldest
    FROM attempt WHERE status IN ('ASKING', 'UNKNOWN')
""")
# Idle ends are not counted: they wait for metrics, and nothing is late.
OVERDUE = text("""
    SELECT coalesce(max(extract(epoch FROM clock_timestamp() - due))::float8, 0)
    FROM (
        SELECT coalesce((lifetime_state ->> 'due')::timestamptz, lifetime_due_at) AS due
        FROM instance
        WHERE lifetime_due_at IS NOT NULL AND (lifetime_reason <> 'IDLE' OR lifetime_state ? 'due')
        UNION ALL
        SELECT (lifetime_state ->> 'due')::timestamptz FROM instance WHERE status IN ('STOPPING', 'DELETING')
    ) AS armed
    WHERE due < clock_timestamp()
""")
VOLUMES = text("SELECT status, count(*) AS many FROM volume WHERE status <> 'DELETED' GROUP BY status")
MACHINES = text("SELECT origin, machines FROM unlinked_count")
# The table of jobs is small; machines that leave have a partial index.
RECOVERY = text("""
    SELECT (SELECT count(*) FROM job WHERE kind = 'RECOVER_INSTANCE') AS recovering,
           (SELECT count(*) FROM machine WHERE removing_from IS NOT NULL AND ended_at IS NULL) AS leaving
""")
WAITS = text("""
    SELECT count(*) AS many, coalesce(extract(epoch FROM clock_timestamp() - min(since))::float8, 0) AS oldest
    FROM capacity_wait
""")


# By kind and status: how many, the oldest one's age, and how many wait for the provider.
Operations = dict[tuple[str, str], tuple[int, float, int]]


@dataclass
class DatabaseFigures:
    """What was read from the database; empty when it can't be read, because old figures would look current."""

    is_up: bool = False
    workers: int | None = None
    head: int | None = None
    waiting: int | None = None
    oldest: float | None = None
    operations: Operations = field(default_factory=Operations)
    instances: dict[str, int] = field(default_factory=dict[str, int])
    missing: int | None = None
    overdue: float | None = None
    in_doubt: int | None = None
    oldest_in_doubt: float | None = None
    machines: dict[str, int] = field(default_factory=dict[str, int])
    recovering: int | None = None
    leaving: int | None = None
    volumes: dict[str, int] = field(default_factory=dict[str, int])
    waits: int | None = None
    oldest_wait: float | None = None
    webhooks: dict[str, int] = field(default_factory=dict[str, int])
    webhooks_behind: int | None = None


class MetricsEndpoint:
    """Open on loopback; elsewhere it needs a token of the project `default`, because it shows all projects."""

    def __init__(self, runtime: Runtime, service: "GraphQLService | None" = None) -> None:
        self._runtime = runtime
        self._service = service
        self._instances: dict[str, int] = {}
        self._missing = 0
        self._overdue = 0.0
        self._count_again_at = 0.0
        self._shared = SharedResponse(self._scrape)

    async def answer(self, request: Request) -> Response:
        try:
            is_allowed = self._runtime.settings.is_loopback or await self._is_allowed(request)
        except DATABASE_ERRORS as error:
            log.warning("metrics.database_away", error=type(error).__name__)
            return Response("the database can't be reached at the moment", 503, {"retry-after": "1"})
        if not is_allowed:
            return Response(
                "send a token of the project `default`: Authorization: Bearer pl_...",
                401,
                {"www-authenticate": "Bearer"},
            )
        return await self._shared.get()

    async def _scrape(self) -> Response:
        figures = await self._read()
        own = CollectorRegistry(auto_describe=False)
        own.register(
            _Families([*process_metrics(self._runtime, self._service), *_database_metrics(figures, self._position())])
        )
        return Response(generate_latest(REGISTRY) + generate_latest(own), media_type=CONTENT_TYPE_LATEST)

    async def _is_allowed(self, request: Request) -> bool:
        secret = bearer_secret(request.headers.get("authorization"))
        if secret is None:
            return False
        try:
            caller = await self._runtime.tokens.caller_of(secret, address=address_of(request.scope))
        except TooManyWrongTokens:
            return False
        return caller is not None and await self._runtime.projects.is_server_project(caller.project_id)

    def _position(self) -> int | None:
        return self._runtime.tail.ring.head if self._runtime.tail.is_following else None

    async def _read(self) -> DatabaseFigures:
        try:
            async with asyncio.timeout(READ_TIMEOUT.total_seconds()), self._runtime.database.read() as session:
                jobs = await job_stats(session)
                metrics.set_gauges(jobs)
                log = (await session.execute(LOG, {"most": COUNT_MAX})).one()
                operations = (await session.execute(OPERATIONS)).all()
                doubt = (await session.execute(DOUBT)).one()
                machines = (await session.execute(MACHINES)).all()
                recovery = (await session.execute(RECOVERY)).one()
                volumes = (await session.execute(VOLUMES)).all()
                waits = (await session.execute(WAITS)).one()
                feed = (await session.execute(WEBHOOK_FEED)).one()
                await self._count_instances(session)
        except Exception as error:
            if not is_database_unavailable(error):
                raise
            metrics.clear_gauges()
            return DatabaseFigures()
        return DatabaseFigures(
            is_up=True,
            workers=jobs.workers,
            head=log.head,
            waiting=log.waiting,
            oldest=log.oldest,
            operations={(row.kind, row.status): (row.many, row.oldest, row.waiting) for row in operations},
            instances=self._instances,
            missing=self._missing,
            overdue=self._overdue,
            in_doubt=doubt.many,
            oldest_in_doubt=doubt.oldest,
            machines={row.origin: row.machines for row in machines},
            recovering=recovery.recovering,
            leaving=recovery.leaving,
            volumes={row.status: row.many for row in volumes},
            waits=waits.many,
            oldest_wait=waits.oldest,
            webhooks={"enabled": feed.enabled, "disabled": feed.disabled},
            webhooks_behind=max(0, feed.behind) if feed.enabled else 0,
        )

    async def _count_instances(self, session: AsyncSession) -> None:
        if time.monotonic() >= self._count_again_at:
            rows = (await session.execute(INSTANCES)).all()
            self._instances = {row.status: row.many for row in rows}
            self._missing = sum(row.missing for row in rows)
            self._overdue = (await session.execute(OVERDUE)).scalar_one()
            self._count_again_at = time.monotonic() + COUNT_INTERVAL.total_seconds()


class _Families(Collector):
    """Metrics computed at each scrape."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def _database_metrics(figures: DatabaseFigures, position: int | None) -> Iterator[Metric]:
    behind = None if figures.head is None or position is None else max(0, figures.head - position)
    yield _one("pilotlight_database_up", "Whether the database answered this scrape.", figures.is_up)
    yield _one("pilotlight_workers_alive", "Leases that hold, in all processes.", figures.workers)
    yield _one("pilotlight_event_log_head", "The newest position of the log.", figures.head)
    yield _one("pilotlight_outbox_events", "Events without a position, 10,000 at most.", figures.waiting)
    yield _one("pilotlight_outbox_oldest_seconds", "Age of the oldest of them.", figures.oldest)
    yield _one("pilotlight_tail_behind_events", "Events that this process has not handed out yet.", behind)
    counts = {labels: many for labels, (many, _, _) in figures.operations.items()}
    yield _by("pilotlight_operations_open", "Operations not over.", "kind,status", counts)
    ages = {labels: age for labels, (_, age, _) in figures.operations.items()}
    yield _by("pilotlight_operations_oldest_open_seconds", "Age of the oldest of them.", "kind,status", ages)
    waits = {labels: waiting for labels, (_, _, waiting) in figures.operations.items()}
    yield _by("pilotlight_operations_waiting", "Those whose last provider call failed.", "kind,status", waits)
    instances = {(status,): many for status, many in figures.instances.items()}
    yield _one("pilotlight_attempts_in_doubt", "Create attempts without a clear response.", figures.in_doubt)
    yield _one("pilotlight_attempts_oldest_in_doubt_seconds", "Age of the oldest of them.", figures.oldest_in_doubt)
    machines = {(origin,): many for origin, many in figures.machines.items()}
    yield _by("pilotlight_machines_without_instance", "Machines that no instance has.", "origin", machines)
    yield _one("pilotlight_recoveries_open", "Instances that are being recovered.", figures.recovering)
    yield _one("pilotlight_machines_leaving", "Machines that were replaced and are not gone yet.", figures.leaving)
    volumes = {(status,): many for status, many in figures.volumes.items()}
    yield _by("pilotlight_volumes", "Network volumes that are not deleted.", "status", volumes)
    yield _one("pilotlight_waits", "Operations that wait for capacity.", figures.waits)
    yield _one("pilotlight_wait_oldest_seconds", "Age of the oldest of them.", figures.oldest_wait)
    yield _by("pilotlight_instances", "Instances that are not deleted.", "status", instances)
    yield _one("pilotlight_instances_missing", "Instances that the provider does not show.", figures.missing)
    webhooks = {(state,): many for state, many in figures.webhooks.items()}
    yield _by("pilotlight_project_webhooks", "Webhooks of projects.", "state", webhooks)
    waiting = "Events that were not compared with the webhooks of projects yet."
    yield _one("pilotlight_project_webhooks_behind_events", waiting, figures.webhooks_behind)
    late = "How long the latest end of a lifetime is overdue."
    yield _one("pilotlight_lifetimes_overdue_seconds", late, figures.overdue)
