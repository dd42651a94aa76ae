"""Deletes what deleted instances leave behind, and old idempotency keys; the row of a deleted instance stays."""

from datetime import timedelta

from server.clock import now
from server.db.pool import RawPool

# Begins at the operations: those of old tombstones are gone, so the table stays small. Not while an attempt is open: it
# may still turn out to have created a machine.
PRUNE_OPERATIONS = """
    WITH old AS MATERIALIZED (
        SELECT operation.id FROM operation JOIN instance ON instance.id = operation.instance_id
        WHERE instance.deleted_at < $1 AND operation.finished_at IS NOT NULL
          AND NOT EXISTS (
              SELECT FROM attempt WHERE attempt.instance_id = instance.id AND attempt.status IN ('ASKING', 'UNKNOWN'))
        LIMIT $2
        FOR UPDATE OF operation SKIP LOCKED
    ), attempts AS (
        DELETE FROM attempt WHERE operation_id IN (SELECT id FROM old)
    ), keys AS (
        DELETE FROM idempotency_key WHERE operation_id IN (SELECT id FROM old)
    )
    DELETE FROM operation WHERE id IN (SELECT id FROM old)
"""
# A key stays as long as its operation is open: a repeated request must find it.
PRUNE_KEYS = """
    DELETE FROM idempotency_key WHERE ctid = ANY(ARRAY(
        SELECT old.ctid FROM idempotency_key AS old
        WHERE old.created_at < $1
          AND NOT EXISTS (SELECT FROM operation WHERE operation.id = old.operation_id AND finished_at IS NULL)
        ORDER BY old.created_at
        LIMIT $2
        FOR UPDATE SKIP LOCKED
    ))
"""


async def prune_deleted(pool: RawPool, *, older_than: timedelta, limit: int) -> int:
    """Delete operations, attempts and keys of instances deleted before that; returns the number of operations."""
    return _count(await pool.execute(PRUNE_OPERATIONS, now() - older_than, limit))


async def prune_keys(pool: RawPool, *, older_than: timedelta, limit: int) -> int:
    """Delete idempotency keys used before that; returns how many."""
    return _count(await pool.execute(PRUNE_KEYS, now() - older_than, limit))


def _count(result: str) -> int:
    return int(result.rsplit(" ", 1)[1])
