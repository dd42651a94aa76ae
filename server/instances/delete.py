"""Accepting a delete: in every status, and whatever is under way."""

from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from server.auth.caller import Caller
from server.db.tables import Instance, Operation
from server.errors import IllegalMove, NotFound
from server.instances import moves, operations
from server.queue.enqueue import enqueue
from server.queue.kinds import DeleteInstance
from server.words import InstanceStatus, OperationKind, OperationStatus


async def delete_instance(session: AsyncSession, instance_id: UUID, *, by: Caller) -> tuple[Instance, Operation]:
    """Supersede what is under way and remove the instance; asking twice gives the delete that is under way.

    The row is locked first: a create that is just learning what it made either records it before us, or finds the
    instance DELETING and records it then; in both cases the delete job knows of it.
    """
    instance = await moves.locked(session, instance_id)
    if instance.project_id != by.project_id:
        raise NotFound("instance", ("input", "id"))
    running = await operations.open_operation(session, instance_id)
    if running is not None and running.kind == OperationKind.DELETE:
        return instance, running
    if instance.status == InstanceStatus.DELETED:
        raise IllegalMove("INSTANCE_DELETED", "The instance is deleted already.", current=instance.status, allowed=())
    if running is not None:
        await operations.finish(session, running.id, OperationStatus.SUPERSEDED)
    operation = await operations.begin(session, instance, OperationKind.DELETE, by=by.token_id)
    if instance.status != InstanceStatus.DELETING:
        cause = moves.Cause(operation.id, by.token_id)
        instance = await moves.move(session, instance_id, InstanceStatus.DELETING, cause=cause)
    await enqueue(
        session,
        DeleteInstance(instance_id=instance_id, operation_id=operation.id),
        project_id=by.project_id,
        instance_id=instance_id,
    )
    return instance, operation
