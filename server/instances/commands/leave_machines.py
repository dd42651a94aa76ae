"""Gives up all machines of a provider that the database moves away from."""

from typing import Any
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.tables import Instance
from server.enums import InstanceStatus
from server.instances import operations, transitions

LEFT_AT_FORMER_PROVIDER = "LEFT_AT_FORMER_PROVIDER"


async def leave_machines(session: AsyncSession, *, former: str) -> int:
    """End every open operation, and fail every instance that is not deleted: its machine, if it has one, stays at the
    former provider, where nothing reaches it any more. Returns the number of instances."""
    message = f"Its machine was left at {former}; if it runs there, delete it there."
    living = select(Instance.id).where(Instance.status != InstanceStatus.DELETED).order_by(Instance.created_at)
    instance_ids = list((await session.execute(living)).scalars())
    for instance_id in instance_ids:
        await _leave(session, instance_id, message)
    return len(instance_ids)


async def _leave(session: AsyncSession, instance_id: UUID, message: str) -> None:
    operation = await operations.open_operation(session, instance_id)
    if operation is not None:
        await operations.fail(session, operation.id, code=LEFT_AT_FORMER_PROVIDER, message=message, retryable=False)
    cause = transitions.Cause() if operation is None else transitions.Cause(operation.id, operation.requested_by)
    failure: dict[str, Any] = {"failure_code": LEFT_AT_FORMER_PROVIDER, "failure_message": message}
    instance = await transitions.lock(session, instance_id)
    if instance.status == InstanceStatus.FAILED:
        await transitions.update(session, instance_id, cause=cause, **failure)
    else:
        await transitions.transition(session, instance_id, InstanceStatus.FAILED, cause=cause, **failure)
