"""Ends the open operation of an instance that has to stop, and begins a stop in its place."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import now
from server.db.tables import Instance, Operation
from server.enums import InstanceStatus, OperationKind, OperationPhase, OperationReason
from server.instances import attempts, operations
from server.instances.commands.lifecycle import begin_verb
from server.instances.provider.settle import settle_later
from server.instances.recovery import incident
from server.instances.status import VERBS, has_machine

S = InstanceStatus
STOP = VERBS[OperationKind.STOP]
# The provider stops machines that run; the job of the stop waits until this one does.
STOP_NOW = replace(STOP, sources=STOP.sources | {S.STARTING, S.RESTARTING, S.MIGRATING})
# What an update or upgrade has changed at the provider is written to the row afterwards, usually within seconds.
CHANGE_MAX = timedelta(minutes=1)
CHANGING = (OperationPhase.UPDATING, OperationPhase.RESTARTING)


def can_stop_now(instance: Instance, running: Operation | None) -> bool:
    """Whether a stop can begin, and end the open operation of a locked instance. Not while that changes the machine."""
    if running is None:
        return has_machine(instance) and instance.status in STOP.sources
    if running.kind in (OperationKind.STOP, OperationKind.DELETE):
        return False
    is_change = running.kind == OperationKind.UPDATE and running.phase in CHANGING
    if is_change and running.asked_at is not None and now() - running.asked_at < CHANGE_MAX:
        return False
    return has_machine(instance) and instance.status in STOP_NOW.sources


async def stop_now(
    session: AsyncSession,
    instance: Instance,
    running: Operation | None,
    *,
    reason: OperationReason,
    changes: Mapping[str, Any],
    error: tuple[str, str],
) -> None:
    """Begin the stop. The open operation fails with the `error`, a code and a message.

    Its call may be under way, so the stop remembers which run of the machine it was made for.
    """
    verb, wanted = STOP, dict[str, Any]()
    if running is not None:
        verb = STOP_NOW
        if running.asked_at is not None and "run" in running.before and running.kind != OperationKind.UPDATE:
            wanted = {"after": {"run": running.before["run"], "asked_at": running.asked_at.isoformat()}}
        if incident.is_open(instance):
            changes = {**changes, "recovery_state": incident.ended(instance, "STOPPED")}
        live = await attempts.live_of_instance(session, instance.id)
        await operations.fail(session, running.id, code=error[0], message=error[1], retryable=False)
        if live is not None:
            await settle_later(session, live, instance)
    await begin_verb(session, verb, instance, by=None, reason=reason, changes=changes, wanted=wanted)
