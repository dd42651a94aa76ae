"""Settles create attempts without a clear response: links the machine to its instance, or records its absence."""

from datetime import timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import now
from server.db.tables import Attempt, Instance, Operation
from server.enums import AttemptStatus, InstanceStatus, OperationKind, OperationPhase
from server.events.event import EventType
from server.instances import attempts, machines, operations, transitions
from server.instances.estimates import median_time
from server.instances.provider.drift import start_monitoring
from server.instances.provider.states import MachineState, observed_fields, state_of
from server.novita.models import RemoteInstance
from server.queue.enqueue import enqueue
from server.queue.kinds import MonitorInstance, MonitorStartup, SettleAttempt

S = InstanceStatus
MACHINE_FOUND = "MACHINE_FOUND"


async def link_created(session: AsyncSession, attempt: Attempt, novita_id: str) -> None:
    """Link a machine that the provider has just created, or that was found, to the instance of an open operation.

    Also while the instance is being deleted: the delete needs the id.
    """
    if not await attempts.end(session, attempt, AttemptStatus.CREATED, novita_id=novita_id):
        return
    instance = await transitions.lock(session, attempt.instance_id)
    estimate = await _estimate(session, attempt, instance) if instance.status == S.CREATING else {}
    operation = await operations.set_phase(session, attempt.operation_id, OperationPhase.PROVISIONING, **estimate)
    cause = transitions.Cause(attempt.operation_id, operation.requested_by if operation else None)
    facts = _facts(attempt, novita_id)
    if operations.is_replacement(operation) or _is_too_late(operation, instance, novita_id):
        await machines.add_spare(session, instance, facts)
        if operation is None:
            await machines.retire_spares(session, instance)
        return
    if operation is not None and operation.kind == OperationKind.START and instance.status == S.STARTING:
        await _relocate(session, instance, operation, facts, cause)
        return
    if operation is None or instance.status != S.CREATING:
        await transitions.update(session, instance.id, cause=cause, **facts)
        return
    await transitions.transition(session, instance.id, S.STARTING, cause=cause, **facts, **estimate)
    await machines.enqueue_monitor(session, MonitorInstance(instance.id, operation.id), project_id=instance.project_id)


def _is_too_late(operation: Operation | None, instance: Instance, novita_id: str) -> bool:
    """Whether the operation has ended, and its instance has a machine and keeps it."""
    return operation is None and instance.novita_id not in (None, novita_id) and instance.status != S.DELETING


async def _relocate(
    session: AsyncSession, instance: Instance, operation: Operation, facts: dict[str, Any], cause: transitions.Cause
) -> None:
    """A start has made another machine: it serves from now on, and the old one is removed."""
    values = {"from": instance.novita_id or "", "to": facts["novita_id"]}
    unknown: dict[str, Any] = {"novita_status": None, "endpoints": [], "spot_reclaim_at": None, "missing_since": None}
    instance = await transitions.update(session, instance.id, cause=cause, **facts, **unknown, status_reason=None)
    await transitions.record_event(session, EventType.INSTANCE_RELOCATED, instance, cause=cause, values=values)
    await operations.mark_made(session, operation.id)
    await transitions.write_silently(session, instance, run_accepted_at=now())
    await machines.enqueue_monitor(session, MonitorStartup(instance.id, operation.id), project_id=instance.project_id)


async def link_found(session: AsyncSession, attempt: Attempt, remote: RemoteInstance) -> bool:
    """Link a machine whose create operation has ended to its instance, and monitor it. False if it can't be linked:
    the instance is deleted or has another machine, so this one is to be removed."""
    instance = await transitions.lock(session, attempt.instance_id)
    if instance.status == S.DELETED or instance.novita_id not in (None, remote.id):
        return False
    if await operations.open_operation(session, instance.id) is not None:
        await link_created(session, attempt, remote.id)
        return True
    if not await attempts.end(session, attempt, AttemptStatus.CREATED, novita_id=remote.id):
        return True
    cause = await _cause(session, attempt)
    observed: dict[str, Any] = {"observed_at": now(), **observed_fields(remote)}
    reason: dict[str, Any] = {"status_reason": MACHINE_FOUND}
    instance = await transitions.update(session, instance.id, cause=cause, **_facts(attempt, remote.id), **reason)
    match state_of(remote):
        case MachineState.DOWN if instance.status == S.FAILED:
            await transitions.transition(session, instance.id, S.EXITED, cause=cause, **reason, **observed)
        case MachineState.GONE | MachineState.GOING_AWAY:
            await transitions.update(session, instance.id, cause=cause, **observed)
        case _:
            await start_monitoring(
                session, instance, kind=OperationKind.START, cause=transitions.Cause(), reason=MACHINE_FOUND
            )
    return True


async def end_absent(session: AsyncSession, attempt: Attempt) -> None:
    """The provider has shown no machine for long enough."""
    if await attempts.end(session, attempt, AttemptStatus.ABSENT):
        await _clear_doubt(session, attempt)


async def note_doubt(session: AsyncSession, attempt: Attempt) -> Instance:
    """Let the instance say that a machine may exist, while its attempt is searched for."""
    return await transitions.update(
        session,
        attempt.instance_id,
        cause=await _cause(session, attempt),
        status_reason=attempts.MACHINE_MAY_EXIST,
    )


async def settle_later(session: AsyncSession, attempt: Attempt, instance: Instance) -> None:
    """Enqueue the job that settles an attempt whose operation has ended; at most one per attempt waits."""
    await enqueue(
        session,
        SettleAttempt(attempt_id=attempt.id),
        project_id=instance.project_id,
        instance_id=instance.id,
        after=timedelta(0),
        unique_key=f"settle {attempt.id}",
    )


async def _clear_doubt(session: AsyncSession, attempt: Attempt) -> None:
    instance = await transitions.lock(session, attempt.instance_id)
    if instance.status_reason == attempts.MACHINE_MAY_EXIST:
        cause = await _cause(session, attempt)
        await transitions.update(session, instance.id, cause=cause, status_reason=None)


async def _cause(session: AsyncSession, attempt: Attempt) -> transitions.Cause:
    """The create that made the attempt, and its token."""
    return transitions.Cause(attempt.operation_id, await operations.requested_by(session, attempt.operation_id))


async def _estimate(session: AsyncSession, attempt: Attempt, instance: Instance) -> dict[str, Any]:
    """It may have waited in line for longer or shorter than was estimated when it was accepted."""
    usual = await median_time(
        session,
        OperationKind.CREATE,
        project_id=instance.project_id,
        product_name=instance.product_name,
        region=attempt.region,
    )
    return {} if usual is None else {"estimated_ready_at": now() + usual}


def _facts(attempt: Attempt, novita_id: str) -> dict[str, Any]:
    return {
        "novita_id": novita_id,
        "region": attempt.region,
        "product_id": attempt.product_id,
        "billing_mode": attempt.billing_mode,
        "price_per_hour_e5": attempt.price_per_hour_e5,
    }
