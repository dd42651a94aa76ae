"""Which verb may be asked of an instance in which status, and where it goes then. The ONE table of that."""

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from server.db.tables import Instance
from server.errors import IllegalMove
from server.instances.lifecycle import MOVES
from server.queue.kinds import MigrateInstance, RestartInstance, StartInstance, StopInstance, Work
from server.words import InstanceStatus, OperationKind

S = InstanceStatus

UP = frozenset({S.RUNNING, S.HEALTH_CHECKING, S.READY})


@dataclass(frozen=True, slots=True)
class Verb:
    """`sources` are the statuses it may be asked in; `to` is where the instance goes while it is done."""

    kind: OperationKind
    sources: frozenset[InstanceStatus]
    refusal: str
    to: InstanceStatus | None = None
    work: Callable[[UUID, UUID], Work] | None = None
    is_estimated: bool = False


# FAILED is no end: a machine that failed its checks still runs and still costs, and may be stopped, restarted or moved.
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


def actions(status: InstanceStatus, *, has_machine: bool) -> list[OperationKind]:
    """The verbs that may be asked of an instance in that status, as far as no other operation is under way."""
    return [kind for kind, verb in VERBS.items() if _may(verb, status, has_machine=has_machine)]


def refuse_illegal(verb: Verb, instance: Instance) -> None:
    """Raise IllegalMove, saying the status and where one can go from there."""
    status = InstanceStatus(instance.status)
    if _may(verb, status, has_machine=instance.novita_id is not None):
        return
    message = f"An instance that is {status} can't be asked to {verb.kind.lower()}."
    if status in verb.sources:
        message = f"The provider has no machine for it, so there is nothing to {verb.kind.lower()}."
    raise IllegalMove(verb.refusal, message, current=status, allowed=sorted(MOVES[status]))


def _may(verb: Verb, status: InstanceStatus, *, has_machine: bool) -> bool:
    return status in verb.sources and (has_machine or verb.to is None)
