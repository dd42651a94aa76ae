"""Reads instances of one project: by id, by name, as filtered pages, and counts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    DateTime,
    Select,
    String,
    Uuid,
    and_,
    any_,
    bindparam,
    func,
    literal_column,
    or_,
    select,
    text,
    tuple_,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.types import TypeEngine

from server.auth.caller import Caller
from server.db.tables import Instance, InstanceLike, InstanceRow
from server.enums import Billing, InstanceStatus, OperationKind
from server.instances.status import FRESH_FOR, MOVING
from server.market.waits import WAITING_FOR_CAPACITY

# Written out, as in the partial indexes: the planner can't match a parameter with an index condition.
LIVING: ColumnElement[bool] = text("instance.status <> 'DELETED'")  # type: ignore[assignment]
INDEXED_PART = 3  # letters; shorter words are searched along the page's order
LABELLED: ColumnElement[bool] = text("instance.labels <> '{}'::jsonb")  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class InstanceFilter:
    """Which instances; all conditions must hold. An empty filter means all instances that are not deleted."""

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
    is_degraded: bool | None = None
    is_stale: bool | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    ends_before: datetime | None = None
    owner_id: UUID | None = None  # a token that sees only its own instances


@dataclass(frozen=True, slots=True)
class LabelCondition:
    """A label with one of these values, or with any value if there are none; `is_not` negates it."""

    key: str
    values: tuple[str, ...] | None = None
    is_not: bool = False


class InstanceOrder(StrEnum):
    """What pages are sorted by, and then by id, so that the order is total."""

    CREATED_AT = "CREATED_AT"
    NAME = "NAME"
    STATUS = "STATUS"
    STATUS_SINCE = "STATUS_SINCE"
    PRICE = "PRICE"
    ENDS_AT = "ENDS_AT"


BY_TIME = frozenset({InstanceOrder.CREATED_AT, InstanceOrder.STATUS_SINCE, InstanceOrder.ENDS_AT})

SORTED_BY: dict[InstanceOrder, Any] = {
    InstanceOrder.CREATED_AT: Instance.created_at,
    InstanceOrder.NAME: Instance.name,
    InstanceOrder.STATUS: Instance.status,
    InstanceOrder.STATUS_SINCE: Instance.status_since,
    # Written out, as in its index. Null would exclude rows without a price from pages after a cursor.
    InstanceOrder.PRICE: literal_column("coalesce(instance.price_per_hour_e5, 0)", BigInteger()),
    InstanceOrder.ENDS_AT: None,  # see `_sorted_by`
}
# The columns that `place_of` reads.
PLACE_COLUMNS: dict[InstanceOrder, tuple[str, ...]] = {
    InstanceOrder.CREATED_AT: ("created_at",),
    InstanceOrder.NAME: ("name",),
    InstanceOrder.STATUS: ("status",),
    InstanceOrder.STATUS_SINCE: ("status_since",),
    InstanceOrder.PRICE: ("price_per_hour_e5",),
    InstanceOrder.ENDS_AT: ("lifetime_due_at", "lifetime_action"),
}
# A scheduled start is no end.
ENDS_AT = "CASE WHEN instance.lifetime_action <> 'START' THEN instance.lifetime_due_at END"
# Where instances without an end are sorted: last in both directions.
NO_END = {False: datetime(9999, 1, 1, tzinfo=UTC), True: datetime(1, 1, 2, tzinfo=UTC)}


def place_of(row: InstanceLike, order: InstanceOrder, *, descending: bool = False) -> Any:
    """The value that a row is sorted by; the id follows it."""
    if order is InstanceOrder.PRICE:
        return row.price_per_hour_e5 or 0
    if order is InstanceOrder.ENDS_AT:
        has_end = row.lifetime_due_at is not None and row.lifetime_action != OperationKind.START
        return row.lifetime_due_at if has_end else NO_END[descending]
    return getattr(row, SORTED_BY[order].key)


def _sorted_by(order: InstanceOrder, *, descending: bool) -> Any:
    if order is not InstanceOrder.ENDS_AT:
        return SORTED_BY[order]
    last = NO_END[descending].isoformat()
    return literal_column(f"coalesce({ENDS_AT}, timestamptz '{last}')", DateTime(timezone=True))


async def get_instance(session: AsyncSession, instance_id: UUID, *, by: Caller) -> Instance | None:
    rows = await session.execute(
        select(Instance).where(Instance.id == instance_id, Instance.project_id == by.project_id)
    )
    return _seen(rows.scalar_one_or_none(), by)


async def find_instance_by_name(session: AsyncSession, name: str, *, by: Caller) -> Instance | None:
    """The instance of that name that is not deleted; names of deleted instances may be used again."""
    rows = await session.execute(
        select(Instance).where(
            Instance.project_id == by.project_id, Instance.name == name, Instance.status != InstanceStatus.DELETED
        )
    )
    return _seen(rows.scalar_one_or_none(), by)


def _seen(found: Instance | None, by: Caller) -> Instance | None:
    return None if found is None or not by.sees(found) else found


def select_page(
    wanted: InstanceFilter,
    order: InstanceOrder,
    *,
    descending: bool,
    is_later: bool,
    first: int,
    columns: Sequence[str] = InstanceRow._fields,
) -> Select[*tuple[Any, ...]]:
    """The statement of a page. It starts at the cursor's place in the index, so page 10,000 costs what page 1 costs.

    The limit is written out: the planner can't estimate a parameter. `page_values` has the statement's parameters.
    """
    column = _sorted_by(order, descending=descending)
    shown: list[Any] = [getattr(Instance, name) for name in columns]
    page: Select[*tuple[Any, ...]] = select(*shown).where(*conditions_of(wanted))
    if is_later:
        place = tuple_(column, Instance.id)
        after = tuple_(bindparam("after", type_=column.type), bindparam("after_id", type_=Instance.id.type))
        page = page.where(place < after if descending else place > after)
    by = (column.desc(), Instance.id.desc()) if descending else (column.asc(), Instance.id.asc())
    return page.order_by(*by).limit(literal_column(str(int(first))))


PAGE_PARAMETERS = ("project_id", "after", "after_id")


def page_values(project_id: UUID, after: tuple[Any, UUID] | None) -> dict[str, Any]:
    values: dict[str, Any] = {"project_id": project_id}
    return values if after is None else values | {"after": after[0], "after_id": after[1]}


# The fields of a filter whose values are parameters of the statement under the field's name, with their types.
# The others are part of the statement.
FILTER_PARAMETERS: dict[str, TypeEngine[Any]] = {
    "ids": ARRAY(Uuid()),
    "statuses": ARRAY(String()),
    "labels": JSONB(),
    "regions": ARRAY(String()),
    "product_names": ARRAY(String()),
    "health": ARRAY(String()),
    "billings": ARRAY(String()),
    "billing_modes": ARRAY(String()),
    "min_price_e5": BigInteger(),
    "max_price_e5": BigInteger(),
    "created_after": DateTime(timezone=True),
    "created_before": DateTime(timezone=True),
    "ends_before": DateTime(timezone=True),
    "owner_id": Uuid(),
}


def filter_value(wanted: InstanceFilter, name: str) -> Any:
    """The value of a statement's parameter."""
    value: Any = getattr(wanted, name)
    if name == "labels":
        return dict(value)
    if name == "ids":
        return list(value)
    return list(map(str, value)) if value.__class__ is tuple else value


def shape_of(wanted: InstanceFilter) -> InstanceFilter:
    """The filter without the values that are parameters: filters of one shape have the same statement."""
    given: dict[str, Any] = {name: _SHAPES[name] for name in FILTER_PARAMETERS if getattr(wanted, name) not in _ABSENT}
    if InstanceStatus.DELETED in wanted.statuses:
        given["statuses"] = (InstanceStatus.DELETED,)  # only then the statement includes deleted instances
    return replace(wanted, **given) if given else wanted


_ABSENT = (None, ())
_SHAPES: dict[str, Any] = {
    "ids": (UUID(int=0),),
    "statuses": (InstanceStatus.READY,),
    "labels": (("", ""),),
    "min_price_e5": 0,
    "max_price_e5": 0,
    "owner_id": UUID(int=0),
    **dict.fromkeys(("regions", "product_names", "health", "billings", "billing_modes"), ("",)),
    **dict.fromkeys(("created_after", "created_before", "ends_before"), datetime(2000, 1, 1, tzinfo=UTC)),
}


def _parameter(name: str, wanted: InstanceFilter) -> Any:
    return bindparam(name, filter_value(wanted, name), type_=FILTER_PARAMETERS[name])


def _any(name: str, wanted: InstanceFilter) -> Any:
    return any_(_parameter(name, wanted))


async def count_instances(session: AsyncSession, *, project_id: UUID, wanted: InstanceFilter) -> int:
    count = select(func.count()).select_from(Instance).where(*conditions_of(wanted))
    return (await session.execute(count, {"project_id": project_id})).scalar_one()


def conditions_of(wanted: InstanceFilter) -> list[ColumnElement[bool]]:
    """The statement's parameter `project_id` is given when it is executed."""
    conditions: list[ColumnElement[bool]] = [Instance.project_id == bindparam("project_id")]
    if wanted.statuses:
        conditions.append(Instance.status == _any("statuses", wanted))
    if InstanceStatus.DELETED not in wanted.statuses:
        conditions.append(LIVING)
    if wanted.ids is not None:
        conditions.append(Instance.id == _any("ids", wanted))
    if wanted.name_starts_with:
        # LIKE, because its index works with every collation.
        start = wanted.name_starts_with.lower()
        conditions.append(func.lower(Instance.name).startswith(start, autoescape=True))
        conditions += _has_parts_of(wanted.name_starts_with)
    if wanted.name_contains:
        conditions.append(Instance.name.icontains(wanted.name_contains, autoescape=True))
        conditions += _has_parts_of(wanted.name_contains)
    if wanted.labels:
        conditions.append(Instance.labels.contains(_parameter("labels", wanted)))
        conditions.append(LABELLED)
    for condition in wanted.label_conditions:
        conditions += _label_conditions(condition)
    if wanted.health:
        conditions.append(Instance.health == _any("health", wanted))
    if wanted.billings:
        conditions.append(Instance.billing == _any("billings", wanted))
    if wanted.billing_modes:
        conditions.append(Instance.billing_mode == _any("billing_modes", wanted))
    if wanted.min_price_e5 is not None:
        conditions.append(SORTED_BY[InstanceOrder.PRICE] >= _parameter("min_price_e5", wanted))
    if wanted.max_price_e5 is not None:
        conditions.append(SORTED_BY[InstanceOrder.PRICE] <= _parameter("max_price_e5", wanted))
    if wanted.is_degraded is not None:
        degraded = and_(Instance.status == InstanceStatus.READY, Instance.degraded_since.is_not(None))
        conditions.append(degraded if wanted.is_degraded else ~degraded)
    if wanted.is_stale is not None:
        conditions.append(_is_stale() if wanted.is_stale else ~_is_stale())
    if wanted.regions:
        conditions.append(Instance.region == _any("regions", wanted))
    if wanted.product_names:
        conditions.append(Instance.product_name == _any("product_names", wanted))
    if wanted.created_after is not None:
        conditions.append(Instance.created_at > _parameter("created_after", wanted))
    if wanted.created_before is not None:
        conditions.append(Instance.created_at < _parameter("created_before", wanted))
    if wanted.ends_before is not None:
        conditions += [
            Instance.lifetime_due_at < _parameter("ends_before", wanted),
            Instance.lifetime_action != OperationKind.START,
        ]
    if wanted.owner_id is not None:
        conditions.append(Instance.owner_token_id == _parameter("owner_id", wanted))
    return conditions


def _has_parts_of(words: str) -> list[ColumnElement[bool]]:
    """The condition that the index of name parts can serve: the name has every three letters of these words.

    The words are part of the statement, not a parameter: whether the index or the page's order is faster depends on
    how many names have them, and a generic plan would use the index for all words.
    """
    if len(words) < INDEXED_PART:
        return []
    part = bindparam("part", words, type_=String(), literal_execute=True, unique=True)
    return [func.parts_of_name(Instance.name).op("@>", is_comparison=True)(func.parts_of_name(part))]


def _label_conditions(condition: LabelCondition) -> list[ColumnElement[bool]]:
    if condition.values is None:
        has_label = Instance.labels.has_key(condition.key)  # type: ignore[attr-defined]
    else:
        has_label = or_(*(Instance.labels.contains({condition.key: value}) for value in condition.values))
    return [~has_label] if condition.is_not else [has_label, LABELLED]


def _is_stale() -> ColumnElement[bool]:
    """The same condition as `server.instances.provider.reader.is_stale`."""
    seen_at = func.greatest(Instance.observed_at, Instance.status_since)
    is_moving = Instance.status.in_(sorted(MOVING)) & Instance.status_reason.is_distinct_from(WAITING_FOR_CAPACITY)
    return and_(Instance.novita_id.is_not(None), is_moving, seen_at < func.now() - FRESH_FOR)
