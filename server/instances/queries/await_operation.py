"""Waits for an operation to end, on the shared event tail: no query and no connection per waiter."""

import asyncio
from datetime import timedelta
from uuid import UUID

from server.auth.caller import Caller
from server.db.database import Database
from server.db.tables import Operation, OperationLike, OperationRow
from server.enums import OPEN_OPERATION
from server.errors import CursorExpired, Lagging
from server.events.reader import EventReader
from server.events.tail import Tail
from server.instances.events import restored
from server.instances.queries import operations


async def await_operation(
    database: Database, tail: Tail, operation_id: UUID, *, by: Caller, timeout: timedelta
) -> OperationLike | None:
    """The operation at its end, or its present state after the timeout; None if there is none with that id.

    Subscribe first, then read the row: a change in between arrives as an event.
    """
    deadline = asyncio.get_running_loop().time() + timeout.total_seconds()
    try:
        async with asyncio.timeout_at(deadline):
            async with tail.subscribe(
                project_id=by.project_id,
                after=None,
                predicate=lambda event: event.operation_id == operation_id and "operation" in event.data,
            ) as events:
                operation = await _now(database, operation_id, by)
                if operation is None or operation.status not in OPEN_OPERATION:
                    return operation
                return await _end(events)
    except (TimeoutError, Lagging, CursorExpired):
        # Also if this process can't follow the log at the moment: the row is always up to date.
        return await _now(database, operation_id, by)


async def _now(database: Database, operation_id: UUID, by: Caller) -> OperationRow | None:
    return (await operations.get_operations(database, [operation_id], by=by)).get(operation_id)


async def _end(events: EventReader) -> Operation:
    async for event in events:
        operation = restored(Operation, event.data["operation"])
        if operation.status not in OPEN_OPERATION:
            return operation
    raise Lagging("the log ended")
