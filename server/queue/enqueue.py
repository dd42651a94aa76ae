"""Putting work into the job table, inside the caller's transaction: the job exists if and only if its rows do."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.engine import will_change
from server.observe import origin
from server.queue.kinds import Priority, Work, to_args
from server.queue.share import FairShare

TOPIC = "job"

# One order for all: `due_at`, which is when a job may run plus this. A LOW job that has waited for a minute goes
# before a HIGH one that has just come, so nothing waits for ever behind what never ends.
HEAD_START = {
    Priority.HIGH: timedelta(0),
    Priority.NORMAL: timedelta(seconds=5),
    Priority.LOW: timedelta(seconds=60),
}

# clock_timestamp(), not now(): a transaction may be minutes old when it gets here, and its job waits from here on.
ENQUEUE = text("""
    INSERT INTO job (kind, args, priority, project_id, instance_id, unique_key, origin, run_at, due_at)
    SELECT :kind, CAST(:args AS jsonb), :priority, CAST(:project_id AS uuid), CAST(:instance_id AS uuid),
           CAST(:unique_key AS text), CAST(:origin AS text), start + CAST(:after AS interval),
           start + CAST(:after AS interval) + CAST(:behind AS interval)
    FROM clock_timestamp() AS start
    ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL DO NOTHING
    RETURNING id
""")

ENQUEUE_MANY = text("""
    INSERT INTO job (kind, args, priority, project_id, origin, run_at, due_at, instance_id)
    SELECT new.kind, CAST(new.args AS jsonb), new.priority, CAST(:project_id AS uuid), CAST(:origin AS text),
           start + CAST(:after AS interval),
           start + CAST(:after AS interval) + make_interval(secs => new.behind), new.instance_id
    FROM clock_timestamp() AS start,
         unnest(CAST(:kinds AS text[]), CAST(:args AS text[]), CAST(:priorities AS smallint[]),
                CAST(:behind AS float8[]), CAST(:instance_ids AS uuid[])) WITH ORDINALITY
         AS new (kind, args, priority, behind, instance_id, place)
    ORDER BY new.place
    RETURNING id
""")

EXISTING = text("SELECT id FROM job WHERE unique_key = :unique_key")

_share = FairShare()


async def enqueue(
    session: AsyncSession,
    work: Work,
    *,
    project_id: UUID | None = None,
    instance_id: UUID | None = None,
    after: timedelta = timedelta(0),
    unique_key: str | None = None,
) -> int:
    """Add a job and return its id, or the id of the unfinished one that already has this `unique_key`.

    Mind that the existing one may be running and past the point where it would notice what you have just changed.
    """
    values = {
        **columns_of(work, project_id=project_id),
        "project_id": project_id,
        "instance_id": instance_id or _instance_of(work),
        "unique_key": unique_key,
        "origin": origin.here(),
        "after": after,
    }
    will_change(session, TOPIC)
    while True:
        added = (await session.execute(ENQUEUE, values)).scalar_one_or_none()
        if added is not None:
            return added
        existing = (await session.execute(EXISTING, {"unique_key": unique_key})).scalar_one_or_none()
        if existing is not None:
            return existing
        # It was finished between the two statements, so there is room for ours now.


async def enqueue_many(
    session: AsyncSession, works: Sequence[Work], *, project_id: UUID | None = None, after: timedelta = timedelta(0)
) -> list[int]:
    """Add many jobs in one statement; their ids come in the same order."""
    will_change(session, TOPIC)
    rows = await session.execute(
        ENQUEUE_MANY,
        {
            "kinds": [work.kind for work in works],
            "args": [to_args(work) for work in works],
            "priorities": [int(work.priority) for work in works],
            "behind": [_behind(work, project_id).total_seconds() for work in works],
            "instance_ids": [_instance_of(work) for work in works],
            "project_id": project_id,
            "origin": origin.here(),
            "after": after,
        },
    )
    return list(rows.scalars())


def columns_of(work: Work, *, project_id: UUID | None) -> dict[str, Any]:
    """What a job's row says of its work; `behind` is how far behind its time it stands in line."""
    return {
        "kind": work.kind,
        "args": to_args(work),
        "priority": int(work.priority),
        "behind": _behind(work, project_id),
    }


def _behind(work: Work, project_id: UUID | None) -> timedelta:
    head_start = HEAD_START[work.priority]
    return head_start if project_id is None else head_start + _share.debt(project_id)


def _instance_of(work: Work) -> UUID | None:
    return getattr(work, "instance_id", None)
