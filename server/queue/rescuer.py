"""Makes jobs claimable again: of dead workers, of claims whose response was lost, and after a jump of the clock."""

import time
from collections.abc import Container
from uuid import UUID

from server.db.pool import RawPool

# One commit: a worker's lease and its claims end together. Jobs are found first and then locked by id AND claim: a job
# claimed by another worker in between would otherwise be compared with our older snapshot of the workers.
# SKIP LOCKED: the holder is writing under that claim now; the next round checks again. A job without a worker row was
# claimed while its worker's row was being deleted.
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

ANY_LEASE_EXPIRED = "EXISTS (SELECT FROM job_worker WHERE lease_until <= clock_timestamp())"

HELD_CLAIMS = "SELECT DISTINCT claim FROM job WHERE status = 'RUNNING' AND worker_id = $1"

RELEASE_CLAIMS = """
    UPDATE job SET status = 'WAITING', claim = NULL, worker_id = NULL, claimed_at = NULL,
                   due_at = greatest(run_at, now())
    WHERE status = 'RUNNING' AND worker_id = $1 AND claim = ANY($2::bigint[])
    RETURNING id
"""

# A job can't be scheduled for later than its pause from now, nor a lease last longer than its length from now, unless
# the server's clock was ahead when it was written. Less than the margin is drift.
SHORTEN_PAUSES = """
    WITH too_late AS MATERIALIZED (
        SELECT id FROM job WHERE status = 'WAITING' AND run_at > clock_timestamp() + pause + interval '5 seconds'
        LIMIT 10000
        FOR NO KEY UPDATE SKIP LOCKED
    )
    UPDATE job SET run_at = clock_timestamp() + pause, due_at = clock_timestamp() + pause + (due_at - run_at)
    WHERE id = ANY(ARRAY(SELECT id FROM too_late))
    RETURNING id
"""
SHORTEN_LEASES = """
    UPDATE job_worker SET lease_until = clock_timestamp() + lease
    WHERE lease_until > clock_timestamp() + lease + interval '5 seconds'
"""


async def shorten_waits(pool: RawPool) -> list[int]:
    """After a jump of the server's clock: nothing waits longer than it was meant to; return the jobs that did."""
    await pool.execute(SHORTEN_LEASES)
    return [row["id"] for row in await pool.fetch(SHORTEN_PAUSES)]


class LeaseWatch:
    """Looks for expired leases once for all workers of a process."""

    def __init__(self) -> None:
        self._looked_at = 0.0

    async def look_for_expired(self, pool: RawPool, *, interval: float) -> bool:
        """Whether a lease has expired: a query on a tiny table, cheap enough for every second.

        False without a query if another worker of this process looked less than half of `interval` ago: it rescues.
        """
        now = time.monotonic()
        if now - self._looked_at < interval / 2:
            return False
        self._looked_at = now
        return bool(await pool.fetchval(f"SELECT {ANY_LEASE_EXPIRED}"))


async def rescue(pool: RawPool) -> list[int]:
    """Delete expired leases; return the ids of the jobs that can be claimed again."""
    return [row["id"] for row in await pool.fetch(RESCUE)]


async def release_unknown_claims(pool: RawPool, worker_id: UUID, known_claims: Container[int]) -> list[int]:
    """Release this worker's jobs whose claim was committed but whose response was lost.

    `known_claims` has every claim from before it is sent until it is released, and is read after the rows: a claim
    that is in the table but not known by then is lost. In the other order, a claim sent between the two reads would
    look lost.
    """
    claims = [row["claim"] for row in await pool.fetch(HELD_CLAIMS, worker_id)]
    unknown = [claim for claim in claims if claim not in known_claims]
    if not unknown:
        return []
    return [row["id"] for row in await pool.fetch(RELEASE_CLAIMS, worker_id, unknown)]
