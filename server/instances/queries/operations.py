"""Reads of operations and attempts of one project; another project's rows are not found."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    select,
    true,
)
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from server.db.tables import Attempt, Instance, Operation
from server.enums import OPEN_OPERATION, OperationKind, OperationStatus


@dataclass(frozen=True, slots=True)
class OperationFilter:
    """An empty filter means all operations of the project."""

    instance_id: UUID | None = None
    kinds: tuple[OperationKind, ...] = ()
    statuses: tuple[OperationStatus, ...] = ()


async def get_operation(session: AsyncSession, operation_id: UUID, *, project_id: UUID) -> Operation | None:
    result = await session.execute(
        select(Operation).where(Operation.id == operation_id, Operation.project_id == project_id)
    )
    return result.scalar_one_or_none()


async def get_operations(session: AsyncSession, ids: Sequence[UUID], *, project_id: UUID) -> dict[UUID, Operation]:
    result = await session.execute(select(Operation).where(Operation.id.in_(ids), Operation.project_id == project_id))
    return {row.id: row for row in result.scalars()}


async def open_operations(
    session: AsyncSession, instance_ids: Sequence[UUID], *, project_id: UUID
) -> dict[UUID, Operation]:
    """The open operation, by instance."""
    result = await session.execute(
        select(Operation).where(
            Operation.instance_id.in_(instance_ids),
            Operation.project_id == project_id,
            Operation.status.in_(OPEN_OPERATION),
        )
    )
    return {row.instance_id: row for row in result.scalars()}


async def attempts_by_operation(session: AsyncSession, ids: Sequence[UUID]) -> dict[UUID, list[Attempt]]:
    result = await session.execute(
        select(Attempt).where(Attempt.operation_id.in_(ids)).order_by(Attempt.operation_id, Attempt.number)
    )
    grouped: dict[UUID, list[Attempt]] = {operation_id: [] for operation_id in ids}
    for row in result.scalars():
        grouped[row.operation_id].append(row)
    return grouped


async def newest_operations(
    session: AsyncSession, instance_ids: Sequence[UUID], *, project_id: UUID, first: int
) -> dict[UUID, list[Operation]]:
    """The newest of each instance, newest first: one index scan per instance, in one query."""
    newest = (
        select(Operation)
        .where(Operation.instance_id == Instance.id)
        .order_by(Operation.created_at.desc(), Operation.id.desc())
        .limit(first)
        .lateral("newest")
    )
    of_newest = aliased(Operation, newest)
    result = await session.execute(
        select(of_newest)
        .select_from(Instance)
        .join(newest, true())
        .where(Instance.id.in_(instance_ids), Instance.project_id == project_id)
    )
    grouped: dict[UUID, list[Operation]] = {instance_id: [] for instance_id in instance_ids}
    for row in result.scalars():
        grouped[row.instance_id].append(row)
    return {
        instance_id: sorted(rows, key=lambda row: (row.created_at, row.id), reverse=True)
        for instance_id, rows in grouped.items()
    }


def conditions_on_operations(project_id: UUID, filter: OperationFilter) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = [Operation.project_id == project_id]
    if filter.instance_id is not None:
        conditions.append(Operation.instance_id == filter.instance_id)
    if filter.kinds:
        conditions.append(Operation.kind.in_([str(kind) for kind in filter.kinds]))
    if filter.statuses:
        conditions.append(Operation.status.in_([str(status) for status in filter.statuses]))
    return conditions
