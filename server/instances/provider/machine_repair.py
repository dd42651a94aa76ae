"""Corrects the rows of machines where they differ from the instances: a process of an older release writes none."""

import structlog
from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.database import Database
from server.db.tables import Instance, Machine
from server.instances import machines, transitions

log = structlog.get_logger(__name__)

# A machine that serves no more although it was not replaced by an operation, or was made by one that has ended.
WITHOUT_ROW = text("""
    SELECT id FROM instance
    WHERE novita_id IS NOT NULL AND status <> 'DELETED' AND novita_status IS DISTINCT FROM 'removed'
      AND NOT EXISTS (SELECT FROM machine WHERE instance_id = instance.id AND novita_id = instance.novita_id
                                            AND removing_from IS NULL AND ended_at IS NULL)
    UNION
    SELECT machine.instance_id FROM machine JOIN instance ON instance.id = machine.instance_id
    WHERE ended_at IS NULL AND removing_from IS NULL
      AND (instance.novita_id IS DISTINCT FROM machine.novita_id OR instance.status = 'DELETED')
      AND NOT EXISTS (SELECT FROM operation
                      WHERE operation.instance_id = instance.id AND operation.status IN ('QUEUED', 'RUNNING'))
""")
LEAVING_WITHOUT_JOB = text("""
    SELECT instance_id, novita_id FROM machine
    WHERE removing_from IS NOT NULL AND ended_at IS NULL
      AND NOT EXISTS (SELECT FROM job WHERE unique_key = 'remove ' || novita_id)
""")


async def repair_machines(database: Database) -> int:
    """Add the rows that are missing, end or remove what serves no more, and make lost jobs again; returns how many."""
    async with database.read() as session:
        differing = list((await session.execute(WITHOUT_ROW)).scalars())
        leaving = [(row[0], row[1]) for row in await session.execute(LEAVING_WITHOUT_JOB)]
    for instance_id in differing:
        async with database.write() as session:
            instance = await transitions.try_lock(session, instance_id)
            if instance is not None:  # else it is being changed now
                await _repair(session, instance)
    for instance_id, novita_id in leaving:
        async with database.write() as session:
            instance = await transitions.lock(session, instance_id)
            await machines.remove_later(session, instance, novita_id)
    if differing or leaving:
        log.warning("machines.repaired", rows=len(differing), jobs=len(leaving))
    return len(differing) + len(leaving)


async def _repair(session: AsyncSession, instance: Instance) -> None:
    link = machines.Link.of(instance)
    rows = await session.execute(
        select(Machine).where(
            Machine.instance_id == instance.id, Machine.ended_at.is_(None), Machine.removing_from.is_(None)
        )
    )
    for machine in rows.scalars().all():
        if machine.novita_id != link.novita_id:
            await machines.retire(session, instance, machines.Link(machine.novita_id, False, (), None))
        elif link.is_over:
            await machines.follow(session, instance, before=machines.Link(link.novita_id, False, (), None))
    if not link.is_over:
        await machines.follow(session, instance, before=machines.NO_LINK)
