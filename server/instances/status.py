"""The statuses of an instance: legal transitions, and which verb is allowed in which status."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from uuid import UUID

from server.db.tables import Instance, InstanceLike
from server.enums import InstanceStatus, OperationAction, OperationKind, StartStep
from server.errors import IllegalTransition
from server.queue.kinds import MigrateInstance, RestartInstance, StartBySteps, StartInstance, StopInstance, Work

S = InstanceStatus

# `transitions.transition` puts the sources into the WHERE of its UPDATE, so that check and write always agree.
# READY never goes back to RUNNING: a late poll of the provider would otherwise overwrite it.
# From STOPPING, RESTARTING and MIGRATING back to RUNNING and READY: the provider refused, and the machine runs on.
# From FAILED to CREATING: a create that made no machine is tried again.
# From FAILED to STARTING: its machine was found after the operation had failed, or is seen again.
# From FAILED to READY: its machine runs, and its endpoints respond at last.
# From STARTING, RESTARTING and MIGRATING to STOPPING: a budget is used up; a caller's stop is refused meanwhile.
# From FAILED to STOPPING, RESTARTING and MIGRATING: a machine that failed its checks still runs and is still billed.
TRANSITIONS: dict[InstanceStatus, frozenset[InstanceStatus]] = {
    S.CREATING: frozenset({S.STARTING, S.DELETING, S.FAILED}),
    S.STARTING: frozenset({S.RUNNING, S.STOPPING, S.EXITED, S.DELETING, S.FAILED}),
    S.RUNNING: frozenset(
        {S.HEALTH_CHECKING, S.READY, S.STOPPING, S.EXITED, S.RESTARTING, S.MIGRATING, S.DELETING, S.FAILED}
    ),
    S.HEALTH_CHECKING: frozenset({S.READY, S.STOPPING, S.EXITED, S.RESTARTING, S.MIGRATING, S.DELETING, S.FAILED}),
    S.READY: frozenset({S.STOPPING, S.EXITED, S.RESTARTING, S.MIGRATING, S.DELETING, S.FAILED}),
    S.STOPPING: frozenset({S.EXITED, S.RUNNING, S.READY, S.DELETING, S.FAILED}),
    S.EXITED: frozenset({S.STARTING, S.MIGRATING, S.DELETING, S.FAILED}),
    S.RESTARTING: frozenset({S.RUNNING, S.READY, S.STOPPING, S.EXITED, S.DELETING, S.FAILED}),
    S.MIGRATING: frozenset({S.RUNNING, S.READY, S.STOPPING, S.EXITED, S.DELETING, S.FAILED}),
    S.DELETING: frozenset({S.DELETED, S.FAILED}),
    S.FAILED: frozenset(
        {S.CREATING, S.STARTING, S.RUNNING, S.READY, S.EXITED, S.STOPPING, S.RESTARTING, S.MIGRATING, S.DELETING}
    ),
    S.DELETED: frozenset(),
}

# These start a new run, so the times of the previous one are cleared.
BEGINS_A_RUN = frozenset({S.CREATING, S.STARTING, S.RESTARTING, S.MIGRATING})


def sources(to: InstanceStatus) -> frozenset[InstanceStatus]:
    """Every status from which `to` can be reached."""
    return frozenset(source for source, targets in TRANSITIONS.items() if to in targets)


# Statuses that change soon: what was observed a while ago may be out of date.
MOVING = frozenset({S.STARTING, S.RUNNING, S.HEALTH_CHECKING, S.STOPPING, S.RESTARTING, S.MIGRATING, S.DELETING})
# A reader does not poll a moving instance that was seen this recently.
FRESH_FOR = timedelta(seconds=30)


UP = frozenset({S.RUNNING, S.HEALTH_CHECKING, S.READY})


@dataclass(frozen=True, slots=True)
class Verb:
    """`sources` are the statuses in which it is allowed; `to` is the status while it is carried out."""

    kind: OperationKind
    sources: frozenset[InstanceStatus]
    refusal: str
    to: InstanceStatus | None = None
    work: Callable[[UUID, UUID], Work] | None = None
    is_estimated: bool = False
    action: OperationAction | None = None
    needs_machine: bool = True


# FAILED is not final: a machine that failed its checks still runs, and may be stopped, restarted or migrated.
VERBS: dict[OperationKind, Verb] = {
    verb.kind: verb
    for verb in (
        Verb(
            OperationKind.START,
            frozenset({S.EXITED}),
            "INSTANCE_NOT_STARTABLE",
            S.STARTING,
            lambda instance_id, operation_id: StartInstance(instance_id, operation_id),
            is_estimated=True,
        ),
        Verb(
            OperationKind.STOP,
            UP | {S.FAILED},
            "INSTANCE_NOT_STOPPABLE",
            S.STOPPING,
            lambda instance_id, operation_id: StopInstance(instance_id, operation_id),
        ),
        Verb(
            OperationKind.RESTART,
            UP | {S.FAILED},
            "INSTANCE_NOT_RESTARTABLE",
            S.RESTARTING,
            lambda instance_id, operation_id: RestartInstance(instance_id, operation_id),
            is_estimated=True,
        ),
        Verb(
            OperationKind.MIGRATE,
            UP | {S.EXITED, S.FAILED},
            "INSTANCE_NOT_MIGRATABLE",
            S.MIGRATING,
            lambda instance_id, operation_id: MigrateInstance(instance_id, operation_id),
            is_estimated=True,
        ),
        Verb(OperationKind.UPDATE, UP | {S.EXITED, S.FAILED}, "INSTANCE_NOT_UPDATABLE"),
        Verb(OperationKind.DELETE, frozenset(S) - {S.DELETED}, "INSTANCE_DELETED"),
    )
}


def start_by(steps: Sequence[StartStep], instance: Instance) -> Verb:
    """The verb of a start by these steps. A lost machine can only be replaced; a create that failed is repeated."""
    if tuple(steps) == (StartStep.SAME,):
        return VERBS[OperationKind.START]
    is_lost = instance.status == S.FAILED and not has_machine(instance) and instance.region is not None
    return replace(
        VERBS[OperationKind.START],
        sources=frozenset({S.EXITED, S.FAILED}) if is_lost else frozenset({S.EXITED}),
        work=StartBySteps,
        needs_machine=StartStep.RELOCATE not in steps,
    )


def has_machine(row: InstanceLike) -> bool:
    """Whether the provider has, or may have, a machine for it."""
    return row.novita_id is not None and row.novita_status != "removed"


@cache
def actions(status: str, *, has_machine: bool) -> tuple[OperationKind, ...]:
    """The verbs that are allowed in that status while no operation is open."""
    return tuple(kind for kind, verb in VERBS.items() if _is_allowed(verb, status, has_machine=has_machine))


def refuse_illegal(verb: Verb, instance: Instance) -> None:
    """Raise IllegalTransition with the status and the statuses that can follow it."""
    status = InstanceStatus(instance.status)
    if _is_allowed(verb, status, has_machine=has_machine(instance)):
        return
    name = str(verb.action or verb.kind)
    message = f"{name.capitalize()} is not allowed while the instance is {status}."
    if status in verb.sources:
        message = f"The provider has no machine for it, so there is nothing to {name.lower()}."
    raise IllegalTransition(verb.refusal, message, current=status, allowed=sorted(TRANSITIONS[status]))


def _is_allowed(verb: Verb, status: str, *, has_machine: bool) -> bool:
    return status in verb.sources and (has_machine or verb.to is None or not verb.needs_machine)
