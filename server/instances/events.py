"""The rows that go with a change of an instance: the event and, where wanted, the delivery to its webhook."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import DateTime, Uuid, inspect
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import ColumnProperty
from structlog.contextvars import bound_contextvars

from server.db.tables import Instance, Operation
from server.events import outbox
from server.events.event import OWNER, EventType
from server.webhooks import deliveries
from server.webhooks.delivery_rows import delivery_row

Row = TypeVar("Row", Instance, Operation)

RESERVE = ("reserved_price_e5", "reserved_s")
# Columns that snapshots leave out: secrets, and what only the jobs of an operation need.
NOT_IN_SNAPSHOTS = frozenset(
    {"env", "secret_env", "webhook_url", "asked_at", "before", "wanted", "missing_since", "owner_token_id", *RESERVE}
)


@dataclass(frozen=True, slots=True)
class EventRows:
    """Column values of an event and of its delivery; None where the instance's webhook does not want the event."""

    event: dict[str, Any]
    delivery: dict[str, Any] | None


def event_rows(
    instance: Instance, type: EventType, *, operation_id: UUID | None, caused_by: UUID | None, data: dict[str, Any]
) -> EventRows:
    """Build the rows of an event. Used by `record` for one event and by the batched statement of creates."""
    event = outbox.new_row(
        type=type,
        project_id=instance.project_id,
        instance_id=instance.id,
        operation_id=operation_id,
        caused_by=caused_by,
        data=with_owner(instance, data),
    )
    if not deliveries.is_delivered_event(instance, type):
        return EventRows(event, None)
    snapshot = data.get("instance") or snapshot_of(instance)
    return EventRows(event, delivery_row(instance, event, type=type, snapshot=snapshot))


def with_owner(instance: Instance, data: dict[str, Any]) -> dict[str, Any]:
    """The data of an event about this instance, by which it is hidden from tokens that see only their own instances."""
    return data if instance.owner_token_id is None else {**data, OWNER: str(instance.owner_token_id)}


async def record(session: AsyncSession, rows: EventRows) -> None:
    """Write an event. Call it under the instance's row lock: it keeps events and deliveries in order."""
    await outbox.insert_row(session, rows.event)
    await _deliver(session, rows)


async def record_many(session: AsyncSession, rows: Sequence[EventRows]) -> None:
    """The same for events of several locked instances, in this order."""
    await outbox.insert_rows(session, [each.event for each in rows])
    for each in rows:
        await _deliver(session, each)


async def _deliver(session: AsyncSession, rows: EventRows) -> None:
    if rows.delivery is not None:
        # The delivery's job copies the bound ids, so that its log lines are found by the operation.
        with bound_contextvars(operation_id=rows.event["operation_id"]):
            await deliveries.insert_delivery(session, rows.delivery)


def snapshot_of(row: Instance | Operation) -> dict[str, Any]:
    """The row as JSON values, without the columns that snapshots leave out."""
    loaded = vars(row)  # SQLAlchemy's attributes cost more than the conversion; they load what is missing
    shown, converted = _shown_columns(type(row))
    snapshot: dict[str, Any] = {name: loaded[name] if name in loaded else getattr(row, name) for name in shown}
    for name in converted:
        value = snapshot[name]
        if value is not None:
            snapshot[name] = value.isoformat() if isinstance(value, datetime) else str(value)
    return snapshot


def restored(kind: type[Row], snapshot: dict[str, Any]) -> Row:
    """The row of a snapshot, detached from any session. Columns that are newer than the snapshot are None."""
    known = columns(kind)
    return detached(kind, {name: _from_json(known[name], snapshot[name]) for name in snapshot if name in known})


def detached(kind: type[Row], values: dict[str, Any]) -> Row:
    """A row outside of any session; columns without a value are None. SQLAlchemy's constructor tracks every value."""
    row = kind()
    vars(row).update(dict.fromkeys(columns(kind)), **values)
    return row


@cache
def columns(kind: type[Instance] | type[Operation]) -> dict[str, ColumnProperty[Any]]:
    return {attribute.key: attribute for attribute in inspect(kind).column_attrs}


@cache
def _shown_columns(kind: type[Instance] | type[Operation]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns of a snapshot, and those of them whose values are no JSON: times and ids."""
    shown = {name: column for name, column in columns(kind).items() if name not in NOT_IN_SNAPSHOTS}
    converted = [name for name, each in shown.items() if isinstance(each.columns[0].type, DateTime | Uuid)]
    return tuple(shown), tuple(converted)


def _from_json(attribute: ColumnProperty[Any], value: Any) -> Any:
    if value is None:
        return None
    type = attribute.columns[0].type
    if isinstance(type, DateTime):
        return datetime.fromisoformat(value)
    return UUID(value) if isinstance(type, Uuid) else value
