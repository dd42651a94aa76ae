"""Cancelling: asked for by anybody, carried out by a worker, so that what the job was for ends with it."""

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.engine import will_change
from server.db.raw import RawPool
from server.queue.turn import Taken, taken

CANCEL_TOPIC = "job-cancel"

REQUEST = text("UPDATE job SET cancel_requested = true WHERE id = :job_id RETURNING id")

HERE = "SELECT id, claim FROM job WHERE cancel_requested AND worker_id = $1 AND status = 'RUNNING'"

CLAIM = """
    UPDATE job SET status = 'RUNNING', claim = $2, worker_id = $1, claimed_at = clock_timestamp()
    WHERE id = ANY(ARRAY(
        SELECT id FROM job
        WHERE cancel_requested AND status = 'WAITING' AND kind = ANY($3::text[])
        ORDER BY id
        LIMIT 100
        FOR NO KEY UPDATE SKIP LOCKED
    ))
    RETURNING id, kind, args::text, attempts, losses, cancel_requested, project_id, instance_id, due_at,
              error_code, error_message, extract(epoch FROM claimed_at - run_at)::float8, origin
"""


async def cancel_job(session: AsyncSession, job_id: int) -> bool:
    """Ask for a job to be cancelled, waiting or running; False if there is no unfinished one of that id.

    A worker ends it: a running handler is interrupted, and `failed` is called with the code CANCELLED in the same
    transaction. A running handler that gets done first has won.
    """
    will_change(session, CANCEL_TOPIC)
    return (await session.execute(REQUEST, {"job_id": job_id})).first() is not None


async def cancelled_here(pool: RawPool, worker_id: UUID) -> set[tuple[int, int]]:
    """Those of this worker's jobs that are to be cancelled, by id and claim."""
    return {(row["id"], row["claim"]) for row in await pool.fetch(HERE, worker_id)}


async def claim_cancelled(pool: RawPool, worker_id: UUID, claim: int, kinds: Sequence[str]) -> list[Taken]:
    """Take waiting jobs that are to be cancelled, whether or not they are due or their kind is paused."""
    return [taken(row, claim) for row in await pool.fetch(CLAIM, worker_id, claim, kinds)]
