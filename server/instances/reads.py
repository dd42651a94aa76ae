"""What there is: instances and operations of one project. Another project's rows are not found."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import ColumnElement, func, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.tables import Attempt, Instance, Operation
from server.words import OPEN_OPERATION, InstanceStatus


@dataclass(frozen=True, slots=True)
class InstanceFilter:
    """Which instances; an empty filter means all that are not deleted."""

    statuses: tuple[InstanceStatus, ...] = ()


async def get_instance(session: AsyncSession, instance_id: UUID, *, project_id: UUID) -> Instance | None:
    found = await session.execute(select(Instance).where(Instance.id == instance_id, Instance.project_id == project_id))
    return found.scalar_one_or_none()


async def get_instances(session: AsyncSession, ids: Sequence[UUID], *, project_id: UUID) -> dict[UUID, Instance]:
    found = await session.execute(select(Instance).where(Instance.id.in_(ids), Instance.project_id == project_id))
    return {row.id: row for row in found.scalars()}


async def find_instance_by_name(session: AsyncSession, name: str, *, project_id: UUID) -> Instance | None:
    """The live instance of that name; names of deleted ones may be used again."""
    found = await session.execute(
        select(Instance).where(
            Instance.project_id == project_id, Instance.name == name, Instance.status != InstanceStatus.DELETED
        )
    )
    return found.scalar_one_or_none()


async def page_of_instances(
    session: AsyncSession,
    *,
    project_id: UUID,
    wanted: InstanceFilter,
    first: int,
    after: tuple[datetime, UUID] | None = None,
) -> Sequence[Instance]:
    """Newest first. Reads from where `after` points, so page 10,000 costs what page 1 costs."""
    query = select(Instance).where(*_conditions(project_id, wanted))
    if after is not None:
        query = query.where(tuple_(Instance.created_at, Instance.id) < after)
    found = await session.execute(query.order_by(Instance.created_at.desc(), Instance.id.desc()).limit(first))
    return found.scalars().all()


async def count_instances(session: AsyncSession, *, project_id: UUID, wanted: InstanceFilter) -> int:
    found = await session.execute(select(func.count()).select_from(Instance).where(*_conditions(project_id, wanted)))
    return found.scalar_one()


async def get_operation(session: AsyncSession, operation_id: UUID, *, project_id: UUID) -> Operation | None:
    found = await session.execute(
        select(Operation).where(Operation.id == operation_id, Operation.project_id == project_id)
    )
    return found.scalar_one_or_none()


async def get_operations(session: AsyncSession, ids: Sequence[UUID], *, project_id: UUID) -> dict[UUID, Operation]:
    found = await session.execute(select(Operation).where(Operation.id.in_(ids), Operation.project_id == project_id))
    return {row.id: row for row in found.scalars()}


async def open_operations(
    session: AsyncSession, instance_ids: Sequence[UUID], *, project_id: UUID
) -> dict[UUID, Operation]:
    """The operation that is not over, by instance."""
    found = await session.execute(
        select(Operation).where(
            Operation.instance_id.in_(instance_ids),
            Operation.project_id == project_id,
            Operation.status.in_(OPEN_OPERATION),
        )
    )
    return {row.instance_id: row for row in found.scalars()}


async def attempts_by_operation(session: AsyncSession, ids: Sequence[UUID]) -> dict[UUID, list[Attempt]]:
    found = await session.execute(
        select(Attempt).where(Attempt.operation_id.in_(ids)).order_by(Attempt.operation_id, Attempt.number)
    )
    grouped: dict[UUID, list[Attempt]] = {operation_id: [] for operation_id in ids}
    for row in found.scalars():
        grouped[row.operation_id].append(row)
    return grouped


def _conditions(project_id: UUID, wanted: InstanceFilter) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = [Instance.project_id == project_id]
    if wanted.statuses:
        conditions.append(Instance.status.in_([status.value for status in wanted.statuses]))
    else:
        conditions.append(Instance.status != InstanceStatus.DELETED)
    return conditions
