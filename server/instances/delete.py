"""Accepting a delete: in every status, and whatever is under way."""

from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from server.auth.caller import Caller
from server.db.engine import Database
from server.db.tables import Instance, Operation
from server.errors import IllegalMove, Invalid, NotFound
from server.instances import moves, operations
from server.instances.accept import refuse_changed
from server.instances.idempotency import Accepted, Asked, key_problems, once
from server.queue.enqueue import enqueue
from server.queue.kinds import DeleteInstance
from server.words import InstanceStatus, OperationKind, OperationStatus


async def accept_delete(
    database: Database,
    instance_id: UUID,
    *,
    by: Caller,
    key: str | None = None,
    asked_key: str | None = None,
    expected_version: int | None = None,
) -> Accepted:
    """The same, as a request that may carry an idempotency key."""
    problems = list(key_problems(key))
    if problems:
        raise Invalid(problems)
    fields: dict[str, Any] = {"id": instance_id}
    if expected_version is not None:
        fields["expected_version"] = expected_version
    asked = Asked.of(by, asked_key or key, "deleteInstance", fields)

    async def write(session: AsyncSession, operation_id: UUID) -> Accepted:
        instance, operation = await delete_instance(
            session, instance_id, by=by, operation_id=operation_id, expected_version=expected_version
        )
        return Accepted(instance, operation)

    return await once(database, asked, write)


async def delete_instance(
    session: AsyncSession,
    instance_id: UUID,
    *,
    by: Caller,
    operation_id: UUID | None = None,
    expected_version: int | None = None,
) -> tuple[Instance, Operation]:
    """Supersede what is under way and remove the instance; asking twice gives the delete that is under way.

    The row is locked first: a create that is just learning what it made either records it before us, or finds the
    instance DELETING and records it then; in both cases the delete job knows of it.
    """
    instance = await moves.locked(session, instance_id)
    if instance.project_id != by.project_id:
        raise NotFound("instance", ("input", "id"))
    refuse_changed(instance, expected_version)
    running = await operations.open_operation(session, instance_id)
    if running is not None and running.kind == OperationKind.DELETE:
        return instance, running
    if instance.status == InstanceStatus.DELETED:
        raise IllegalMove("INSTANCE_DELETED", "The instance is deleted already.", current=instance.status, allowed=())
    if running is not None:
        await operations.finish(session, running.id, OperationStatus.SUPERSEDED)
    return await begin_delete(session, instance, by=by, operation_id=operation_id)


async def begin_delete(
    session: AsyncSession, instance: Instance, *, by: Caller, operation_id: UUID | None = None
) -> tuple[Instance, Operation]:
    """The operation, the move and the job. The instance is locked and nothing else is under way."""
    operation = await operations.begin(session, instance, OperationKind.DELETE, by=by.token_id, id=operation_id)
    if instance.status != InstanceStatus.DELETING:
        cause = moves.Cause(operation.id, by.token_id)
        instance = await moves.move(session, instance.id, InstanceStatus.DELETING, cause=cause)
    await enqueue(
        session,
        DeleteInstance(instance_id=instance.id, operation_id=operation.id),
        project_id=instance.project_id,
        instance_id=instance.id,
    )
    return instance, operation
