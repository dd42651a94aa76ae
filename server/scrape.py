"""/metrics for Prometheus: what this process counted, what it has, and what only the database knows."""

import asyncio
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.requests import Request
from starlette.responses import Response

from schema.live.hub import Hub
from server.db.trouble import is_database_away
from server.gauges import of_process
from server.queue import metrics
from server.queue.reads import job_stats
from server.runtime import Runtime

WITHIN = timedelta(seconds=5)
# Counting all instances walks an index; a million of them take a tenth of a second, which nobody needs every second.
COUNTED_EVERY = timedelta(seconds=15)

# Bounded: with nobody to move them there may be millions, and it does not matter then how many.
MOST_COUNTED = 10_000
LOG = text("""
    SELECT (SELECT head FROM event_log) AS head,
           (SELECT count(*) FROM (SELECT FROM outbox LIMIT :most) AS bounded) AS waiting,
           coalesce((SELECT extract(epoch FROM clock_timestamp() - occurred_at)::float8
                     FROM outbox ORDER BY seq LIMIT 1), 0) AS oldest
""")
OPERATIONS = text("""
    SELECT kind, status, count(*) AS many, extract(epoch FROM now() - min(created_at))::float8 AS oldest
    FROM operation WHERE status IN ('QUEUED', 'RUNNING') GROUP BY kind, status
""")
INSTANCES = text("SELECT status, count(*) AS many FROM instance WHERE status <> 'DELETED' GROUP BY status")


Operations = dict[tuple[str, str], tuple[int, float]]  # by kind and status: how many, and the oldest one's age


@dataclass
class Known:
    """What was read from the database; nothing when it can't be read: old figures would look like standing still."""

    is_up: bool = False
    workers: int | None = None
    head: int | None = None
    waiting: int | None = None
    oldest: float | None = None
    operations: Operations = field(default_factory=Operations)
    instances: dict[str, int] = field(default_factory=dict[str, int])


class Scrape:
    """Open on loopback; elsewhere it takes a token of the server's own project: the figures are of all projects."""

    def __init__(self, runtime: Runtime, hub: Hub | None = None) -> None:
        self._runtime = runtime
        self._hub = hub
        self._instances: dict[str, int] = {}
        self._count_again_at = 0.0

    async def answer(self, request: Request) -> Response:
        if not self._runtime.settings.is_loopback and not await self._is_known(request):
            return Response(
                "send a token of the project `default`: Authorization: Bearer pl_...",
                401,
                {"www-authenticate": "Bearer"},
            )
        known = await self._read()
        own = CollectorRegistry(auto_describe=False)
        own.register(_Families([*of_process(self._runtime, self._hub), *_of_database(known, self._position())]))
        return Response(generate_latest(REGISTRY) + generate_latest(own), media_type=CONTENT_TYPE_LATEST)

    async def _is_known(self, request: Request) -> bool:
        kind, _, secret = request.headers.get("authorization", "").partition(" ")
        caller = await self._runtime.tokens.caller_of(secret.strip()) if kind.lower() == "bearer" else None
        return caller is not None and await self._runtime.projects.is_servers_own(caller.project_id)

    def _position(self) -> int | None:
        return self._runtime.tail.ring.head if self._runtime.tail.is_following else None

    async def _read(self) -> Known:
        try:
            async with asyncio.timeout(WITHIN.total_seconds()), self._runtime.database.read() as session:
                jobs = await job_stats(session)
                metrics.show(jobs)
                log = (await session.execute(LOG, {"most": MOST_COUNTED})).one()
                operations = (await session.execute(OPERATIONS)).all()
                await self._count_instances(session)
        except Exception as error:
            if not is_database_away(error):
                raise
            metrics.show_nothing()
            return Known()
        return Known(
            is_up=True,
            workers=jobs.workers,
            head=log.head,
            waiting=log.waiting,
            oldest=log.oldest,
            operations={(row.kind, row.status): (row.many, row.oldest) for row in operations},
            instances=self._instances,
        )

    async def _count_instances(self, session: AsyncSession) -> None:
        if time.monotonic() >= self._count_again_at:
            self._instances = {row.status: row.many for row in await session.execute(INSTANCES)}
            self._count_again_at = time.monotonic() + COUNTED_EVERY.total_seconds()


class _Families(Collector):
    """Metrics that are made anew for every scrape."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def _of_database(known: Known, position: int | None) -> Iterator[Metric]:
    behind = None if known.head is None or position is None else max(0, known.head - position)
    for name, help, value in (
        ("pilotlight_database_up", "Whether the database answered this scrape.", known.is_up),
        ("pilotlight_workers_alive", "Leases that hold, in all processes.", known.workers),
        ("pilotlight_event_log_head", "The newest position of the log.", known.head),
        ("pilotlight_outbox_events", "Events without a position, 10,000 at most.", known.waiting),
        ("pilotlight_outbox_oldest_seconds", "Age of the oldest of them.", known.oldest),
        ("pilotlight_tail_behind_events", "Events that this process has not handed out yet.", behind),
    ):
        family = GaugeMetricFamily(name, help)
        if value is not None:
            family.add_metric([], float(value))
        yield family
    open_ = GaugeMetricFamily("pilotlight_operations_open", "Operations not over.", labels=["kind", "status"])
    oldest = GaugeMetricFamily(
        "pilotlight_operations_oldest_open_seconds", "Age of the oldest of them.", labels=["kind", "status"]
    )
    for labels, (many, age) in known.operations.items():
        open_.add_metric(labels, many)
        oldest.add_metric(labels, age)
    instances = GaugeMetricFamily("pilotlight_instances", "Instances that are not deleted.", labels=["status"])
    for status, many in known.instances.items():
        instances.add_metric([status], many)
    yield from (open_, oldest, instances)
