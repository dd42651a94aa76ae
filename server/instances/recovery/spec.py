"""How an instance comes back after a spot reclaim or the loss of its machine, as callers give it."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

from pydantic import TypeAdapter

from server.enums import RecoveryBilling, RecoveryTrigger, StartStep
from server.errors import Problem
from server.instances.start_steps import DATA_LOSS_NOT_ALLOWED, INVALID_RECOVERY, ORDER, ordered, step_problems
from server.volumes.attach import can_share

SHORTEST, LONGEST = timedelta(minutes=1), timedelta(days=30)
LONGEST_DRAIN = timedelta(hours=1)  # as long as the provider's notice
REGIONS_MAX = 20
REPLACE = "replaceBeforeReclaim"


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
    replace_before_reclaim: bool = False
    drain: timedelta = timedelta(minutes=1)  # how long the machine that was replaced stays

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
        if not timedelta(0) <= self.drain <= LONGEST_DRAIN:
            yield Problem(INVALID_RECOVERY, "It must be 0 to 3600 s.", (*path, "drain"))
        if self.replace_before_reclaim and not self.allow_data_loss:
            message = "Another machine has none of the data on this one's own disks; set allowDataLoss to allow that."
            yield Problem(DATA_LOSS_NOT_ALLOWED, message, (*path, "allowDataLoss"))
        if self.replace_before_reclaim and RecoveryTrigger.RECLAIM not in self.on:
            yield Problem(INVALID_RECOVERY, "It is for RECLAIM, which `on` does not have.", (*path, REPLACE))

    def to_json(self) -> dict[str, Any]:
        return _RECOVERY.dump_python(self, mode="json", exclude_none=True)


def volume_problems(recovery: Recovery | None, region: str | None, path: tuple[str, ...]) -> Iterator[Problem]:
    """Of an instance with volumes, which are in that region: two machines would hold them at the same time."""
    if recovery is not None and recovery.replace_before_reclaim and not can_share(region or ""):
        message = "Its volumes can't be held by two machines, so it can't be replaced before it is reclaimed."
        yield Problem(INVALID_RECOVERY, message, (*path, REPLACE))


@dataclass(frozen=True, slots=True)
class RecoveryChange:
    """The new recovery; None removes it."""

    recovery: Recovery | None


_RECOVERY = TypeAdapter(Recovery)


def read(stored: dict[str, Any]) -> Recovery:
    """The recovery of a row."""
    return _RECOVERY.validate_python(stored)
