"""The only writer of operations: begin, change phase, finish, fail. Each write holds the instance's row lock."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import new_id, now
from server.db.database import after_commit
from server.db.tables import Instance, Operation
from server.enums import OPEN_OPERATION, PROGRESS, OperationKind, OperationPhase, OperationStatus
from server.errors import OperationInProgress
from server.events.event import EventType
from server.instances import attempts, machines
from server.instances.events import EventRows, event_rows, record, snapshot_of
from server.instances.transitions import lock
from server.market import waits
from server.market.wait_draft import WANTED as WAIT
from server.market.wait_draft import Wish
from server.observe import metrics
from server.queue.enqueue import enqueue
from server.queue.kinds import SettleAttempt

LOCKED = "operations that this transaction has locked"


def new_row(
    instance: Instance, kind: OperationKind, *, by: UUID | None, id: UUID | None = None, **fields: Any
) -> dict[str, Any]:
    """The column values of a new operation. Used by `begin` for one and by the batched statement of creates."""
    return {
        "id": id or new_id(),
        "project_id": instance.project_id,
        "instance_id": instance.id,
        "kind": kind,
        "status": OperationStatus.QUEUED,
        "phase": OperationPhase.WAITING,
        "version": 1,
        "requested_by": by,
        "reason": None,
        "created_at": now(),
        "before": {},
        "wanted": {},
        **fields,
    }


async def begin(
    session: AsyncSession,
    instance: Instance,
    kind: OperationKind,
    *,
    by: UUID | None,
    id: UUID | None = None,
    is_checked: bool = False,
    **fields: Any,
) -> Operation:
    """Write a new operation and its event. Raises OperationInProgress if the instance has an open one.

    `is_checked`: under the same lock, the caller has found none.
    """
    if not is_checked:
        await refuse_second(session, instance.id)
    operation = Operation(**new_row(instance, kind, by=by, id=id, **fields))
    session.add(operation)
    await session.flush()
    await record(session, operation_event(instance, EventType.OPERATION_STARTED, operation))
    after_commit(session, lambda: metrics.ACCEPTED.add(kind.value))
    return operation


async def refuse_second(session: AsyncSession, instance_id: UUID) -> None:
    running = await open_operation(session, instance_id)
    if running is not None:
        raise OperationInProgress(running.id)


async def open_operation(session: AsyncSession, instance_id: UUID) -> Operation | None:
    """The operation of this instance that has not ended, if any."""
    result = await session.execute(
        select(Operation).where(Operation.instance_id == instance_id, Operation.status.in_(OPEN_OPERATION))
    )
    return result.scalar_one_or_none()


def is_replacement(operation: Operation | None) -> bool:
    """Whether it replaces the machine of an instance that keeps its status."""
    return operation is not None and "replaces" in operation.wanted


async def end_replacement(session: AsyncSession, instance: Instance) -> None:
    """End the replacement of the machine of a locked instance, if one is open: it is about to be stopped."""
    running = await open_operation(session, instance.id)
    if running is None or running.wanted.get("replaces") != instance.novita_id or instance.novita_id is None:
        return  # none, or the other machine serves already
    live = await attempts.live_of_instance(session, instance.id)
    await finish(session, running.id, OperationStatus.SUPERSEDED)
    if live is not None:
        work, key = SettleAttempt(attempt_id=live.id), f"settle {live.id}"
        await enqueue(session, work, project_id=instance.project_id, instance_id=instance.id, unique_key=key)


async def set_phase(
    session: AsyncSession, operation_id: UUID, phase: OperationPhase, **fields: Any
) -> Operation | None:
    """Write the phase, and `fields` with it. Returns None if the operation has already ended."""
    operation = await lock_open(session, operation_id)
    # A job that was killed right after its commit runs again: the phase must not go backwards for subscribers.
    if operation is None or operation.phase == phase or PROGRESS[phase] < PROGRESS[OperationPhase(operation.phase)]:
        return operation
    return await _write(
        session,
        operation,
        EventType.OPERATION_CHANGED,
        {"phase": phase, "status": OperationStatus.RUNNING, "started_at": operation.started_at or now(), **fields},
    )


async def set_estimate(session: AsyncSession, operation_id: UUID, ready_at: datetime | None) -> Operation | None:
    """Write another estimate of its end. Returns None if the operation has already ended."""
    operation = await lock_open(session, operation_id)
    if operation is None:
        return None
    return await _write(session, operation, EventType.OPERATION_CHANGED, {"estimated_ready_at": ready_at})


async def set_wish(session: AsyncSession, operation: Operation, wish: Wish) -> Operation:
    """Write how long, and with which priority, a locked operation may wait for capacity."""
    wanted = operation.wanted | {WAIT: wish.to_json()}
    return await _write(session, operation, EventType.OPERATION_CHANGED, {"wanted": wanted})


async def mark_asked(session: AsyncSession, operation_id: UUID, *, run: str | None, **seen: Any) -> Operation | None:
    """Write that the provider is about to be called, the machine's present run, and what else was `seen` of it.

    None if the operation has already ended.

    Commit this before the call: from here on the operation can't be cancelled, and a job that takes over checks the
    provider's state before it repeats the call. No event: nothing has happened yet.
    """
    operation = await lock_open(session, operation_id)
    if operation is None:
        return None
    before = operation.before | seen | {"run": operation.before.get("run", run), "answer": None}
    return await _write_silently(session, operation_id, {"asked_at": now(), "before": before})


async def mark_made(session: AsyncSession, operation_id: UUID) -> None:
    """Write that the provider has made a machine for a start: its time to run counts from here."""
    await _write_silently(session, operation_id, {"asked_at": now()})


async def mark_accepted(session: AsyncSession, operation_id: UUID, **answer: Any) -> None:
    """Write that the provider accepted the call: it is not asked again, however long nothing is visible."""
    operation = await lock_open(session, operation_id)
    if operation is not None and not is_accepted(operation):
        await _write_silently(session, operation_id, {"before": operation.before | answer | {"accepted": True}})


async def note_sent(session: AsyncSession, operation_id: UUID, at: datetime | None, *, again: bool) -> None:
    """Write when the call that has no response yet is sent, None after a refusal; not over an earlier one, unless
    `again`."""
    operation = await lock_open(session, operation_id)
    if operation is not None and not is_accepted(operation) and (again or sent_at(operation) is None):
        await _write_silently(session, operation_id, {"before": operation.before | {"sent_at": at and at.isoformat()}})


def sent_at(operation: Operation) -> datetime | None:
    at = operation.before.get("sent_at")
    return None if at is None else datetime.fromisoformat(at)


async def begin_step(session: AsyncSession, operation_id: UUID, step: str) -> Operation:
    """Write which step a start takes from now on, and forget the calls of the step before, which was refused."""
    operation = await lock_open(session, operation_id)
    if operation is None:
        raise ValueError("the operation has ended")
    kept = {name: value for name, value in operation.before.items() if name not in ("run", "answer", "accepted")}
    return await _write_silently(session, operation_id, {"asked_at": None, "before": {**kept, "step": step}})


async def set_reserve(session: AsyncSession, operation: Operation, **reserve: int | None) -> None:
    """Write what it may cost, after an extension of the lifetime."""
    await _write_silently(session, operation.id, reserve)


def is_accepted(operation: Operation) -> bool:
    return bool(operation.before.get("accepted"))


async def record_refusal(session: AsyncSession, operation_id: UUID, answer: str) -> None:
    """Keep the provider's refusal: it has also refused calls that it did carry out, so the job checks again."""
    operation = await lock_open(session, operation_id)
    if operation is not None:
        await _write_silently(session, operation_id, {"before": operation.before | {"answer": answer}})


async def clear_asked(session: AsyncSession, operation_id: UUID) -> None:
    """Undo `mark_asked`, once it is certain that the call changed nothing."""
    if await lock_open(session, operation_id) is not None:
        await _write_silently(session, operation_id, {"asked_at": None})


async def requested_by(session: AsyncSession, operation_id: UUID) -> UUID | None:
    """The token that requested it; None if none did, or if the token is deleted."""
    return await session.scalar(select(Operation.requested_by).where(Operation.id == operation_id))


async def record_wait(
    session: AsyncSession, operation_id: UUID, *, code: str | None = None, message: str | None = None
) -> None:
    """Write why it waits; no code once it goes on. An event tells of another code, not of each try."""
    operation = await lock_open(session, operation_id)
    if operation is None or (operation.last_error_code, operation.last_error_message) == (code, message):
        return
    values = {"last_error_code": code, "last_error_message": message}
    if operation.last_error_code == code:
        await _write_silently(session, operation_id, values)
    else:
        await _write(session, operation, EventType.OPERATION_CHANGED, values)


async def finish(session: AsyncSession, operation_id: UUID, status: OperationStatus) -> Operation | None:
    """End it as succeeded, cancelled or superseded. None if it has already ended."""
    operation = await lock_open(session, operation_id)
    if operation is None:
        return None
    values: dict[str, Any] = {**_ended(operation), "status": status}
    if status is OperationStatus.SUCCEEDED:
        instance = await session.get_one(Instance, operation.instance_id)  # locked above, so no query
        if WAIT not in operation.wanted:  # else it would count as one that takes long
            values |= {"product_name": instance.product_name, "region": instance.region}
    return await _write(session, operation, EventType.OPERATION_FINISHED, values)


async def fail(
    session: AsyncSession,
    operation_id: UUID,
    *,
    code: str,
    message: str,
    retryable: bool,
    exit_code: int | None = None,
) -> Operation | None:
    """End it as failed, with the reason. None if it has already ended."""
    operation = await lock_open(session, operation_id)
    if operation is None:
        return None
    error = {"error_code": code, "error_message": message, "error_retryable": retryable, "exit_code": exit_code}
    return await _write(
        session,
        operation,
        EventType.OPERATION_FINISHED,
        {**_ended(operation), **error, "status": OperationStatus.FAILED},
    )


def _ended(operation: Operation) -> dict[str, Any]:
    moment = now()
    return {
        # The instance has the variables of an upgrade by now, or never gets them.
        "wanted": {name: value for name, value in operation.wanted.items() if name != "env"},
        "phase": OperationPhase.OVER,
        "finished_at": moment,
        "started_at": operation.started_at or moment,
        "last_error_code": None,
        "last_error_message": None,
    }


async def lock_open(session: AsyncSession, operation_id: UUID) -> Operation | None:
    """The operation, locked; None if it has ended. The instance is locked first, always: no deadlocks.

    Locked once per transaction: a second call returns the same object, which has what this transaction wrote.
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
    await lock(session, instance_id)
    result = await session.execute(
        select(Operation)
        .where(Operation.id == operation_id, Operation.status.in_(OPEN_OPERATION))
        .with_for_update(key_share=True)
        .execution_options(populate_existing=True)
    )
    operation = result.scalar_one_or_none()
    if operation is not None:
        held[operation_id] = operation
    return operation


async def _write_silently(session: AsyncSession, operation_id: UUID, values: dict[str, Any]) -> Operation:
    """Without a new version or an event."""
    written = await session.execute(
        update(Operation)
        .where(Operation.id == operation_id)
        .values(**values)
        .returning(Operation)
        .execution_options(populate_existing=True)
    )
    return written.scalar_one()


async def _write(session: AsyncSession, operation: Operation, type: EventType, values: dict[str, Any]) -> Operation:
    written = await session.execute(
        update(Operation)
        .where(Operation.id == operation.id)
        .values(**values, version=Operation.version + 1)
        .returning(Operation)
        .execution_options(populate_existing=True)
    )
    changed = written.scalar_one()
    is_made = values.get("phase") == OperationPhase.PROVISIONING
    if WAIT in operation.wanted and (is_made or changed.finished_at is not None):
        await waits.end(session, operation.id, is_served=is_made)
    instance = await session.get_one(Instance, operation.instance_id)  # locked before, so no query
    is_create = type is EventType.OPERATION_FINISHED and changed.kind == OperationKind.CREATE
    attempt = await attempts.last_data(session, changed.id) if is_create else None
    await record(session, operation_event(instance, type, changed, attempt=attempt))
    if changed.finished_at is not None and is_replacement(changed):
        await machines.retire_spares(session, instance)
    if changed.finished_at is not None:
        seconds = (changed.finished_at - changed.created_at).total_seconds()
        after_commit(session, lambda: metrics.OPERATIONS.observe(seconds, str(changed.kind), str(changed.status)))
    return changed


def operation_event(
    instance: Instance, type: EventType, operation: Operation, *, attempt: dict[str, Any] | None = None
) -> EventRows:
    """An event about an operation, with a snapshot of its row; at the end of a create, with its last attempt."""
    return event_rows(
        instance,
        type,
        operation_id=operation.id,
        caused_by=operation.requested_by,
        data={"operation": snapshot_of(operation)} | ({} if attempt is None else {"attempt": attempt}),
    )
