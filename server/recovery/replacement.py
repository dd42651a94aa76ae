"""Replaces the spot machine of an instance before it is reclaimed. Its operation leaves the status as it is.

The other machine is a spare until one transaction lets it serve: once it is healthy, or when the old one has ended.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import now
from server.db.tables import Instance, Machine, Operation, ProbeResult
from server.enums import InstanceStatus, OperationKind, OperationReason, OperationStatus, RecoveryTrigger
from server.errors import Refused
from server.events.event import EventType
from server.instances import machines, operations, transitions
from server.instances.limits.spec import read as read_lifetime
from server.instances.limits.steps import seconds_left
from server.instances.provider.states import observed_fields, times_of
from server.instances.recovery import incident, notice, spec
from server.instances.status import UP
from server.novita.models import RemoteInstance
from server.probes.results import save_results
from server.queue.enqueue import enqueue
from server.queue.kinds import MonitorStartup, ReplaceMachine
from server.recovery.attempt import count_attempt, orders_of
from server.spend.admission import Want, admit, token_of_run
from server.spend.machine_times import NO_TIMES, MachineTimes

S = InstanceStatus


async def begin(session: AsyncSession, instance: Instance, *, highest_price_e5: int) -> None:
    """Begin it for a locked instance without an open operation. A refusal of ours counts as a try, too."""
    limits = None if instance.lifetime is None else read_lifetime(instance.lifetime)
    payer = await token_of_run(session, instance.id)
    want = Want(
        instance.project_id,
        payer,
        instance.labels,
        highest_price_e5,
        seconds_left(instance, limits, at=now()),
        instance.gpu_count,
        instances=0,
    )
    values: dict[str, str] = {"trigger": RecoveryTrigger.RECLAIM, "replaces": str(instance.novita_id)}
    cause = transitions.Cause()
    try:
        await admit(session, want)
    except Refused as error:
        values["refused"] = error.code
        count_attempt(session, RecoveryTrigger.RECLAIM, "REFUSED")
    else:
        count_attempt(session, RecoveryTrigger.RECLAIM, "REPLACING")
        operation = await operations.begin(
            session,
            instance,
            OperationKind.START,
            by=None,
            reason=OperationReason.RECOVERY,
            wanted={"replaces": instance.novita_id, **orders_of(spec.read(instance.recovery or {}))},
            is_checked=True,
            **want.reserve,
        )
        cause = transitions.Cause(operation.id)
        work = ReplaceMachine(instance.id, operation.id)
        await enqueue(session, work, project_id=instance.project_id, instance_id=instance.id)
    instance = await transitions.write_silently(session, instance, recovery_state=notice.tried(instance))
    await transitions.record_event(session, EventType.RECOVERY_BEGAN, instance, cause=cause, values=values)


def is_needed(instance: Instance, operation: Operation) -> bool:
    """Whether the machine that is to be replaced still serves, or has ended as announced."""
    is_same = instance.novita_id == operation.wanted["replaces"]
    return is_same and (instance.status in UP | {S.STOPPING} or incident.is_open(instance))


async def hand_over(
    session: AsyncSession,
    instance: Instance,
    operation: Operation,
    spare: Machine,
    remote: RemoteInstance,
    results: Sequence[ProbeResult],
) -> None:
    """The spare is healthy: it serves from now on, and the old one is removed after a while. All rows are locked."""
    wanted = spec.read(instance.recovery or {})
    cause = transitions.Cause(operation.id, operation.requested_by)
    values = {"from": str(instance.novita_id), "to": spare.novita_id}
    await machines.drain(session, instance, until=now() + wanted.drain)
    instance = await transitions.update(
        session,
        instance.id,
        cause=cause,
        recovery_state=incident.closed(instance),
        observed_at=now(),
        **_facts(spare, times_of(remote)),
        **observed_fields(remote),
    )
    await transitions.record_event(session, EventType.INSTANCE_RELOCATED, instance, cause=cause, values=values)
    if results:
        await save_results(session, {instance.id: results})
        await transitions.record_health(session, instance.id, results, cause=cause)
    await operations.finish(session, operation.id, OperationStatus.SUCCEEDED)


async def take_over(session: AsyncSession, instance: Instance, operation: Operation, spare: Machine) -> None:
    """The old machine has ended before the spare was healthy: the instance starts on it, as in any recovery."""
    cause = transitions.Cause(operation.id, operation.requested_by)
    values = {"from": str(instance.novita_id), "to": spare.novita_id}
    unknown: dict[str, Any] = {"novita_status": None, "endpoints": [], "spot_reclaim_at": None, "missing_since": None}
    state = incident.tried(instance, at=now())
    instance = await transitions.transition(
        session, instance.id, S.STARTING, cause=cause, recovery_state=state, **_facts(spare), **unknown
    )
    await transitions.record_event(session, EventType.INSTANCE_RELOCATED, instance, cause=cause, values=values)
    await operations.mark_made(session, operation.id)
    await transitions.write_silently(session, instance, run_accepted_at=now())
    await enqueue(
        session,
        MonitorStartup(instance_id=instance.id, operation_id=operation.id),
        project_id=instance.project_id,
        instance_id=instance.id,
        unique_key=f"monitor {operation.id}",
    )


def _facts(spare: Machine, times: MachineTimes = NO_TIMES) -> dict[str, Any]:
    return {
        "novita_id": spare.novita_id,
        "region": spare.region,
        "product_id": spare.product_id,
        "billing_mode": spare.billing_mode,
        "price_per_hour_e5": times.charged(spare.price_e5) or spare.price_e5,
    }
