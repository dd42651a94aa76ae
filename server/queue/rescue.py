"""Taking back the jobs of workers that are gone, and those that a worker does not know it holds."""

from collections.abc import Container
from uuid import UUID

from server.db.raw import RawPool

# All in one commit: a worker's lease and its claims end together. The jobs are found first and locked by id AND claim:
# a row that changed hands in between would otherwise be judged, in its new shape, by our older view of the workers.
# SKIP LOCKED: its holder is writing under that claim right now; the next round will see. A job without a worker row
# was claimed in the moment in which its worker was being removed.
RESCUE = """
    WITH dead AS (
        DELETE FROM job_worker WHERE id = ANY(ARRAY(
            SELECT id FROM job_worker WHERE lease_until <= clock_timestamp() FOR UPDATE SKIP LOCKED))
        RETURNING id
    ), orphan AS MATERIALIZED (
        SELECT id, claim FROM job
        WHERE status = 'RUNNING'
          AND (worker_id IN (SELECT id FROM dead) OR worker_id NOT IN (SELECT id FROM job_worker))
    ), locked AS MATERIALIZED (
        SELECT job.id FROM job JOIN orphan ON job.id = orphan.id AND job.claim = orphan.claim
        FOR NO KEY UPDATE OF job SKIP LOCKED
    )
    UPDATE job SET status = 'WAITING', claim = NULL, worker_id = NULL, claimed_at = NULL,
                   losses = least(losses + 1, 32767), due_at = greatest(run_at, now())
    WHERE id = ANY(ARRAY(SELECT id FROM locked))
    RETURNING id
"""

SOMEBODY_DIED = "SELECT EXISTS (SELECT FROM job_worker WHERE lease_until <= clock_timestamp())"

HELD = "SELECT DISTINCT claim FROM job WHERE status = 'RUNNING' AND worker_id = $1"

FORGOTTEN = """
    UPDATE job SET status = 'WAITING', claim = NULL, worker_id = NULL, claimed_at = NULL,
                   due_at = greatest(run_at, now())
    WHERE status = 'RUNNING' AND worker_id = $1 AND claim = ANY($2::bigint[])
    RETURNING id
"""


async def somebody_died(pool: RawPool) -> bool:
    """Whether a lease is over: one look at a tiny table, cheap enough for every second."""
    return bool(await pool.fetchval(SOMEBODY_DIED))


async def rescue(pool: RawPool) -> list[int]:
    """End every lease that is over; return the ids of the jobs that can be claimed again."""
    return [row["id"] for row in await pool.fetch(RESCUE)]


async def give_back_forgotten(pool: RawPool, worker_id: UUID, known_claims: Container[int]) -> list[int]:
    """Free the jobs in this worker's name whose claim's answer was lost on the way: committed, but nobody knows of it.

    `known_claims` holds every claim from before it is sent until it is given up, and is looked at only after the rows
    were read: a claim that is in the table and not in there by then was lost. The other way round, one that was sent
    between the two would look like it.
    """
    held = [row["claim"] for row in await pool.fetch(HELD, worker_id)]
    forgotten = [claim for claim in held if claim not in known_claims]
    if not forgotten:
        return []
    return [row["id"] for row in await pool.fetch(FORGOTTEN, worker_id, forgotten)]
