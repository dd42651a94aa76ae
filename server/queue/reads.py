"""Looking at jobs: one, a page of them, and how the queue is doing."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.tables.job import JobStatus
from server.queue.kinds import Priority


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as people see it, finished or not."""

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
    """Which jobs; what is None does not matter."""

    kind: str | None = None
    statuses: Sequence[JobStatus] | None = None
    project_id: UUID | None = None
    instance_id: UUID | None = None


COLUMNS = """
    id, kind, status, priority, args, project_id, instance_id, attempts, error_code, error_message, {cancel_requested},
    created_at, run_at, claimed_at, {finished_at}
"""
LIVE = COLUMNS.format(cancel_requested="cancel_requested", finished_at="NULL::timestamptz AS finished_at")
OVER = COLUMNS.format(cancel_requested="false AS cancel_requested", finished_at="finished_at")


async def get_job(session: AsyncSession, job_id: int, *, project_id: UUID | None = None) -> JobView | None:
    """One job, if there is such a one (in that project, if one is given)."""
    page = await _page(session, JobFilter(project_id=project_id), "id = :job_id", {"job_id": job_id, "limit": 1})
    return page[0] if page else None


async def get_jobs(session: AsyncSession, ids: Sequence[int], *, project_id: UUID) -> dict[int, JobView]:
    """Those of a project that there are."""
    values: dict[str, Any] = {"ids": list(ids), "limit": len(ids)}
    found = await _page(session, JobFilter(project_id=project_id), "id = ANY(:ids)", values)
    return {job.id: job for job in found}


async def page_of_jobs(
    session: AsyncSession, which: JobFilter, *, limit: int = 50, before_id: int | None = None
) -> list[JobView]:
    """The newest first; `before_id` is the last id of the page before."""
    if before_id is None:
        return await _page(session, which, "true", {"limit": limit})
    return await _page(session, which, "id < :before_id", {"limit": limit, "before_id": before_id})


async def _page(session: AsyncSession, which: JobFilter, range_: str, values: dict[str, Any]) -> list[JobView]:
    # Only the conditions that are asked for: with `x IS NULL OR ...` for each, no index could be used.
    conditions = [range_]
    if which.kind is not None:
        conditions.append("kind = :kind")
    if which.project_id is not None:
        conditions.append("project_id = :project_id")
    if which.instance_id is not None:
        conditions.append("instance_id = :instance_id")
    if which.statuses is not None:
        conditions.append("status = ANY(:statuses)")
    condition = " AND ".join(conditions)
    query = f"""
        (SELECT {LIVE} FROM job WHERE {condition} ORDER BY id DESC LIMIT :limit)
        UNION ALL
        (SELECT {OVER} FROM job_history WHERE {condition} ORDER BY id DESC LIMIT :limit)
        ORDER BY id DESC
        LIMIT :limit
    """
    values |= {
        "kind": which.kind,
        "project_id": which.project_id,
        "instance_id": which.instance_id,
        "statuses": [str(status) for status in which.statuses or ()],
    }
    used = {name: value for name, value in values.items() if f":{name}" in query}
    return [_view(row) for row in await session.execute(text(query), used)]


def _view(row: Row[Any]) -> JobView:
    values: dict[str, Any] = dict(row._mapping)  # pyright: ignore[reportPrivateUsage] - that is its public name
    values["status"] = JobStatus(row.status)
    values["priority"] = Priority(row.priority)
    return JobView(**values)


@dataclass(frozen=True, slots=True)
class KindStats:
    """How one kind is doing. Rates and times are of the jobs that finished within `WINDOW`."""

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
    """How the queue is doing. `workers` is the number of leases that hold."""

    kinds: tuple[KindStats, ...]
    workers: int


WINDOW = timedelta(minutes=5)

# Counts only what is alive, has failed, or finished lately: each of the three is small or has an index of its own.
STATS = text("""
    WITH live AS (
        SELECT kind,
               count(*) FILTER (WHERE status = 'WAITING' AND run_at <= now()) AS waiting,
               count(*) FILTER (WHERE status = 'WAITING' AND run_at > now()) AS scheduled,
               count(*) FILTER (WHERE status = 'RUNNING') AS running,
               now() - min(run_at) FILTER (WHERE status = 'WAITING' AND run_at <= now()) AS oldest_waiting
        FROM job WHERE CAST(:project_id AS uuid) IS NULL OR project_id = :project_id GROUP BY kind
    ), failed AS (
        SELECT kind, count(*) AS failed, count(*) FILTER (WHERE finished_at > now() - CAST(:span AS interval)) AS lately
        FROM job_history
        WHERE status = 'FAILED' AND (CAST(:project_id AS uuid) IS NULL OR project_id = :project_id)
        GROUP BY kind
    ), finished AS (
        SELECT kind, count(*) AS finished,
               percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY claimed_at - run_at) AS pickup,
               percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY finished_at - claimed_at) AS run_time
        FROM job_history
        WHERE status <> 'FAILED' AND finished_at > now() - CAST(:span AS interval) AND status = 'SUCCEEDED'
          AND (CAST(:project_id AS uuid) IS NULL OR project_id = :project_id)
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


async def job_stats(session: AsyncSession, *, project_id: UUID | None = None) -> JobStats:
    """By kind: how many wait, run and have failed, for how long the oldest has waited, how fast they go.

    Of one project, or of all of them and of the jobs that belong to none.
    """
    minutes = WINDOW / timedelta(minutes=1)
    kinds = tuple(
        KindStats(
            kind=row.kind,
            waiting=row.waiting,
            scheduled=row.scheduled,
            running=row.running,
            failed=row.failed,
            oldest_waiting=row.oldest_waiting,
            finished_per_minute=row.finished / minutes,
            failed_per_minute=row.failed_lately / minutes,
            pickup_p50=row.pickup_p50,
            pickup_p95=row.pickup_p95,
            run_time_p50=row.run_time_p50,
            run_time_p95=row.run_time_p95,
            paused_at=row.paused_at,
        )
        for row in await session.execute(STATS, {"span": WINDOW, "project_id": project_id})
    )
    return JobStats(kinds, (await session.execute(WORKERS)).scalar_one())
