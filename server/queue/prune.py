"""Forgetting finished jobs, a few at a time so that nobody waits for it."""

from datetime import timedelta

from server.db.engine import Database

PRUNE = """
    DELETE FROM job_history WHERE id = ANY(ARRAY(
        SELECT id FROM job_history
        WHERE {which} AND finished_at < now() - $1::interval
        ORDER BY finished_at
        LIMIT $2
        FOR UPDATE SKIP LOCKED
    ))
"""
PRUNE_OVER = PRUNE.format(which="status <> 'FAILED'")
PRUNE_FAILED = PRUNE.format(which="status = 'FAILED'")
BATCH = 1000


async def prune_jobs(
    database: Database,
    *,
    retention: timedelta = timedelta(hours=24),
    failed_retention: timedelta = timedelta(days=7),
    batch: int = BATCH,
    most: int = 1_000_000,
) -> int:
    """Delete what is kept no longer, one short transaction after the other; return how many rows that were.

    Not more than `most` in one go: whoever calls this in a job should come to an end within its time.
    """
    pool = database.raw
    pruned = 0
    for statement, age in ((PRUNE_OVER, retention), (PRUNE_FAILED, failed_retention)):
        while pruned < most:
            deleted = int((await pool.execute(statement, age, batch)).rsplit(" ", 1)[1])
            pruned += deleted
            if deleted < batch:
                break
    return pruned
