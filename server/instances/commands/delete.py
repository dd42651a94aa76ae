"""Accepts a delete: in every status, and while other operations are open."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from server.auth.caller import Caller
from server.db.database import Database
from server.db.tables import Instance, Operation
from server.enums import InstanceStatus, OperationKind, OperationReason, OperationStatus
from server.errors import IllegalTransition
from server.idempotency import IdempotentRequest
from server.instances import operations, transitions
from server.instances.commands.lifecycle import Target, lock_target, refuse_invalid
from server.instances.idempotency import Accepted, run_once
from server.queue.enqueue import enqueue
from server.queue.kinds import DeleteInstance


async def accept_delete(
    database: Database,
    target: Target,
    *,
    by: Caller,
    key: str | None = None,
    asked_key: str | None = None,
    expected_version: int | None = None,
) -> Accepted:
    """Delete an instance, with an optional idempotency key."""
    refuse_invalid(target, key)
    fields = target.identity
    if expected_version is not None:
        fields["expected_version"] = expected_version
    request = IdempotentRequest.of(by, asked_key or key, "deleteInstance", fields)

    async def write(session: AsyncSession, operation_id: UUID) -> Accepted:
        instance, operation = await delete_instance(
            session, target, by=by, operation_id=operation_id, expected_version=expected_version
        )
        return Accepted(instance, operation)

    return await run_once(database, request, write)


async def delete_instance(
    session: AsyncSession,
    target: Target,
    *,
    by: Caller,
    operation_id: UUID | None = None,
    expected_version: int | None = None,
) -> tuple[Instance, Operation]:
    """Supersede the open operation and begin a delete; a second call returns the open delete.

    The row is locked first: a create that has just made a machine records it either before this, or later on the
    DELETING instance. In both cases the delete job knows the machine.
    """
    instance = await lock_target(session, target, by, expected_version)
    running = await operations.open_operation(session, instance.id)
    if running is not None and running.kind == OperationKind.DELETE:
        return instance, running
    if instance.status == InstanceStatus.DELETED:
        raise IllegalTransition(
            "INSTANCE_DELETED", "The instance is already deleted.", current=instance.status, allowed=()
        )
    if running is not None:
        await operations.finish(session, running.id, OperationStatus.SUPERSEDED)
    return await begin_delete(session, instance, by=by.token_id, operation_id=operation_id)


async def begin_delete(
    session: AsyncSession,
    instance: Instance,
    *,
    by: UUID | None,
    operation_id: UUID | None = None,
    reason: OperationReason | None = None,
    changes: Mapping[str, Any] | None = None,
) -> tuple[Instance, Operation]:
    """Write operation, transition and job: for the token `by`, or for a `reason` of our own. The instance is locked and
    has no open operation."""
    operation = await operations.begin(session, instance, OperationKind.DELETE, by=by, id=operation_id, reason=reason)
    if instance.status != InstanceStatus.DELETING:
        cause = transitions.Cause(operation.id, by)
        instance = await transitions.transition(
            session, instance.id, InstanceStatus.DELETING, cause=cause, **(changes or {})
        )
    await enqueue(
        session,
        DeleteInstance(instance_id=instance.id, operation_id=operation.id),
        project_id=instance.project_id,
        instance_id=instance.id,
    )
    return instance, operation
