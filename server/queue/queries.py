"""Reads jobs, pages of jobs and the statistics of the queue."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from server.conversion import convert
from server.db.tables.job import JobStatus
from server.queue.kinds import Priority


@dataclass(frozen=True, slots=True)
class JobView:
    """A job, finished or not, as the API shows it."""

    id: int
    kind: str
    status: JobStatus
    priority: Priority
    args: dict[str, Any]
    project_id: UUID | None
    instance_id: UUID | None
    attempts: int
    error_code: str | None
    error_message: str | None
    cancel_requested: bool
    created_at: datetime
    run_at: datetime
    claimed_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Conditions on jobs; None means no condition."""

    kind: str | None = None
    statuses: Sequence[JobStatus] | None = None
    project_id: UUID | None = None
    with_system_jobs: bool = False  # those of no project, besides the project's
    instance_id: UUID | None = None
    owner_id: UUID | None = None  # a token that sees only its own instances


COLUMNS = """
    id, kind, status, priority, args, project_id, instance_id, attempts, error_code, error_message, {cancel_requested},
    created_at, run_at, claimed_at, {finished_at}
"""
UNFINISHED_COLUMNS = COLUMNS.format(cancel_requested="cancel_requested", finished_at="NULL::timestamptz AS finished_at")
FINISHED_COLUMNS = COLUMNS.format(cancel_requested="false AS cancel_requested", finished_at="finished_at")


async def get_job(
    session: AsyncSession,
    job_id: int,
    *,
    project_id: UUID | None = None,
    with_system_jobs: bool = False,
    owner_id: UUID | None = None,
) -> JobView | None:
    """One job, or None; with `project_id`, only if it belongs to that project, or to none `with_system_jobs`."""
    which = JobFilter(project_id=project_id, with_system_jobs=with_system_jobs, owner_id=owner_id)
    page = await _page(session, which, "id = :job_id", {"job_id": job_id, "limit": 1})
    return page[0] if page else None


async def get_jobs(
    session: AsyncSession, ids: Sequence[int], *, project_id: UUID, owner_id: UUID | None = None
) -> dict[int, JobView]:
    """The jobs with these ids that exist in the project, by id."""
    values: dict[str, Any] = {"ids": list(ids), "limit": len(ids)}
    page = await _page(session, JobFilter(project_id=project_id, owner_id=owner_id), "id = ANY(:ids)", values)
    return {job.id: job for job in page}


async def page_of_jobs(
    session: AsyncSession, which: JobFilter, *, limit: int = 50, before_id: int | None = None
) -> list[JobView]:
    """The newest first; `before_id` is the last id of the previous page."""
    if before_id is None:
        return await _page(session, which, "true", {"limit": limit})
    return await _page(session, which, "id < :before_id", {"limit": limit, "before_id": before_id})


async def _page(session: AsyncSession, which: JobFilter, range_: str, values: dict[str, Any]) -> list[JobView]:
    # Only the given conditions: with `x IS NULL OR ...` for each, no index could be used.
    conditions = [range_]
    if which.kind is not None:
        conditions.append("kind = :kind")
    if which.project_id is not None:
        own = "project_id = :project_id"
        conditions.append(f"({own} OR project_id IS NULL)" if which.with_system_jobs else own)
    if which.instance_id is not None:
        conditions.append("instance_id = :instance_id")
    if which.owner_id is not None:
        conditions.append("instance_id IN (SELECT id FROM instance WHERE owner_token_id = :owner_id)")
    if which.statuses is not None:
        conditions.append("status = ANY(:statuses)")
    condition = " AND ".join(conditions)
    query = f"""
        (SELECT {UNFINISHED_COLUMNS} FROM job WHERE {condition} ORDER BY id DESC LIMIT :limit)
        UNION ALL
        (SELECT {FINISHED_COLUMNS} FROM job_history WHERE {condition} ORDER BY id DESC LIMIT :limit)
        ORDER BY id DESC
        LIMIT :limit
    """
    values |= {
        "kind": which.kind,
        "project_id": which.project_id,
        "instance_id": which.instance_id,
        "owner_id": which.owner_id,
        "statuses": [str(status) for status in which.statuses or ()],
    }
    used = {name: value for name, value in values.items() if f":{name}" in query}
    return [
        convert(JobView, row, status=JobStatus(row.status), priority=Priority(row.priority))
        for row in await session.execute(text(query), used)
    ]


@dataclass(frozen=True, slots=True)
class KindStats:
    """Statistics of one kind. Rates and times are of the jobs that finished within `STATS_WINDOW`."""

    kind: str
    waiting: int
    scheduled: int
    running: int
    failed: int
    oldest_waiting: timedelta | None
    finished_per_minute: float
    failed_per_minute: float
    pickup_p50: timedelta | None
    pickup_p95: timedelta | None
    run_time_p50: timedelta | None
    run_time_p95: timedelta | None
    paused_at: datetime | None


@dataclass(frozen=True, slots=True)
class JobStats:
    """Statistics of the queue. `workers` is the number of valid leases."""

    kinds: tuple[KindStats, ...]
    workers: int


STATS_WINDOW = timedelta(minutes=5)

OF_CALLER = """
    (CAST(:project_id AS uuid) IS NULL OR project_id = :project_id)
    AND (CAST(:owner_id AS uuid) IS NULL
         OR instance_id IN (SELECT id FROM instance WHERE owner_token_id = CAST(:owner_id AS uuid)))
"""
# Counts only unfinished, failed and recently finished jobs: each of the three is small or has its own index.
STATS = text(f"""
    WITH live AS (
        SELECT kind,
               count(*) FILTER (WHERE status = 'WAITING' AND run_at <= now()) AS waiting,
               count(*) FILTER (WHERE status = 'WAITING' AND run_at > now()) AS scheduled,
               count(*) FILTER (WHERE status = 'RUNNING') AS running,
               now() - min(run_at) FILTER (WHERE status = 'WAITING' AND run_at <= now()) AS oldest_waiting
        FROM job WHERE {OF_CALLER} GROUP BY kind
    ), failed AS (
        SELECT kind, count(*) AS failed, count(*) FILTER (WHERE finished_at > now() - CAST(:span AS interval)) AS lately
        FROM job_history
        WHERE status = 'FAILED' AND {OF_CALLER}
        GROUP BY kind
    ), finished AS (
        SELECT kind, count(*) AS finished,
               percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY claimed_at - run_at) AS pickup,
               percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY finished_at - claimed_at) AS run_time
        FROM job_history
        WHERE status <> 'FAILED' AND finished_at > now() - CAST(:span AS interval) AND status = 'SUCCEEDED'
          AND {OF_CALLER}
        GROUP BY kind
    )
    SELECT kind, coalesce(waiting, 0) AS waiting, coalesce(scheduled, 0) AS scheduled, coalesce(running, 0) AS running,
           coalesce(failed, 0) AS failed, oldest_waiting, coalesce(finished, 0) AS finished,
           coalesce(lately, 0) AS failed_lately,
           pickup[1] AS pickup_p50, pickup[2] AS pickup_p95, run_time[1] AS run_time_p50, run_time[2] AS run_time_p95,
           paused_at
    FROM live FULL JOIN failed USING (kind) FULL JOIN finished USING (kind) FULL JOIN job_pause USING (kind)
    ORDER BY kind
""")

WORKERS = text("SELECT count(*) FROM job_worker WHERE lease_until > now()")


async def job_stats(session: AsyncSession, *, project_id: UUID | None = None, owner_id: UUID | None = None) -> JobStats:
    """By kind: jobs waiting, running and failed, the age of the oldest waiting job, rates and times.

    Of one project, or of all projects and of the jobs without a project.
    """
    minutes = STATS_WINDOW / timedelta(minutes=1)
    kinds = tuple(
        convert(
            KindStats,
            row,
            finished_per_minute=row.finished / minutes,
            failed_per_minute=row.failed_lately / minutes,
        )
        for row in await session.execute(STATS, {"span": STATS_WINDOW, "project_id": project_id, "owner_id": owner_id})
    )
    return JobStats(kinds, (await session.execute(WORKERS)).scalar_one())


ALIVE_WORKERS = text("SELECT count(*) FROM job_worker WHERE lease_until > clock_timestamp()")


async def count_workers(session: AsyncSession) -> int:
    """The number of workers with a valid lease."""
    return (await session.execute(ALIVE_WORKERS)).scalar_one()
