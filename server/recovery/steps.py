"""The steps by which an instance comes back: which comes next, and how an operation goes from one to the next.

Whether a reclaimed machine can be started is not documented: a refusal leads to the next step.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from server.db.tables import Instance, Operation
from server.enums import OperationPhase, StartStep
from server.events.event import EventType
from server.instances import operations, transitions
from server.instances.status import has_machine

PHASES = {
    StartStep.SAME: OperationPhase.STARTING,
    StartStep.MIGRATE: OperationPhase.MIGRATING,
    StartStep.RELOCATE: OperationPhase.PLACING,
}


@dataclass(frozen=True, slots=True)
class StepRefusal:
    """Why a step was not possible."""

    step: StartStep
    code: str
    message: str


def steps_of(operation: Operation) -> list[StartStep]:
    """The steps that it may take, in order."""
    return [StartStep(step) for step in operation.wanted.get("steps", [StartStep.SAME])]


def current(operation: Operation, instance: Instance) -> StartStep | None:
    """The step that it takes now; None if none of its steps is possible."""
    taken = operation.before.get("step")
    if taken is not None:
        return StartStep(taken)
    return _first(steps_of(operation), instance)


def following(operation: Operation, instance: Instance, step: StartStep) -> StartStep | None:
    """The step after this one, which was refused."""
    steps = steps_of(operation)
    return _first(steps[steps.index(step) + 1 :], instance)


def _first(steps: Sequence[StartStep], instance: Instance) -> StartStep | None:
    """Without a machine there is nothing to start or to migrate."""
    possible = [step for step in steps if step is StartStep.RELOCATE or has_machine(instance)]
    return possible[0] if possible else None


async def go_on(session: AsyncSession, operation: Operation, refusal: StepRefusal) -> bool:
    """Let a locked operation take its next step; False if there is none."""
    instance = await transitions.lock(session, operation.instance_id)
    step = following(operation, instance, refusal.step)
    if step is None:
        return False
    await operations.begin_step(session, operation.id, step)
    await tell_step(session, instance, operation, step, refusal)
    return True


async def tell_step(
    session: AsyncSession, instance: Instance, operation: Operation, step: StartStep, refusal: StepRefusal | None
) -> None:
    values: dict[str, Any] = {"step": step}
    if refusal is not None:
        values |= {"refused": refusal.step, "code": refusal.code, "message": refusal.message}
    cause = transitions.Cause(operation.id, operation.requested_by)
    await transitions.record_event(session, EventType.RECOVERY_STEP, instance, cause=cause, values=values)
