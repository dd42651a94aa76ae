"""Finds waits that nothing would wake or end, because a job of theirs is gone, and makes it again."""

import structlog
from sqlalchemy import text

from server.db.database import Database
from server.market import waits
from server.market.wake import lock, run_job

log = structlog.get_logger(__name__)

MOST = 1000  # in one run
# Asleep without the job that ends the wait, or awake without the job that carries it out.
WITHOUT_JOB = text("""
    SELECT operation_id, project_id, instance_id, kind, args::text, job_id IS NULL AS is_asleep,
           offer_region AS region, offer_product_id AS product_id, offer_mode AS mode,
           least(until, blocked_until) AS ends_at
    FROM capacity_wait AS waiting
    WHERE NOT EXISTS (
        SELECT FROM job
        WHERE job.id = waiting.job_id OR waiting.job_id IS NULL AND unique_key = 'wait ' || waiting.operation_id)
    ORDER BY since LIMIT :most
""")


async def repair_waits(database: Database) -> int:
    """How many waits had no job; each has it again, and the offer that it was woken for."""
    async with database.write() as session:
        await lock(session)
        missing = (await session.execute(WITHOUT_JOB, {"most": MOST})).all()
        for row in missing:
            if row.is_asleep:
                await waits.keep_expiry(session, row.operation_id, row.project_id, row.instance_id, at=row.ends_at)
            else:
                await run_job(session, row, {"region": row.region, "product_id": row.product_id, "mode": row.mode})
    if missing:
        log.warning("waits.jobs_missing", count=len(missing))
    return len(missing)
