"""Running failed jobs once more: they leave the history and start afresh under the same id."""

from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.engine import will_change
from server.observe import origin
from server.queue.enqueue import HEAD_START, TOPIC
from server.queue.kinds import Priority

# A failed job whose unique key is in use again is dropped: the living one does its work.
RETRY = """
    WITH failed AS (
        DELETE FROM job_history WHERE id = ANY(ARRAY(
            SELECT id FROM job_history WHERE status = 'FAILED' AND {chosen}
            ORDER BY finished_at
            LIMIT :limit
            FOR UPDATE SKIP LOCKED
        ))
        RETURNING id, kind, args, priority, project_id, instance_id, unique_key, created_at
    )
    INSERT INTO job (id, kind, args, priority, project_id, instance_id, unique_key, created_at, origin, run_at, due_at)
    SELECT failed.*, CAST(:origin AS text), start, start + (CAST(:head_starts AS interval[]))[priority + 1]
    FROM failed, clock_timestamp() AS start
    ON CONFLICT DO NOTHING
    RETURNING id
"""
RETRY_ONE = text(RETRY.format(chosen="id = :job_id"))
RETRY_MANY = text(
    RETRY.format(
        chosen="""
            (CAST(:kind AS text) IS NULL OR kind = :kind)
            AND (CAST(:project_id AS uuid) IS NULL OR project_id = :project_id)
            AND (CAST(:error_code AS text) IS NULL OR error_code = :error_code)
        """
    )
)

_head_starts = [HEAD_START[priority] for priority in Priority]


async def retry_job(session: AsyncSession, job_id: int) -> bool:
    """Run a failed job again, with all its attempts ahead of it. False if there is no failed one of that id."""
    will_change(session, TOPIC)
    values = {"job_id": job_id, "limit": 1, "head_starts": _head_starts, "origin": origin.here()}
    return (await session.execute(RETRY_ONE, values)).first() is not None


async def retry_jobs(
    session: AsyncSession,
    *,
    kind: str | None = None,
    project_id: UUID | None = None,
    error_code: str | None = None,
    limit: int = 1000,
) -> list[int]:
    """Run failed jobs again, the oldest first; return their ids. Call again while it returns `limit` of them."""
    will_change(session, TOPIC)
    rows = await session.execute(
        RETRY_MANY,
        {
            "kind": kind,
            "project_id": project_id,
            "error_code": error_code,
            "limit": limit,
            "head_starts": _head_starts,
            "origin": origin.here(),
        },
    )
    return sorted(rows.scalars())
