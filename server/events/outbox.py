"""Appends events to the outbox, in the transaction of the change that they describe."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import new_id
from server.db.database import notify_after_commit
from server.db.tables.event import Outbox
from server.events.event import EventType

TOPIC = "outbox"
_INSERT = insert(Outbox.__table__)  # type: ignore[arg-type]  # declared as FromClause; it is a Table


async def append(
    session: AsyncSession,
    *,
    type: EventType,
    project_id: UUID,
    instance_id: UUID | None,
    operation_id: UUID | None = None,
    caused_by: UUID | None = None,
    data: dict[str, Any],
) -> UUID:
    """Record a change of this transaction. Call it after the statement that locked the instance's row.

    The INSERT draws `seq`, which orders an instance's events. Because it is drawn under the row's lock, a later event
    of the instance has a higher `seq` and commits later, which is all that the sequencer needs.
    """
    row = new_row(
        type=type,
        project_id=project_id,
        instance_id=instance_id,
        operation_id=operation_id,
        caused_by=caused_by,
        data=data,
    )
    await insert_row(session, row)
    return row["id"]


async def append_project_event(
    session: AsyncSession,
    type: EventType,
    *,
    project_id: UUID,
    values: Mapping[str, str | int],
    objects: Mapping[str, str] | None = None,
    caused_by: UUID | None = None,
) -> UUID:
    """Record, in this transaction, something that is not about one instance. The type must be in PROJECT_EVENTS.

    `values` are shown as `data`; `objects` are ids as the API shows them, by the name of their field in `ProjectEvent`.
    Call it after the statement that locked the object's row: then the events of an object are in the order of its
    commits.
    """
    data: dict[str, Any] = {"values": dict(values)}
    if objects:
        data["objects"] = dict(objects)
    return await append(session, type=type, project_id=project_id, instance_id=None, caused_by=caused_by, data=data)


def new_row(
    *,
    type: EventType,
    project_id: UUID,
    instance_id: UUID | None,
    operation_id: UUID | None = None,
    caused_by: UUID | None = None,
    data: dict[str, Any],
) -> dict[str, Any]:
    """The column values of a new event."""
    return {
        "id": new_id(),
        "type": type.value,
        "project_id": project_id,
        "instance_id": instance_id,
        "operation_id": operation_id,
        "caused_by": caused_by,
        "data": data,
    }


async def insert_row(session: AsyncSession, row: dict[str, Any]) -> None:
    await session.execute(_INSERT, row)
    notify_after_commit(session, TOPIC)


async def insert_rows(session: AsyncSession, rows: Sequence[dict[str, Any]]) -> None:
    """Several at once; `seq` is drawn in the order of the rows."""
    await session.execute(_INSERT, list(rows))
    notify_after_commit(session, TOPIC)
