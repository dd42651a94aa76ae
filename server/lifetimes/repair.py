"""Finds instances whose next step has no job, and makes the job again: a process of an older release arms nothing."""

from datetime import datetime
from uuid import UUID

import structlog
from sqlalchemy import text

from server.db.database import Database
from server.db.outages import is_database_unavailable
from server.instances import transitions
from server.instances.limits import arming
from server.instances.limits.steps import Part, part_of

log = structlog.get_logger(__name__)

# A stopped instance that nothing can happen to is not locked for nothing, each time: there may be thousands.
WITHOUT_JOB = text("""
    SELECT id FROM instance
    WHERE lifetime IS NOT NULL AND status NOT IN ('DELETING', 'DELETED')
      AND NOT (status = 'EXITED' AND lifetime_due_at IS NULL AND run_accepted_at IS NULL
               AND NOT lifetime ?| ARRAY['delete_after_stopped', 'schedule']
               AND (lifetime ->> 'on_end' = 'STOP' OR NOT lifetime ? 'deadline'))
      AND NOT EXISTS (SELECT FROM job WHERE unique_key = 'lifetime ' || instance.id)
""")


async def repair_lifetimes(database: Database) -> int:
    """How many instances had a step to come and no job for it; each has one now."""
    async with database.read() as session:
        candidates = list((await session.execute(WITHOUT_JOB)).scalars())
    missing = 0
    for instance_id in candidates:
        try:
            missing += await _repair(database, instance_id)
        except Exception as error:  # one row must keep neither the others nor the comparison with the provider from it
            is_ours = not is_database_unavailable(error)
            log.warning("lifetimes.row_failed", instance_id=instance_id, exc_info=error if is_ours else None)
    if missing:
        log.warning("lifetimes.jobs_missing", count=missing)
    return missing


async def _repair(database: Database, instance_id: UUID) -> bool:
    async with database.write() as session:
        instance = await transitions.try_lock(session, instance_id)
        if instance is None:
            return False  # it is being changed, which arms it
        before = instance.lifetime_due_at
        fields: dict[str, datetime | None] = {}
        if part_of(instance.status) is Part.RUNNING:  # the times of a stopped one are those of its last run
            fields["run_accepted_at"] = instance.run_accepted_at or instance.running_at
        instance = await transitions.write_silently(session, instance, **fields)
        if instance.lifetime_due_at is None:
            return False
        is_missing = before is not None and (await session.execute(WITHOUT_JOB_OF, {"id": instance_id})).first()
        await arming.keep(session, instance)
        return before is None or bool(is_missing)


WITHOUT_JOB_OF = text("SELECT 1 WHERE NOT EXISTS (SELECT FROM job WHERE unique_key = 'lifetime ' || CAST(:id AS uuid))")
