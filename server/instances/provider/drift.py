"""Changes made outside Pilotlight (console, spot reclaim, removal), applied to one row."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import now
from server.db.tables import Instance, ProbeResult
from server.enums import InstanceStatus, OperationKind, OperationPhase, OperationReason
from server.instances import attempts, machines, operations, transitions
from server.instances.provider.absence import GONE_AT_PROVIDER
from server.instances.provider.ends import SPOT_RECLAIMED, End, find_end, was_reclaimed
from server.instances.provider.snapshot import ProviderSnapshot
from server.instances.provider.states import MachineState, observed_fields, state_of, times_of
from server.instances.status import UP
from server.market import waits
from server.market.waits import WAITING_FOR_CAPACITY
from server.probes.verdict import health_of
from server.probes.watch import HEALTH_CHECK_FAILED
from server.queue.kinds import MonitorInstance, MonitorStartup
from server.spend.machine_times import MachineTimes

S = InstanceStatus

STOPPED_OUTSIDE = "STOPPED_OUTSIDE"
STARTED_OUTSIDE = "STARTED_OUTSIDE"
RESTARTED_OUTSIDE = "RESTARTED_OUTSIDE"
SEEN_AGAIN = "SEEN_AGAIN"
CAME_UP_LATE = "CAME_UP_LATE"
UPDATE_NOT_VISIBLE_YET = "UPDATE_NOT_VISIBLE_YET"
# Failures that say that we stopped waiting, not that the machine is broken.
STOPPED_WAITING = frozenset(
    {"READY_TIMEOUT", "NETWORK_ERROR", "PROVIDER_ERROR", "PROVIDER_AUTH_FAILED", "PROVIDER_SUSPENDED", "CIRCUIT_OPEN"}
)
LEAVING = (MachineState.GOING_AWAY, MachineState.GONE)


class Correction(StrEnum):
    """What a comparison did to a row."""

    NONE = "NONE"
    NOTED = "NOTED"
    STARTED = "STARTED"
    STOPPED = "STOPPED"
    RECLAIMED = "RECLAIMED"
    GONE = "GONE"
    SKIPPED = "SKIPPED"  # it failed, or its row was locked


async def apply_snapshot(
    session: AsyncSession,
    instance_id: UUID,
    snapshot: ProviderSnapshot | None,
    *,
    machine: str,
    asked_at: datetime,
    cause: transitions.Cause,
    during: UUID | None = None,
) -> Correction:
    """Bring one row to the provider's state. `snapshot` is None if its machine is confirmed to be gone.

    A row that was written after the provider was asked is newer and stays, and so does one that has another machine by
    now. While an operation is open, its own job changes the status, and this only writes what was observed; `during` is
    the operation whose job calls this.
    """
    instance = await transitions.lock(session, instance_id)
    if instance.updated_at >= asked_at or instance.status == S.DELETED or instance.novita_id != machine:
        return Correction.NONE
    running = await operations.open_operation(session, instance_id)
    if running is not None and running.id != during:
        is_down = snapshot is not None and state_of(snapshot) is MachineState.DOWN
        if instance.status == S.STARTING and instance.status_reason == WAITING_FOR_CAPACITY and not is_down:
            await waits.look_now(session, running.id)  # its machine runs, or is gone: its own job finds out
        if running.kind == OperationKind.DELETE and snapshot is not None and state_of(snapshot) in LEAVING:
            return Correction.NONE  # its own job knows since when the machine is not paid for
        return Correction.NONE if snapshot is None else await _note(session, instance, snapshot, cause)
    if snapshot is None or state_of(snapshot) is MachineState.GONE:
        return await _gone(session, instance, snapshot, cause)
    was_gone = instance.failure_code == GONE_AT_PROVIDER
    match state_of(snapshot):
        case MachineState.GOING_DOWN if instance.status in UP:
            end = _end(instance, snapshot)
            await _transition(session, instance, S.STOPPING, snapshot, cause, reason=end.reason)
            return Correction.NOTED
        case MachineState.COMING_UP if instance.status in UP:
            return await _restarted(session, instance, snapshot, cause)
        case MachineState.UP if instance.status == S.STOPPING:  # it did not stop after all
            await _transition(session, instance, S.READY, snapshot, cause)
            return Correction.NOTED
        case MachineState.DOWN if instance.status in UP | {S.STOPPING} or was_gone:
            end = _end(instance, snapshot)
            reason = SEEN_AGAIN if was_gone and not was_reclaimed(snapshot) else end.reason
            await _transition(session, instance, S.EXITED, snapshot, cause, reason=reason, **end.columns)
            return Correction.RECLAIMED if reason == SPOT_RECLAIMED else Correction.STOPPED
        case MachineState.UP if may_recover(instance.failure_code):
            return await _started(session, instance, snapshot, cause, CAME_UP_LATE)
        case MachineState.UP | MachineState.COMING_UP if instance.status == S.EXITED or was_gone:
            reason = SEEN_AGAIN if was_gone else STARTED_OUTSIDE
            return await _started(session, instance, snapshot, cause, reason)
        case _:
            return await _note(session, instance, snapshot, cause)


def is_update_visible(
    snapshot: ProviderSnapshot, *, reason: str | None, ports: Sequence[Any], rootfs_size_gb: int
) -> bool:
    """Whether the provider shows the ports and the disk of an accepted update that was not visible at first."""
    if reason != UPDATE_NOT_VISIBLE_YET:
        return False
    wanted = {(each["port"], each["type"]) for each in ports}
    shown = {(each.port, each.type) for each in snapshot.endpoints}
    return wanted <= shown and (snapshot.rootfs_gb or 0) >= rootfs_size_gb


def may_recover(failure_code: str | None) -> bool:
    """Whether a FAILED instance is monitored again when its machine runs."""
    return failure_code in STOPPED_WAITING


async def recover(
    session: AsyncSession,
    instance_id: UUID,
    results: Sequence[ProbeResult],
    *,
    since: datetime,
    cause: transitions.Cause,
) -> None:
    """READY, if it failed although its machine runs, and its endpoints respond now. Nothing if it has another status
    than the one it has had `since`."""
    instance = await transitions.lock(session, instance_id)
    may_be_ready = instance.failure_code == HEALTH_CHECK_FAILED or may_recover(instance.failure_code)
    if instance.status != S.FAILED or instance.status_since != since or not may_be_ready:
        return
    await transitions.transition(
        session,
        instance_id,
        S.READY,
        cause=cause,
        status_reason=CAME_UP_LATE,
        health=health_of(results),
        running_at=instance.running_at or now(),
    )


def expected_status(status: InstanceStatus, snapshot: ProviderSnapshot | None) -> InstanceStatus:
    """The status that `apply_snapshot` gives a row without an open operation."""
    state = MachineState.GONE if snapshot is None else state_of(snapshot)
    if state is MachineState.GONE:
        return S.FAILED
    if state is MachineState.GOING_DOWN and status in UP:
        return S.STOPPING
    if state is MachineState.COMING_UP and status in UP:
        return S.MIGRATING if snapshot is not None and snapshot.status == "migrating" else S.RESTARTING
    if state is MachineState.UP and status == S.STOPPING:
        return S.READY
    if state is MachineState.DOWN and status in UP | {S.STOPPING}:
        return S.EXITED
    if state in (MachineState.UP, MachineState.COMING_UP) and status == S.EXITED:
        return S.STARTING
    return status


async def fail_abandoned_create(session: AsyncSession, instance_id: UUID) -> bool:
    """Fail a CREATING instance without an open operation, a machine or a live attempt.

    No known path leads there. If one does, the row would otherwise stay CREATING for ever.
    """
    instance = await transitions.lock(session, instance_id)
    if instance.status != S.CREATING or instance.novita_id is not None:
        return False
    if await operations.open_operation(session, instance_id) or await attempts.live_of_instance(session, instance_id):
        return False
    await transitions.transition(
        session,
        instance_id,
        S.FAILED,
        cause=transitions.Cause(),
        failure_code="CREATE_LOST",
        failure_message="Its creation was abandoned. Delete it and create it again.",
    )
    return True


def _end(instance: Instance, snapshot: ProviderSnapshot) -> End:
    return find_end(snapshot, last_seen=instance.novita_status) or End(STOPPED_OUTSIDE, "")


async def _transition(
    session: AsyncSession,
    instance: Instance,
    to: InstanceStatus,
    snapshot: ProviderSnapshot,
    cause: transitions.Cause,
    *,
    reason: str | None = None,
    **fields: Any,
) -> None:
    """To the status that the provider's state stands for, without an operation."""
    observed: dict[str, Any] = {"observed_at": now(), **observed_fields(snapshot)}
    if to is S.READY and not observed["endpoints"]:
        del observed["endpoints"]  # lists leave addresses out, which does not mean that they are gone
    await transitions.transition(session, instance.id, to, cause=cause, status_reason=reason, **fields, **observed)


async def _note(
    session: AsyncSession, instance: Instance, snapshot: ProviderSnapshot, cause: transitions.Cause
) -> Correction:
    version = instance.version
    values = observed_fields(snapshot)
    if state_of(snapshot) is MachineState.UP and not values["endpoints"]:
        del values["endpoints"]  # lists leave addresses out, which does not mean that they are gone
    if is_update_visible(
        snapshot, reason=instance.status_reason, ports=instance.ports, rootfs_size_gb=instance.rootfs_size_gb
    ):
        values["status_reason"] = None
    updated = await transitions.update(session, instance.id, cause=cause, observed_at=now(), **values)
    return Correction.NONE if updated.version == version else Correction.NOTED


async def _gone(
    session: AsyncSession, instance: Instance, snapshot: ProviderSnapshot | None, cause: transitions.Cause
) -> Correction:
    """FAILED, not EXITED or DELETED: it can't be started again, and no caller requested its end.

    The row and its name stay until the owner deletes it.
    """
    run = None if snapshot is None else times_of(snapshot).missed_run
    gone: dict[str, Any] = {
        "novita_status": "removed",
        "endpoints": [],
        "observed_at": now(),
        "times": MachineTimes(stopped_at=instance.missing_since or (run and run[1])),
    }
    if instance.status == S.DELETING:
        await transitions.transition(session, instance.id, S.DELETED, cause=cause, **gone)
        return Correction.GONE
    if instance.status == S.FAILED:
        version = instance.version
        updated = await transitions.update(session, instance.id, cause=cause, **gone)
        return Correction.NONE if updated.version == version else Correction.NOTED
    await transitions.transition(
        session,
        instance.id,
        S.FAILED,
        cause=cause,
        failure_code=GONE_AT_PROVIDER,
        failure_message="The provider no longer has it. Delete it to free its name.",
        **gone,
    )
    return Correction.GONE


async def _started(
    session: AsyncSession, instance: Instance, snapshot: ProviderSnapshot, cause: transitions.Cause, reason: str
) -> Correction:
    """Runs without our doing: monitored until READY like any start, by an operation without a caller."""
    await start_monitoring(session, instance, kind=OperationKind.START, cause=cause, reason=reason)
    observed = {"observed_at": now(), "novita_status": snapshot.status, "missing_since": None}
    await transitions.update(session, instance.id, cause=cause, times=times_of(snapshot), **observed)
    return Correction.STARTED


async def _restarted(
    session: AsyncSession, instance: Instance, snapshot: ProviderSnapshot, cause: transitions.Cause
) -> Correction:
    """Restarted or migrated without our doing: monitored until READY by an operation without a caller."""
    to = expected_status(S(instance.status), snapshot)
    kind = OperationKind.MIGRATE if to is S.MIGRATING else OperationKind.RESTART
    operation = await operations.begin(session, instance, kind, by=cause.token_id, reason=_reason(cause))
    its = transitions.Cause(operation.id, cause.token_id)
    await _transition(session, instance, to, snapshot, its, reason=RESTARTED_OUTSIDE)
    await operations.set_phase(session, operation.id, OperationPhase.PROVISIONING)
    await machines.enqueue_monitor(session, MonitorStartup(instance.id, operation.id), project_id=instance.project_id)
    return Correction.STARTED


def _reason(cause: transitions.Cause) -> OperationReason | None:
    """None if a caller's request has noticed it."""
    return OperationReason.OUTSIDE if cause.token_id is None else None


async def start_monitoring(
    session: AsyncSession, instance: Instance, *, kind: OperationKind, cause: transitions.Cause, reason: str | None
) -> None:
    """Begin an operation and the job that monitors a running or starting machine until it is READY."""
    operation = await operations.begin(session, instance, kind, by=cause.token_id, reason=_reason(cause))
    its = transitions.Cause(operation.id, cause.token_id)
    await transitions.transition(session, instance.id, S.STARTING, cause=its, status_reason=reason)
    await operations.set_phase(session, operation.id, OperationPhase.PROVISIONING)
    await machines.enqueue_monitor(session, MonitorInstance(instance.id, operation.id), project_id=instance.project_id)
