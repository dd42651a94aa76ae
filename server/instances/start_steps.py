"""The steps of a start as callers give them, and what they lose."""

from collections.abc import Iterator, Sequence

from server.enums import StartStep
from server.errors import Problem

INVALID_RECOVERY = "INVALID_RECOVERY"
DATA_LOSS_NOT_ALLOWED = "DATA_LOSS_NOT_ALLOWED"
ORDER = (StartStep.SAME, StartStep.MIGRATE, StartStep.RELOCATE)
LOSING = frozenset({StartStep.MIGRATE, StartStep.RELOCATE})


def ordered(steps: Sequence[StartStep]) -> tuple[StartStep, ...]:
    """In the order in which they are tried."""
    return tuple(step for step in ORDER if step in steps)


def step_problems(steps: Sequence[StartStep], path: tuple[str, ...], *, allow_data_loss: bool) -> Iterator[Problem]:
    """`path` is of the input that has `steps` and `allowDataLoss`."""
    if not steps or len(set(steps)) != len(steps) or not set(steps) <= set(ORDER):
        message = "Give SAME, MIGRATE or RELOCATE, at least one, and none twice."
        yield Problem(INVALID_RECOVERY, message, (*path, "steps"))
    losing = [step for step in ordered(steps) if step in LOSING]
    if losing and not allow_data_loss:
        message = f"{' and '.join(losing)} lose what is on the machine's own disks; set allowDataLoss to allow that."
        yield Problem(DATA_LOSS_NOT_ALLOWED, message, (*path, "allowDataLoss"))
