"""An `Instance` whose fields are converted from the row when they are selected."""

from collections.abc import Callable
from dataclasses import fields
from datetime import datetime
from functools import cached_property
from operator import attrgetter
from typing import Any, ClassVar

from schema import ids
from schema.types.instance import Instance
from schema.types.lifetime import Lifetime
from schema.types.money import Money
from server.billing import is_billed
from server.db import tables
from server.enums import InstanceStatus
from server.instances.attempts import MACHINE_MAY_EXIST

# Take more than one step.
DERIVED = frozenset(
    {
        "failure",
        "billing",
        "placement",
        "ports",
        "tools",
        "kind",
        "labels",
        "ready_timeout",
        "billing_mode",
        "endpoints",
        "exit",
        "is_degraded",
        "degraded_since",
        "stale",
        "stale_for",
        "actions",
    }
)


class LazyInstance(Instance):
    """Has the same values as `Instance.of(row)`. `DERIVED` fields come from there, the others straight from the row."""

    stands_for: ClassVar = Instance
    row_fields: ClassVar[frozenset[str]] = frozenset()  # attributes that the row has under the same name

    def __init__(self, row: tables.InstanceLike, *, seen_at: datetime | None = None) -> None:
        self.row = row
        self.seen_at = seen_at

    @cached_property
    def complete(self) -> Instance:
        return Instance.of(self.row, seen_at=self.seen_at)


_STATUSES = {str(each): each for each in InstanceStatus}  # a third of the time of InstanceStatus(...)
_CONVERTED: dict[str, Callable[[LazyInstance], Any]] = {
    "row_id": attrgetter("row.id"),
    "id": lambda self: ids.format_id(ids.INSTANCE, self.row.id),
    "status": lambda self: _STATUSES[self.row.status],
    "machine_may_exist": lambda self: self.row.status_reason == MACHINE_MAY_EXIST,
    "is_billed": lambda self: is_billed(self.row.status, self.row.novita_status),
    "price_per_hour": lambda self: Money.of(self.row.price_per_hour_e5) if self.is_billed else None,
    "running_price_per_hour": lambda self: Money.of(self.row.price_per_hour_e5),
    "max_hourly_price": lambda self: Money.of(self.row.max_hourly_price_e5),
    "lifetime": lambda self: Lifetime.of(self.row),
}

_NAMES = [each.name for each in fields(Instance) if each.init]  # the others have resolvers
for _name in _NAMES:
    _source = "complete" if _name in DERIVED else "row"
    setattr(LazyInstance, _name, property(_CONVERTED.get(_name) or attrgetter(f"{_source}.{_name}")))
# A status as text has the same name in a response as the enum's member.
LazyInstance.row_fields = frozenset(_NAMES) - DERIVED - _CONVERTED.keys() | {"status"}
