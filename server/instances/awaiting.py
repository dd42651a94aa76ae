"""Waiting for an operation to end, on the log that everybody follows: no query and no connection per waiter."""

import asyncio
from datetime import timedelta
from uuid import UUID

from server.db.engine import Database
from server.db.tables import Operation
from server.errors import CursorExpired, Lagging
from server.events.subscription import Subscription
from server.events.tail import Tail
from server.instances import reads
from server.instances.snapshot import restored
from server.words import OPEN_OPERATION


async def await_operation(
    database: Database, tail: Tail, operation_id: UUID, *, project_id: UUID, timeout: timedelta
) -> Operation | None:
    """The operation once it is over, or as it is when the time is over; None when there is none of that id.

    Live first, then the row: whatever happens in between comes as an event.
    """
    deadline = asyncio.get_running_loop().time() + timeout.total_seconds()
    try:
        async with asyncio.timeout_at(deadline):
            async with tail.subscribe(
                project_id=project_id,
                after=None,
                wanted=lambda event: event.operation_id == operation_id and "operation" in event.data,
            ) as events:
                operation = await _now(database, operation_id, project_id)
                if operation is None or operation.status not in OPEN_OPERATION:
                    return operation
                return await _end(events)
    except (TimeoutError, Lagging, CursorExpired):
        # Also when this process can't follow the log at the moment: the row is as true as ever.
        return await _now(database, operation_id, project_id)


async def _now(database: Database, operation_id: UUID, project_id: UUID) -> Operation | None:
    async with database.read() as session:
        return await reads.get_operation(session, operation_id, project_id=project_id)


async def _end(events: Subscription) -> Operation:
    async for event in events:
        operation = restored(Operation, event.data["operation"])
        if operation.status not in OPEN_OPERATION:
            return operation
    raise Lagging("the log ended")
