"""Adds jobs inside the caller's transaction: a job exists if and only if the caller's rows do."""

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from server.batching import TokenBucket
from server.db.database import database_of, notify_after_commit
from server.observe import job_origin
from server.queue.kinds import LINED, Priority, Work, to_args

TOPIC = "job"
# Jobs of all kinds run in the order of `due_at`: the time from which a job may run, plus this delay. A LOW job that has
# waited for a minute runs before a new HIGH job, so a steady load of HIGH jobs starves no other.
PRIORITY_DELAY = {
    Priority.HIGH: timedelta(0),
    Priority.NORMAL: timedelta(seconds=5),
    Priority.LOW: timedelta(seconds=60),
}
JOBS_PER_SECOND = 20.0
BURST_MAX = 100.0
DELAY_MAX = timedelta(minutes=10)
PROJECTS_MAX = 10_000
# clock_timestamp(), not now(): a transaction may be minutes old at this point, and the job waits from this point on.
ENQUEUE = text("""
    INSERT INTO job (kind, args, priority, project_id, instance_id, unique_key, origin, run_at, due_at, pause)
    SELECT :kind, CAST(:args AS jsonb), :priority, CAST(:project_id AS uuid), CAST(:instance_id AS uuid),
           CAST(:unique_key AS text), CAST(:origin AS text), start + CAST(:after AS interval),
           start + CAST(:after AS interval) + CAST(:due_delay AS interval), CAST(:after AS interval)
    FROM clock_timestamp() AS start
    ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL DO NOTHING
    RETURNING id
""")
ENQUEUE_MANY = text("""
    INSERT INTO job (kind, args, priority, project_id, origin, run_at, due_at, instance_id, unique_key, pause)
    SELECT new.kind, CAST(new.args AS jsonb), new.priority, CAST(:project_id AS uuid), CAST(:origin AS text),
           start + CAST(:after AS interval),
           start + CAST(:after AS interval) + make_interval(secs => new.due_delay), new.instance_id,
           new.unique_key, CAST(:after AS interval)
    FROM clock_timestamp() AS start,
         unnest(CAST(:kinds AS text[]), CAST(:args AS text[]), CAST(:priorities AS smallint[]),
                CAST(:due_delays AS float8[]), CAST(:instance_ids AS uuid[]), CAST(:unique_keys AS text[]))
         WITH ORDINALITY AS new (kind, args, priority, due_delay, instance_id, unique_key, place)
    ORDER BY new.place
    RETURNING id
""")
EXISTING = text("SELECT id FROM job WHERE unique_key = :unique_key")


class FairShare:
    """A token bucket per project; its debt delays the project's next jobs in the order of `due_at`.

    It only changes the order: an idle system runs every job at once. In memory, one per process: a row per project
    would be locked in every caller's transaction, and those callers would commit one by one.
    """

    def __init__(self) -> None:
        self._buckets: dict[UUID, TokenBucket] = {}

    def delay(self, project_id: UUID) -> timedelta:
        """The delay of this project's next job; the job is charged."""
        now = time.monotonic()
        if len(self._buckets) >= PROJECTS_MAX:
            self._buckets = {project: bucket for project, bucket in self._buckets.items() if bucket.tokens(now) < 0}
        bucket = self._buckets.get(project_id)
        if bucket is None:
            bucket = self._buckets[project_id] = TokenBucket(JOBS_PER_SECOND, BURST_MAX, now)
        debt = max(0.0, -bucket.tokens(now))
        bucket.charge(1, now, debt_max=DELAY_MAX.total_seconds() * JOBS_PER_SECOND)
        return timedelta(seconds=debt / JOBS_PER_SECOND)


async def enqueue(
    session: AsyncSession,
    work: Work,
    *,
    project_id: UUID | None = None,
    instance_id: UUID | None = None,
    after: timedelta = timedelta(0),
    unique_key: str | None = None,
) -> int:
    """Add a job and return its id, or the id of the unfinished job that already has this `unique_key`.

    The existing job may be running and past the point where it would see the caller's changes.
    """
    values = {
        **columns_of(work, project_id, database_of(session).shared(FairShare), instance_id=instance_id),
        "unique_key": unique_key,
        "after": after,
    }
    notify_after_commit(session, TOPIC)
    while True:
        added = (await session.execute(ENQUEUE, values)).scalar_one_or_none()
        if added is not None:
            return added
        existing = (await session.execute(EXISTING, {"unique_key": unique_key})).scalar_one_or_none()
        if existing is not None:
            return existing


async def enqueue_many(
    session: AsyncSession,
    works: Sequence[Work],
    *,
    project_id: UUID | None = None,
    after: timedelta = timedelta(0),
    unique_keys: Sequence[str] | None = None,
) -> list[int]:
    """Add many jobs in one statement; return their ids in the same order. No unfinished job may have a unique key."""
    notify_after_commit(session, TOPIC)
    share = database_of(session).shared(FairShare)
    rows = await session.execute(
        ENQUEUE_MANY,
        {
            "kinds": [work.kind for work in works],
            "args": [to_args(work) for work in works],
            "priorities": [int(work.priority) for work in works],
            "due_delays": [_due_delay(work, project_id, share).total_seconds() for work in works],
            "instance_ids": [_instance_of(work) for work in works],
            "unique_keys": [None] * len(works) if unique_keys is None else list(unique_keys),
            "project_id": project_id,
            "origin": job_origin.current_origin(),
            "after": after,
        },
    )
    return list(rows.scalars())


def columns_of(
    work: Work,
    project_id: UUID | None,
    share: FairShare,
    *,
    instance_id: UUID | None = None,
    operation_id: UUID | None = None,
) -> dict[str, Any]:
    """The column values of a new job; `due_at` is `due_delay` after `run_at`.

    `operation_id` becomes part of `origin`, for callers whose log lines are not bound to the operation yet.
    """
    return {
        "kind": work.kind,
        "args": to_args(work),
        "priority": int(work.priority),
        "due_delay": _due_delay(work, project_id, share),
        "project_id": project_id,
        "instance_id": instance_id or _instance_of(work),
        "origin": job_origin.current_origin(operation_id=operation_id),
    }


def _due_delay(work: Work, project_id: UUID | None, share: FairShare) -> timedelta:
    delay = PRIORITY_DELAY[work.priority]
    if project_id is None or work.job_class in LINED:
        return delay  # in a line, projects take turns anyway
    return delay + share.delay(project_id)


def _instance_of(work: Work) -> UUID | None:
    return getattr(work, "instance_id", None)
