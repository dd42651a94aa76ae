"""Finds the instances of one bulk request."""

from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.tables import Instance
from server.errors import CountDiffers
from server.instances.queries.instances import InstanceFilter, conditions_of, count_instances

INSTANCES_MAX = 100


async def find_expected(
    session: AsyncSession, wanted: InstanceFilter, expected: int, *, project_id: UUID
) -> list[UUID]:
    """Ids of all instances that match, oldest first. Raises CountDiffers if they are not as many as expected."""
    statement = select(Instance.id).where(*conditions_of(wanted)).order_by(Instance.created_at, Instance.id)
    found = await session.scalars(statement.limit(INSTANCES_MAX + 1), {"project_id": project_id})
    ids = list(found)
    if len(ids) == expected:
        return ids
    actual = len(ids)
    if actual > INSTANCES_MAX:
        actual = await count_instances(session, project_id=project_id, wanted=wanted)
    raise CountDiffers(expected, actual)
