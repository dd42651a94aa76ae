"""Beginning, following and ending an operation. Each of these is written under the instance's row lock."""

from typing import Any
from uuid import UUID

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import new_id, now
from server.db.engine import after_commit
from server.db.tables import Instance, Operation
from server.errors import OperationInProgress
from server.events.event import EventType
from server.instances.announce import announce
from server.instances.moves import locked
from server.instances.snapshot import snapshot_of
from server.observe import metrics
from server.words import OPEN_OPERATION, PROGRESS, OperationKind, OperationPhase, OperationStatus

LOCKED = "operations that this transaction has locked"


async def begin(
    session: AsyncSession,
    instance: Instance,
    kind: OperationKind,
    *,
    by: UUID | None,
    id: UUID | None = None,
    **fields: Any,
) -> Operation:
    """Write the operation. One open operation per instance: the second one is told which is the first."""
    await refuse_second(session, instance.id)
    operation = Operation(
        id=id or new_id(),
        project_id=instance.project_id,
        instance_id=instance.id,
        kind=kind,
        status=OperationStatus.QUEUED,
        phase=OperationPhase.WAITING,
        version=1,
        requested_by=by,
        created_at=now(),
        **fields,
    )
    session.add(operation)
    await session.flush()
    await _append(session, EventType.OPERATION_STARTED, operation)
    after_commit(session, lambda: metrics.ACCEPTED.add(kind.value))
    return operation


async def refuse_second(session: AsyncSession, instance_id: UUID) -> None:
    running = await open_operation(session, instance_id)
    if running is not None:
        raise OperationInProgress(running.id)


async def open_operation(session: AsyncSession, instance_id: UUID) -> Operation | None:
    """The operation of this instance that is not over, if any."""
    found = await session.execute(
        select(Operation).where(Operation.instance_id == instance_id, Operation.status.in_(OPEN_OPERATION))
    )
    return found.scalar_one_or_none()


async def enter(session: AsyncSession, operation_id: UUID, phase: OperationPhase) -> Operation | None:
    """Say what the operation is doing now. None when it is over: whoever asks has no business any more."""
    operation = await still_open(session, operation_id)
    # A run that was killed right after its commit is repeated: it must not tell watchers that things went backwards.
    if operation is None or operation.phase == phase or PROGRESS[phase] < PROGRESS[OperationPhase(operation.phase)]:
        return operation
    return await _write(
        session,
        operation,
        EventType.OPERATION_CHANGED,
        {"phase": phase, "status": OperationStatus.RUNNING, "started_at": operation.started_at or now()},
    )


async def ask(session: AsyncSession, operation_id: UUID, *, run: str | None) -> Operation | None:
    """Say that the provider is about to be asked, and which run of the machine is there now. None when it is over.

    Commit this before the call: from here on the operation can't be cancelled, and whoever takes the work over looks
    at the provider before asking again. No event: nothing has happened yet.
    """
    operation = await still_open(session, operation_id)
    if operation is None:
        return None
    before = operation.before | {"run": operation.before.get("run", run), "answer": None}
    return await _note(session, operation_id, {"asked_at": now(), "before": before})


async def note_answer(session: AsyncSession, operation_id: UUID, answer: str) -> None:
    """The provider answered that it can't be done now. It has said so of calls that it accepted, too."""
    operation = await still_open(session, operation_id)
    if operation is not None:
        await _note(session, operation_id, {"before": operation.before | {"answer": answer}})


async def unask(session: AsyncSession, operation_id: UUID) -> None:
    """It is certain that the call changed nothing: the operation stands as if the provider had not been asked."""
    if await still_open(session, operation_id) is not None:
        await _note(session, operation_id, {"asked_at": None})


async def finish(session: AsyncSession, operation_id: UUID, status: OperationStatus) -> Operation | None:
    """End it well, or because something else took its place. None when it was over already."""
    operation = await still_open(session, operation_id)
    if operation is None:
        return None
    values: dict[str, Any] = {**_over(operation), "status": status}
    if status is OperationStatus.SUCCEEDED:
        instance = await session.get_one(Instance, operation.instance_id)  # locked above, so no query
        values |= {"product_name": instance.product_name, "region": instance.region}
    return await _write(session, operation, EventType.OPERATION_FINISHED, values)


async def fail(
    session: AsyncSession, operation_id: UUID, *, code: str, message: str, retryable: bool
) -> Operation | None:
    """End it badly, saying why. None when it was over already."""
    operation = await still_open(session, operation_id)
    if operation is None:
        return None
    error = {"error_code": code, "error_message": message, "error_retryable": retryable}
    return await _write(
        session,
        operation,
        EventType.OPERATION_FINISHED,
        {**_over(operation), **error, "status": OperationStatus.FAILED},
    )


def _over(operation: Operation) -> dict[str, Any]:
    moment = now()
    return {"phase": OperationPhase.OVER, "finished_at": moment, "started_at": operation.started_at or moment}


async def still_open(session: AsyncSession, operation_id: UUID) -> Operation | None:
    """The operation, locked, if it is not over. The instance is locked first, always in that order: no deadlocks.

    Whoever has it already is not asked again: what this transaction wrote since is in the object.
    """
    held: dict[UUID, Operation] = session.info.setdefault(LOCKED, {})
    known = held.get(operation_id)
    if known is not None:
        return known if known.status in OPEN_OPERATION else None
    instance_id = (
        await session.execute(select(Operation.instance_id).where(Operation.id == operation_id))
    ).scalar_one_or_none()
    if instance_id is None:
        return None
    await locked(session, instance_id)
    found = await session.execute(
        select(Operation)
        .where(Operation.id == operation_id, Operation.status.in_(OPEN_OPERATION))
        .with_for_update(key_share=True)
        .execution_options(populate_existing=True)
    )
    operation = found.scalar_one_or_none()
    if operation is not None:
        held[operation_id] = operation
    return operation


async def _note(session: AsyncSession, operation_id: UUID, values: dict[str, Any]) -> Operation:
    noted = await session.execute(
        update(Operation)
        .where(Operation.id == operation_id)
        .values(**values)
        .returning(Operation)
        .execution_options(populate_existing=True)
    )
    return noted.scalar_one()


async def _write(session: AsyncSession, operation: Operation, type: EventType, values: dict[str, Any]) -> Operation:
    written = await session.execute(
        update(Operation)
        .where(Operation.id == operation.id)
        .values(**values, version=Operation.version + 1)
        .returning(Operation)
        .execution_options(populate_existing=True)
    )
    changed = written.scalar_one()
    await _append(session, type, changed)
    if changed.finished_at is not None:
        taken = (changed.finished_at - changed.created_at).total_seconds()
        after_commit(session, lambda: metrics.OPERATIONS.observe(taken, str(changed.kind), str(changed.status)))
    return changed


async def _append(session: AsyncSession, type: EventType, operation: Operation) -> None:
    await announce(
        session,
        await session.get_one(Instance, operation.instance_id),  # locked before, so no query
        type,
        operation_id=operation.id,
        caused_by=operation.requested_by,
        data={"operation": snapshot_of(operation)},
    )
