"""Reads the deliveries of one project."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import ColumnElement, select
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.tables import Delivery, DeliveryAttempt, DeliveryStatus


@dataclass(frozen=True, slots=True)
class DeliveryFilter:
    """An empty filter matches all deliveries of the project."""

    instance_id: UUID | None = None
    statuses: tuple[DeliveryStatus, ...] = ()


async def get_deliveries(session: AsyncSession, ids: Sequence[UUID], *, project_id: UUID) -> dict[UUID, Delivery]:
    rows = await session.execute(select(Delivery).where(Delivery.id.in_(ids), Delivery.project_id == project_id))
    return {row.id: row for row in rows.scalars()}


async def attempts_of(session: AsyncSession, delivery_ids: Sequence[UUID]) -> dict[UUID, list[DeliveryAttempt]]:
    """Attempts by delivery, in order."""
    rows = await session.execute(
        select(DeliveryAttempt)
        .where(DeliveryAttempt.delivery_id.in_(delivery_ids))
        .order_by(DeliveryAttempt.delivery_id, DeliveryAttempt.number)
    )
    grouped: dict[UUID, list[DeliveryAttempt]] = {delivery_id: [] for delivery_id in delivery_ids}
    for row in rows.scalars():
        grouped[row.delivery_id].append(row)
    return grouped


def conditions_on_deliveries(project_id: UUID, where: DeliveryFilter) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = [Delivery.project_id == project_id]
    if where.instance_id is not None:
        conditions.append(Delivery.instance_id == where.instance_id)
    if where.statuses:
        conditions.append(Delivery.status.in_([status.value for status in where.statuses]))
    return conditions
