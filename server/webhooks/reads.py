"""Deliveries of one project. Another project's are not found."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import ColumnElement, func, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.tables import Delivery, DeliveryAttempt, DeliveryStatus


@dataclass(frozen=True, slots=True)
class DeliveryFilter:
    """Which deliveries; an empty filter means all of the project."""

    instance_id: UUID | None = None
    statuses: tuple[DeliveryStatus, ...] = ()


async def get_delivery(session: AsyncSession, delivery_id: UUID, *, project_id: UUID) -> Delivery | None:
    found = await session.execute(select(Delivery).where(Delivery.id == delivery_id, Delivery.project_id == project_id))
    return found.scalar_one_or_none()


async def get_deliveries(session: AsyncSession, ids: Sequence[UUID], *, project_id: UUID) -> dict[UUID, Delivery]:
    found = await session.execute(select(Delivery).where(Delivery.id.in_(ids), Delivery.project_id == project_id))
    return {row.id: row for row in found.scalars()}


async def page_of_deliveries(
    session: AsyncSession,
    *,
    project_id: UUID,
    wanted: DeliveryFilter,
    first: int,
    after: tuple[datetime, UUID] | None = None,
) -> Sequence[Delivery]:
    """Newest first."""
    query = select(Delivery).where(*_conditions(project_id, wanted))
    if after is not None:
        query = query.where(tuple_(Delivery.created_at, Delivery.id) < after)
    found = await session.execute(query.order_by(Delivery.created_at.desc(), Delivery.id.desc()).limit(first))
    return found.scalars().all()


async def count_deliveries(session: AsyncSession, *, project_id: UUID, wanted: DeliveryFilter) -> int:
    found = await session.execute(select(func.count()).select_from(Delivery).where(*_conditions(project_id, wanted)))
    return found.scalar_one()


async def attempts_of(session: AsyncSession, delivery_ids: Sequence[UUID]) -> dict[UUID, list[DeliveryAttempt]]:
    """By delivery, in order."""
    found = await session.execute(
        select(DeliveryAttempt)
        .where(DeliveryAttempt.delivery_id.in_(delivery_ids))
        .order_by(DeliveryAttempt.delivery_id, DeliveryAttempt.number)
    )
    grouped: dict[UUID, list[DeliveryAttempt]] = {delivery_id: [] for delivery_id in delivery_ids}
    for row in found.scalars():
        grouped[row.delivery_id].append(row)
    return grouped


def _conditions(project_id: UUID, wanted: DeliveryFilter) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = [Delivery.project_id == project_id]
    if wanted.instance_id is not None:
        conditions.append(Delivery.instance_id == wanted.instance_id)
    if wanted.statuses:
        conditions.append(Delivery.status.in_([status.value for status in wanted.statuses]))
    return conditions
