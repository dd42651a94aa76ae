"""Writing to the log: one row beside the change it tells of, in the same transaction."""

from typing import Any
from uuid import UUID

from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import new_id
from server.db.engine import will_change
from server.db.tables.event import Outbox
from server.events.event import EventType

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
    """Announce a change that this transaction makes. Call it after the statement that locked the instance's row.

    The number that orders an instance's events is drawn here. Drawn under the row's lock, a later event of that
    instance has a higher number and commits later, which is all that the sequencer needs.
    """
    event_id = new_id()
    await session.execute(
        _INSERT,
        {
            "id": event_id,
            "type": type.value,
            "project_id": project_id,
            "instance_id": instance_id,
            "operation_id": operation_id,
            "caused_by": caused_by,
            "data": data,
        },
    )
    will_change(session, "outbox")
    return event_id
