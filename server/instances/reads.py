"""What there is: instances and operations of one project. Another project's rows are not found."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    String,
    and_,
    bindparam,
    func,
    literal_column,
    or_,
    select,
    text,
    true,
    tuple_,
)
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from server.clock import now
from server.db.tables import Attempt, Instance, Operation
from server.instances.moving import FRESH_FOR, MOVING
from server.words import OPEN_OPERATION, Billing, InstanceStatus, OperationKind, OperationStatus

# Written out, as the partial indexes have them: of a parameter the planner can't know that it fits.
LIVING: ColumnElement[bool] = text("instance.status <> 'DELETED'")  # type: ignore[assignment]
INDEXED_PART = 3  # letters; with fewer of them the page is read along its order
LABELLED: ColumnElement[bool] = text("instance.labels <> '{}'::jsonb")  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class InstanceFilter:
    """Which instances; an empty filter means all that are not deleted. What is given must all be so."""

    ids: tuple[UUID, ...] | None = None
    statuses: tuple[InstanceStatus, ...] = ()
    name_starts_with: str | None = None
    name_contains: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    label_conditions: tuple["LabelCondition", ...] = ()
    regions: tuple[str, ...] = ()
    product_names: tuple[str, ...] = ()
    health: tuple[str, ...] = ()
    billings: tuple[Billing, ...] = ()
    billing_modes: tuple[str, ...] = ()
    min_price_e5: int | None = None
    max_price_e5: int | None = None
    is_stale: bool | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None


@dataclass(frozen=True, slots=True)
class LabelCondition:
    """A label with one of these values, or with any where there are none; or the opposite."""

    key: str
    values: tuple[str, ...] | None = None
    is_not: bool = False


class InstanceOrder(StrEnum):
    """What pages are sorted by; the id decides among equals, so that every instance has its one place."""

    CREATED_AT = "CREATED_AT"
    NAME = "NAME"
    STATUS = "STATUS"
    STATUS_SINCE = "STATUS_SINCE"
    PRICE = "PRICE"


SORTED_BY: dict[InstanceOrder, Any] = {
    InstanceOrder.CREATED_AT: Instance.created_at,
    InstanceOrder.NAME: Instance.name,
    InstanceOrder.STATUS: Instance.status,
    InstanceOrder.STATUS_SINCE: Instance.status_since,
    # Written out, as its index has it. Rows without a price would have no place in a page.
    InstanceOrder.PRICE: literal_column("coalesce(instance.price_per_hour_e5, 0)", BigInteger()),
}


def place_of(row: Instance, order: InstanceOrder) -> Any:
    """Where a row stands in an order, beside its id."""
    if order is InstanceOrder.PRICE:
        return row.price_per_hour_e5 or 0
    return getattr(row, SORTED_BY[order].key)


@dataclass(frozen=True, slots=True)
class OperationFilter:
    """Which operations; an empty filter means all of the project."""

    instance_id: UUID | None = None
    kinds: tuple[OperationKind, ...] = ()
    statuses: tuple[OperationStatus, ...] = ()


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
    after: tuple[Any, UUID] | None = None,
    order: InstanceOrder = InstanceOrder.CREATED_AT,
    descending: bool = True,
) -> Sequence[Instance]:
    """Newest first, unless told otherwise. Reads from where `after` points, so page 10,000 costs what page 1 costs."""
    column = SORTED_BY[order]
    query = select(Instance).where(*_conditions(project_id, wanted))
    place = tuple_(column, Instance.id)
    if after is not None:
        query = query.where(place < after if descending else place > after)
    by = (column.desc(), Instance.id.desc()) if descending else (column.asc(), Instance.id.asc())
    found = await session.execute(query.order_by(*by).limit(first))
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


async def page_of_operations(
    session: AsyncSession,
    *,
    project_id: UUID,
    wanted: OperationFilter,
    first: int,
    after: tuple[datetime, UUID] | None = None,
) -> Sequence[Operation]:
    """Newest first."""
    query = select(Operation).where(*_operation_conditions(project_id, wanted))
    if after is not None:
        query = query.where(tuple_(Operation.created_at, Operation.id) < after)
    found = await session.execute(query.order_by(Operation.created_at.desc(), Operation.id.desc()).limit(first))
    return found.scalars().all()


async def count_operations(session: AsyncSession, *, project_id: UUID, wanted: OperationFilter) -> int:
    conditions = _operation_conditions(project_id, wanted)
    found = await session.execute(select(func.count()).select_from(Operation).where(*conditions))
    return found.scalar_one()


async def newest_operations(
    session: AsyncSession, instance_ids: Sequence[UUID], *, project_id: UUID, first: int
) -> dict[UUID, list[Operation]]:
    """The newest of each instance, newest first: one walk of an index per instance, in one query."""
    newest = (
        select(Operation)
        .where(Operation.instance_id == Instance.id)
        .order_by(Operation.created_at.desc(), Operation.id.desc())
        .limit(first)
        .lateral("newest")
    )
    of_newest = aliased(Operation, newest)
    found = await session.execute(
        select(of_newest)
        .select_from(Instance)
        .join(newest, true())
        .where(Instance.id.in_(instance_ids), Instance.project_id == project_id)
    )
    grouped: dict[UUID, list[Operation]] = {instance_id: [] for instance_id in instance_ids}
    for row in found.scalars():
        grouped[row.instance_id].append(row)
    return {
        instance_id: sorted(rows, key=lambda row: (row.created_at, row.id), reverse=True)
        for instance_id, rows in grouped.items()
    }


def _operation_conditions(project_id: UUID, wanted: OperationFilter) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = [Operation.project_id == project_id]
    if wanted.instance_id is not None:
        conditions.append(Operation.instance_id == wanted.instance_id)
    if wanted.kinds:
        conditions.append(Operation.kind.in_([str(kind) for kind in wanted.kinds]))
    if wanted.statuses:
        conditions.append(Operation.status.in_([str(status) for status in wanted.statuses]))
    return conditions


def _conditions(project_id: UUID, wanted: InstanceFilter) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = [Instance.project_id == project_id]
    if wanted.statuses:
        conditions.append(Instance.status.in_([str(status) for status in wanted.statuses]))
    if InstanceStatus.DELETED not in wanted.statuses:
        conditions.append(LIVING)
    if wanted.ids is not None:
        conditions.append(Instance.id.in_(wanted.ids))
    if wanted.name_starts_with:
        # LIKE, as its index can be walked for it whatever the database sorts by.
        start = wanted.name_starts_with.lower()
        conditions.append(func.lower(Instance.name).startswith(start, autoescape=True))
        conditions += _has_parts_of(wanted.name_starts_with)
    if wanted.name_contains:
        conditions.append(Instance.name.icontains(wanted.name_contains, autoescape=True))
        conditions += _has_parts_of(wanted.name_contains)
    if wanted.labels:
        conditions.append(Instance.labels.contains(dict(wanted.labels)))
        conditions.append(LABELLED)
    for condition in wanted.label_conditions:
        conditions += _label_conditions(condition)
    if wanted.health:
        conditions.append(Instance.health.in_(wanted.health))
    if wanted.billings:
        conditions.append(Instance.billing.in_([str(billing) for billing in wanted.billings]))
    if wanted.billing_modes:
        conditions.append(Instance.billing_mode.in_(wanted.billing_modes))
    if wanted.min_price_e5 is not None:
        conditions.append(SORTED_BY[InstanceOrder.PRICE] >= wanted.min_price_e5)
    if wanted.max_price_e5 is not None:
        conditions.append(SORTED_BY[InstanceOrder.PRICE] <= wanted.max_price_e5)
    if wanted.is_stale is not None:
        conditions.append(_is_stale() if wanted.is_stale else ~_is_stale())
    if wanted.regions:
        conditions.append(Instance.region.in_(wanted.regions))
    if wanted.product_names:
        conditions.append(Instance.product_name.in_(wanted.product_names))
    if wanted.created_after is not None:
        conditions.append(Instance.created_at > wanted.created_after)
    if wanted.created_before is not None:
        conditions.append(Instance.created_at < wanted.created_before)
    return conditions


def _has_parts_of(words: str) -> list[ColumnElement[bool]]:
    """What the index of parts of names can answer: every three letters of these words are in the name.

    Written into the statement, not sent as a parameter: whether the index or the order of the page is the shorter way
    depends on how many have them, and a plan for any words would take the index for all of them.
    """
    if len(words) < INDEXED_PART:
        return []
    given = bindparam("part", words, type_=String(), literal_execute=True, unique=True)
    return [func.parts_of_name(Instance.name).op("@>", is_comparison=True)(func.parts_of_name(given))]


def _label_conditions(condition: LabelCondition) -> list[ColumnElement[bool]]:
    if condition.values is None:
        found = Instance.labels.has_key(condition.key)  # type: ignore[attr-defined]
    else:
        found = or_(*(Instance.labels.contains({condition.key: value}) for value in condition.values))
    return [~found] if condition.is_not else [found, LABELLED]


def _is_stale() -> ColumnElement[bool]:
    """As `server.instances.watch` says it of one row."""
    seen = func.greatest(Instance.observed_at, Instance.status_since)
    return and_(Instance.novita_id.is_not(None), Instance.status.in_(sorted(MOVING)), seen < now() - FRESH_FOR)
