"""How an instance comes back after a spot reclaim or the loss of its machine, as callers give it."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

from pydantic import TypeAdapter

from server.enums import RecoveryBilling, RecoveryTrigger, StartStep
from server.errors import Problem
from server.instances.start_steps import INVALID_RECOVERY, ORDER, ordered, step_problems

SHORTEST, LONGEST = timedelta(minutes=1), timedelta(days=30)
REGIONS_MAX = 20


@dataclass(frozen=True, slots=True)
class Recovery:
    """`steps` None: all of them if data may be lost, else SAME. `regions` None: the instance's own."""

    FIRST_FIELDS: ClassVar = frozenset[str]()
    allow_data_loss: bool
    on: tuple[RecoveryTrigger, ...] = (RecoveryTrigger.RECLAIM, RecoveryTrigger.LOSS)
    steps: tuple[StartStep, ...] | None = None
    regions: tuple[str, ...] | None = None
    billing: RecoveryBilling = RecoveryBilling.SAME
    give_up_after: timedelta = timedelta(days=1)

    @property
    def all_steps(self) -> tuple[StartStep, ...]:
        """In the order in which they are tried."""
        if self.steps is None:
            return ORDER if self.allow_data_loss else (StartStep.SAME,)
        return ordered(self.steps)

    def problems(self, path: tuple[str, ...]) -> Iterator[Problem]:
        if not self.on or len(set(self.on)) != len(self.on) or RecoveryTrigger.OTHER in self.on:
            yield Problem(INVALID_RECOVERY, "Give RECLAIM, LOSS or both.", (*path, "on"))
        if self.billing is RecoveryBilling.OTHER:
            yield Problem(INVALID_RECOVERY, "It must be SAME or ON_DEMAND_AFTER.", (*path, "billing"))
        if self.steps is not None:
            yield from step_problems(self.steps, path, allow_data_loss=self.allow_data_loss)
        regions = self.regions
        if regions is not None and not (0 < len(regions) <= REGIONS_MAX and all(each.strip() for each in regions)):
            message = f"Name 1 to {REGIONS_MAX} regions, none of them empty."
            yield Problem(INVALID_RECOVERY, message, (*path, "regions"))
        if not SHORTEST <= self.give_up_after <= LONGEST:
            yield Problem(INVALID_RECOVERY, "It must be 60 to 2592000 s.", (*path, "giveUpAfter"))

    def to_json(self) -> dict[str, Any]:
        return _RECOVERY.dump_python(self, mode="json", exclude_none=True)


@dataclass(frozen=True, slots=True)
class RecoveryChange:
    """The new recovery; None removes it."""

    recovery: Recovery | None


_RECOVERY = TypeAdapter(Recovery)


def read(stored: dict[str, Any]) -> Recovery:
    """The recovery of a row."""
    return _RECOVERY.validate_python(stored)
