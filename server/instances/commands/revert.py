"""Returns an instance to what it was before an operation for which the provider was not called."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from server.db.tables import Instance, Operation
from server.enums import InstanceStatus, OperationReason, OperationStatus
from server.instances import attempts, operations, transitions
from server.instances.provider.absence import GONE_AT_PROVIDER
from server.instances.recovery import incident
from server.instances.status import has_machine

NO_MACHINE = "It has no machine any more; a start with the step RELOCATE makes another one."


async def revert(
    session: AsyncSession, instance: Instance, operation: Operation, *, by: UUID | None, **fields: Any
) -> Instance:
    """Return a locked instance to its previous status. Its machine is still in it, or is gone: a step of the start has
    found that out, or has removed it, because only one machine can hold its volumes."""
    status = operation.before.get("status")
    if status is None:
        return instance
    to = InstanceStatus.RUNNING if status == InstanceStatus.HEALTH_CHECKING else InstanceStatus(status)
    times = {name: operation.before.get(name) for name in ("running_at", "ready_at")}
    before: dict[str, Any] = {name: datetime.fromisoformat(value) for name, value in times.items() if value is not None}
    before |= {name: operation.before.get(name) for name in ("failure_code", "failure_message")}
    if to is InstanceStatus.EXITED and not has_machine(instance):
        to, before = InstanceStatus.FAILED, {"failure_code": GONE_AT_PROVIDER, "failure_message": NO_MACHINE}
        fields.setdefault("recovery_state", instance.recovery_state)  # the loss is no reason to recover it
    cause = transitions.Cause(operation.id, by)
    return await transitions.transition(session, instance.id, to, cause=cause, **before, **fields)


async def end_attempt(session: AsyncSession, instance: Instance, *, by: UUID | None) -> Instance:
    """End the attempt of a recovery for a caller who ends the recovery, where `cancelOperation` could, too.

    Most attempts that are open for long wait for capacity. One whose call is unresolved stays open.
    """
    running = await operations.open_operation(session, instance.id)
    if running is None or running.reason != OperationReason.RECOVERY or operations.is_replacement(running):
        return instance
    if not await is_uncalled(session, running):
        return instance
    return await end_start(session, instance, running, by=by, status_reason=incident.RECOVERING)


async def is_uncalled(session: AsyncSession, operation: Operation) -> bool:
    """Whether no call to the provider is unresolved: it has not begun, or waits for capacity."""
    return operation.asked_at is None and await attempts.live_of_instance(session, operation.instance_id) is None


async def end_start(
    session: AsyncSession, instance: Instance, operation: Operation, *, by: UUID | None, **fields: Any
) -> Instance:
    """End a start for which the provider is not called."""
    await operations.finish(session, operation.id, OperationStatus.SUPERSEDED)
    return await revert(session, instance, operation, by=by, **fields)
