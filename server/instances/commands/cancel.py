"""Cancels an operation, as long as that leaves nothing half done.

A create can be cancelled until it ends: what it made so far is removed. Every other verb can be cancelled until the
provider is called: the instance then returns to its previous status. A delete can't be cancelled.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from server.auth.caller import Caller
from server.db.database import Database
from server.db.tables import Instance, Operation
from server.enums import OPEN_OPERATION, InstanceStatus, OperationKind, OperationReason, OperationStatus
from server.errors import Invalid, NotCancellable, NotFound
from server.idempotency import IdempotentRequest, key_problems
from server.instances import attempts, operations, transitions
from server.instances.commands.delete import begin_delete
from server.instances.commands.revert import revert
from server.instances.idempotency import Accepted, run_once
from server.instances.queries import operations as reads
from server.instances.recovery import incident, notice


@dataclass(frozen=True, slots=True)
class Cancelled:
    """`clean_up` is the delete operation that removes what a create made so far."""

    instance: Instance
    operation: Operation
    clean_up: Operation | None
    replayed: bool


async def cancel_operation(database: Database, operation_id: UUID, *, by: Caller, key: str | None = None) -> Cancelled:
    """Cancel it, or raise NotCancellable. Cancelling a cancelled operation changes nothing."""
    problems = list(key_problems(key))
    if problems:
        raise Invalid(problems)
    request = IdempotentRequest.of(by, key, "cancelOperation", {"id": operation_id})

    async def write(session: AsyncSession, _new_id: UUID) -> Accepted:
        return await _cancel(session, operation_id, by)

    accepted = await run_once(database, request, write)
    async with database.read() as session:
        running = await operations.open_operation(session, accepted.instance.id)
    clean_up = running if running is not None and running.kind == OperationKind.DELETE else None
    return Cancelled(accepted.instance, accepted.operation, clean_up, accepted.replayed)


async def _cancel(session: AsyncSession, operation_id: UUID, by: Caller) -> Accepted:
    operation = await reads.get_operation(session, operation_id, by=by)
    if operation is None:
        raise NotFound("operation", ("input", "id"))
    # The lock first: a worker that is about to call the provider waits for it, or has already marked its call.
    instance = await transitions.lock(session, operation.instance_id)
    await session.refresh(operation)
    if operation.status == OperationStatus.CANCELLED:
        return Accepted(instance, operation)
    _refuse(operation)
    live = await attempts.live_of_instance(session, instance.id)
    if operation.kind != OperationKind.CREATE and live is not None and live.operation_id == operation_id:
        raise NotCancellable(operation_id, "The provider has been called; its response is being looked for.")
    cancelled = await operations.finish(session, operation_id, OperationStatus.CANCELLED)
    if cancelled is None:
        raise NotCancellable(operation_id, "It has ended.")
    if operation.kind == OperationKind.CREATE:
        return Accepted(await _revert_create(session, instance, cancelled, by=by.token_id), cancelled)
    return Accepted(await _revert(session, instance, cancelled, by), cancelled)


def _refuse(operation: Operation) -> None:
    if operation.status not in OPEN_OPERATION:
        raise NotCancellable(operation.id, f"It has ended: {operation.status}.")
    if operation.kind == OperationKind.DELETE:
        raise NotCancellable(operation.id, "A delete can't be cancelled.")
    if operation.kind != OperationKind.CREATE and operation.asked_at is not None:
        raise NotCancellable(
            operation.id, "The provider has been called already; wait for the end, or delete the instance."
        )


async def end_create(
    session: AsyncSession,
    instance: Instance,
    operation: Operation,
    *,
    reason: OperationReason,
    changes: Mapping[str, Any],
    error: tuple[str, str] | None = None,
) -> None:
    """Cancel the open create of a locked instance for a reason of our own, as `cancelOperation` does; or let it fail
    with an `error`, a code and a message."""
    if error is None:
        ended = await operations.finish(session, operation.id, OperationStatus.CANCELLED)
    else:
        ended = await operations.fail(session, operation.id, code=error[0], message=error[1], retryable=False)
    if ended is not None:
        await _revert_create(session, instance, ended, by=None, reason=reason, changes=changes)


async def _revert_create(
    session: AsyncSession,
    instance: Instance,
    operation: Operation,
    *,
    by: UUID | None,
    reason: OperationReason | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Instance:
    if instance.novita_id is not None or await attempts.live_of_instance(session, instance.id) is not None:
        # A machine was made, or may have been: the delete job finds and removes it.
        return (await begin_delete(session, instance, by=by, reason=reason, changes=changes))[0]
    cause = transitions.Cause(operation.id, by)
    fields: dict[str, Any] = {"status_reason": "CANCELLED", **(changes or {})}
    await transitions.transition(session, instance.id, InstanceStatus.DELETING, cause=cause)
    return await transitions.transition(session, instance.id, InstanceStatus.DELETED, cause=cause, **fields)


async def _revert(session: AsyncSession, instance: Instance, operation: Operation, by: Caller) -> Instance:
    """Return to the previous status. The provider was not called, so the machine is still in it."""
    if operations.is_replacement(operation):
        return await transitions.write_silently(session, instance, recovery_state=notice.ended(instance))
    fields: dict[str, Any] = {}
    if operation.reason == OperationReason.RECOVERY:
        fields["recovery_state"] = incident.ended(instance, "CANCELLED")
    return await revert(session, instance, operation, by=by.token_id, status_reason="CANCELLED", **fields)
