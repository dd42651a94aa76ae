"""Begins the attempts of a recovery, and ends it. Each attempt is one START operation without a requester."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import now
from server.db.database import after_commit
from server.db.tables import Instance
from server.enums import InstanceStatus, OperationKind, OperationReason, RecoveryBilling, RecoveryTrigger, StartStep
from server.errors import Refused
from server.events.event import EventType
from server.instances import transitions
from server.instances.commands.lifecycle import begin_verb, start_limits
from server.instances.limits.spec import read as read_lifetime
from server.instances.provider.ends import EndedMachine
from server.instances.recovery import incident, spec
from server.instances.status import VERBS, has_machine
from server.market.wait_draft import USUAL_PRIORITY, WaitDraft
from server.observe import metrics
from server.queue.kinds import StartBySteps

LIFETIME_OVER = "LIFETIME_OVER"


def is_reclaim(remote: EndedMachine) -> bool:
    """By the provider's words alone: a machine that was stopped between the notice and its time was not reclaimed."""
    return remote.spot_reclaim_at is not None and remote.spot_status not in ("running", "notified")


def is_first(instance: Instance) -> bool:
    """Whether the incident has seen no attempt yet."""
    return not (instance.recovery_state or {}).get("now")


def trigger_of(instance: Instance) -> RecoveryTrigger:
    return RecoveryTrigger((instance.recovery_state or {})["trigger"])


def can_begin(instance: Instance) -> bool:
    """Whether one of its steps is possible."""
    return has_machine(instance) or StartStep.RELOCATE in spec.read(instance.recovery or {}).all_steps


async def begin(session: AsyncSession, instance: Instance, *, highest_price_e5: int | None) -> None:
    """Begin an attempt for a locked instance with an open incident. A refusal of ours counts as an attempt, too."""
    wanted = spec.read(instance.recovery or {})
    state = incident.tried(instance, at=now())
    verb = replace(
        VERBS[OperationKind.START],
        sources=frozenset({InstanceStatus.EXITED, InstanceStatus.FAILED}),
        work=StartBySteps,
        needs_machine=False,
    )
    try:
        changes = await start_limits(session, instance) | {"recovery_state": state}
        accepted = await begin_verb(
            session,
            verb,
            instance,
            by=None,
            changes=changes,
            reason=OperationReason.RECOVERY,
            wanted={"steps": list(wanted.all_steps), **orders_of(wanted), **_wait_of(instance)},
            highest_price_e5=highest_price_e5,
        )
    except Refused as error:
        if error.code == LIFETIME_OVER:
            await give_up(session, instance, error.code)
            return
        values: dict[str, Any] = {"recovery_state": state, "status_reason": incident.RECOVERING}
        refused = await transitions.update(session, instance.id, cause=transitions.Cause(), **values)
        await _tell(session, EventType.RECOVERY_BEGAN, refused, refused=error.code)
        count_attempt(session, trigger_of(instance), "REFUSED")
        return
    count_attempt(session, trigger_of(instance), "BEGAN")
    cause = transitions.Cause(accepted.operation.id)
    await _tell(session, EventType.RECOVERY_BEGAN, accepted.instance, cause=cause)


def _wait_of(instance: Instance) -> dict[str, Any]:
    """After its last step it waits for capacity, until recovery gives up or the instance has to end."""
    limits = None if instance.lifetime is None else read_lifetime(instance.lifetime)
    ends = (incident.gives_up_at(instance), None if limits is None else limits.deadline)
    until = min(each for each in ends if each is not None)
    return WaitDraft(until=until, priority=USUAL_PRIORITY).wanted(at=now())


def orders_of(wanted: spec.Recovery) -> dict[str, Any]:
    """Where the new machine may be, as its operation has it."""
    orders: dict[str, Any] = {}
    if wanted.regions is not None:
        orders["regions"] = list(wanted.regions)
    if wanted.billing is RecoveryBilling.ON_DEMAND_AFTER:
        orders["on_demand_after"] = True
    return orders


def count_attempt(session: AsyncSession, trigger: RecoveryTrigger, outcome: str) -> None:
    after_commit(session, lambda: metrics.RECOVERY_ATTEMPTS.add(trigger.value, outcome))


async def give_up(session: AsyncSession, instance: Instance, code: str) -> None:
    """No more attempts until the caller's next start."""
    state, tries = incident.ended(instance, code), (instance.recovery_state or {}).get("now", 0)
    cause = transitions.Cause()
    instance = await transitions.update(
        session, instance.id, cause=cause, recovery_state=state, status_reason=incident.GAVE_UP
    )
    await _tell(session, EventType.RECOVERY_GAVE_UP, instance, code=code, tries=tries)
    after_commit(session, lambda: metrics.RECOVERIES_GIVEN_UP.add(code))


async def forget(session: AsyncSession, instance: Instance) -> None:
    """The provider does not confirm the incident."""
    await transitions.write_silently(session, instance, recovery_state=incident.closed(instance))


def next_look(instance: Instance) -> datetime:
    """When something is to be done: the next attempt, or the end of all of them."""
    return min(incident.due_at(instance), incident.gives_up_at(instance))


async def _tell(
    session: AsyncSession,
    type: EventType,
    instance: Instance,
    *,
    cause: transitions.Cause | None = None,
    **values: object,
) -> None:
    state = instance.recovery_state or {}
    shown = {"trigger": state.get("trigger"), "try": state.get("now"), **values}
    written = {name: str(value) for name, value in shown.items() if value is not None}
    await transitions.record_event(session, type, instance, cause=cause or transitions.Cause(), values=written)
