"""Deletes old finished jobs in small transactions."""

from datetime import timedelta

from server.db.database import Database

PRUNE = """
    DELETE FROM job_history WHERE id = ANY(ARRAY(
        SELECT id FROM job_history
        WHERE {condition} AND finished_at < now() - $1::interval
        ORDER BY finished_at
        LIMIT $2
        FOR UPDATE SKIP LOCKED
    ))
"""
PRUNE_SUCCEEDED_AND_CANCELLED = PRUNE.format(condition="status <> 'FAILED'")
PRUNE_FAILED = PRUNE.format(condition="status = 'FAILED'")
BATCH_SIZE = 1000


async def prune_jobs(
    database: Database,
    *,
    retention: timedelta = timedelta(hours=24),
    failed_retention: timedelta = timedelta(days=7),
    batch: int = BATCH_SIZE,
    limit: int = 1_000_000,
) -> int:
    """Delete jobs that are past their retention, in short transactions; return the number of rows.

    At most `limit` rows in one call, so that the job that calls this ends in time.
    """
    pool = database.raw
    pruned = 0
    for statement, age in ((PRUNE_SUCCEEDED_AND_CANCELLED, retention), (PRUNE_FAILED, failed_retention)):
        while pruned < limit:
            deleted = int((await pool.execute(statement, age, batch)).rsplit(" ", 1)[1])
            pruned += deleted
            if deleted < batch:
                break
    return pruned
