"""Cancelling an operation, for as long as that leaves nothing half done.

A create can be cancelled until it is over: what was made of it is removed. Every other verb can be cancelled until the
provider is asked: then nothing has happened yet, and the instance goes back to where it was. A delete can't be.
"""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from server.auth.caller import Caller
from server.db.engine import Database
from server.db.tables import Instance, Operation
from server.errors import Invalid, NotCancellable, NotFound
from server.instances import attempts, moves, operations, reads
from server.instances.delete import begin_delete
from server.instances.idempotency import Accepted, Asked, key_problems, once
from server.words import OPEN_OPERATION, InstanceStatus, OperationKind, OperationStatus


@dataclass(frozen=True, slots=True)
class Cancelled:
    """`clean_up` is the delete that removes what a create had made so far."""

    instance: Instance
    operation: Operation
    clean_up: Operation | None
    replayed: bool


async def cancel_operation(database: Database, operation_id: UUID, *, by: Caller, key: str | None = None) -> Cancelled:
    """Cancel it, or raise NotCancellable. Cancelling what is cancelled already changes nothing."""
    problems = list(key_problems(key))
    if problems:
        raise Invalid(problems)
    asked = Asked.of(by, key, "cancelOperation", {"id": operation_id})

    async def write(session: AsyncSession, _new_id: UUID) -> Accepted:
        return await _cancel(session, operation_id, by)

    accepted = await once(database, asked, write)
    async with database.read() as session:
        running = await operations.open_operation(session, accepted.instance.id)
    clean_up = running if running is not None and running.kind == OperationKind.DELETE else None
    return Cancelled(accepted.instance, accepted.operation, clean_up, accepted.replayed)


async def _cancel(session: AsyncSession, operation_id: UUID, by: Caller) -> Accepted:
    known = await reads.get_operation(session, operation_id, project_id=by.project_id)
    if known is None:
        raise NotFound("operation", ("input", "id"))
    # The lock first: from here on a worker that is about to ask the provider waits for us, or we see that it has.
    instance = await moves.locked(session, known.instance_id)
    await session.refresh(known)
    if known.status == OperationStatus.CANCELLED:
        return Accepted(instance, known)
    _refuse(known)
    cancelled = await operations.finish(session, operation_id, OperationStatus.CANCELLED)
    if cancelled is None:
        raise NotCancellable(operation_id, "It is over.")
    if known.kind == OperationKind.CREATE:
        return Accepted(await _undo_create(session, instance, cancelled, by), cancelled)
    return Accepted(await _back(session, instance, cancelled, by), cancelled)


def _refuse(operation: Operation) -> None:
    if operation.status not in OPEN_OPERATION:
        raise NotCancellable(operation.id, f"It is over: it has {operation.status.lower()}.")
    if operation.kind == OperationKind.DELETE:
        raise NotCancellable(operation.id, "A delete can't be cancelled.")
    if operation.kind != OperationKind.CREATE and operation.asked_at is not None:
        raise NotCancellable(operation.id, "The provider has been asked already; wait for the end, or delete.")


async def _undo_create(session: AsyncSession, instance: Instance, operation: Operation, by: Caller) -> Instance:
    if instance.novita_id is not None or await attempts.live_of_instance(session, instance.id) is not None:
        # A machine was made, or may have been: somebody has to look for it and remove it.
        return (await begin_delete(session, instance, by=by))[0]
    cause = moves.Cause(operation.id, by.token_id)
    await moves.move(session, instance.id, InstanceStatus.DELETING, cause=cause)
    return await moves.move(session, instance.id, InstanceStatus.DELETED, cause=cause, status_reason="CANCELLED")


async def _back(session: AsyncSession, instance: Instance, operation: Operation, by: Caller) -> Instance:
    """To where it was. Nothing was asked of the provider, so that is still true."""
    status = operation.before.get("status")
    if status is None:
        return instance
    to = InstanceStatus.RUNNING if status == InstanceStatus.HEALTH_CHECKING else InstanceStatus(status)
    times = {name: operation.before.get(name) for name in ("running_at", "ready_at")}
    fields = {name: datetime.fromisoformat(value) for name, value in times.items() if value is not None}
    why = {name: operation.before.get(name) for name in ("failure_code", "failure_message")}
    cause = moves.Cause(operation.id, by.token_id)
    return await moves.move(session, instance.id, to, cause=cause, status_reason="CANCELLED", **fields, **why)
