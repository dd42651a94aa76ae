"""Telling of a change: the event, and beside it the delivery to the instance's webhook, in the change's transaction."""

from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession
from structlog.contextvars import bound_contextvars

from server.db.tables import Instance
from server.events.event import EventType
from server.events.log import append
from server.instances.snapshot import snapshot_of
from server.webhooks import deliveries


async def announce(
    session: AsyncSession,
    instance: Instance,
    type: EventType,
    *,
    operation_id: UUID | None,
    caused_by: UUID | None,
    data: dict[str, Any],
) -> None:
    """Call it under the lock of the instance's row: that keeps events and deliveries in the order of changes."""
    event_id = await append(
        session,
        type=type,
        project_id=instance.project_id,
        instance_id=instance.id,
        operation_id=operation_id,
        caused_by=caused_by,
        data=data,
    )
    if not deliveries.is_wanted(instance, type):
        return
    # The delivery's job has lines of its own, which are found by the operation that they tell of.
    with bound_contextvars(operation_id=operation_id):
        await deliveries.deliver(
            session,
            instance,
            event_id=event_id,
            type=type,
            caused_by=caused_by,
            data=data,
            snapshot=data.get("instance") or snapshot_of(instance),
        )
