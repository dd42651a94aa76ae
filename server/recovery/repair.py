"""Finds open incidents without a job, and makes the job again."""

import structlog
from sqlalchemy import text

from server.db.database import Database
from server.instances import transitions
from server.instances.recovery import incident, notice

log = structlog.get_logger(__name__)

WITHOUT_JOB = text("""
    SELECT id FROM instance
    WHERE recovery_state ? 'since' AND NOT recovery_state ? 'ended' AND status IN ('EXITED', 'FAILED')
      AND NOT EXISTS (SELECT FROM job WHERE unique_key = 'recover ' || instance.id)
    UNION
    SELECT id FROM instance
    WHERE recovery @> '{"replace_before_reclaim": true}' AND spot_reclaim_at > clock_timestamp()
      AND status IN ('RUNNING', 'HEALTH_CHECKING', 'READY')
      AND NOT EXISTS (SELECT FROM job WHERE unique_key = 'recover ' || instance.id)
""")


async def repair_recoveries(database: Database) -> int:
    """How many incidents had no job; each has one now."""
    async with database.read() as session:
        missing = list((await session.execute(WITHOUT_JOB)).scalars())
    for instance_id in missing:
        async with database.write() as session:
            instance = await transitions.lock(session, instance_id)
            await incident.keep_job(session, instance)
            await notice.keep_job(session, instance)
    if missing:
        log.warning("recovery.jobs_missing", count=len(missing))
    return len(missing)
