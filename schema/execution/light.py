"""An instance of a page: each field is made when it is asked for, and few pages ask for all of them."""

from collections.abc import Callable
from dataclasses import fields
from datetime import datetime
from typing import Any

from schema import ids
from schema.execution.selections import LASTING, STAND_INS
from schema.types.instance import Instance
from schema.types.money import Money
from server.db import tables
from server.words import InstanceStatus

# By their names in both: what the row holds is what the field shows.
SAME = (
    "name",
    "status_reason",
    "status_since",
    "version",
    "product_name",
    "gpu_count",
    "rootfs_size_gb",
    "template_id",
    "image",
    "command",
    "novita_id",
    "novita_status",
    "region",
    "product_id",
    "spot_reclaim_at",
    "observed_at",
    "created_at",
    "updated_at",
    "estimated_ready_at",
    "running_at",
    "ready_at",
    "deleted_at",
)
# These also depend on what time it is.
PASSING = frozenset({"stale", "stale_for"})


class LightInstance(Instance):
    """Shows a row as `Instance.of` would. What is not cheap to show is taken from there, once."""

    def __init__(self, row: tables.Instance, *, seen_at: datetime | None = None) -> None:
        self.row = row
        self.seen_at = seen_at
        self.whole: Instance | None = None


def _same(name: str) -> Callable[[LightInstance], Any]:
    namespace: dict[str, Any] = {}
    exec(f"def read(self): return self.row.{name}", namespace)
    return namespace["read"]


def _whole(name: str) -> Callable[[LightInstance], Any]:
    def read(self: LightInstance) -> Any:
        if self.whole is None:
            self.whole = Instance.of(self.row, seen_at=self.seen_at)
        return getattr(self.whole, name)

    return read


_CHEAP: dict[str, Callable[[LightInstance], Any]] = {
    **{name: _same(name) for name in SAME},
    "row_id": lambda self: self.row.id,
    "id": lambda self: ids.shown(ids.INSTANCE, self.row.id),
    "status": lambda self: InstanceStatus(self.row.status),
    "price_per_hour": lambda self: Money.of(self.row.price_per_hour_e5),
    "max_hourly_price": lambda self: Money.of(self.row.max_hourly_price_e5),
}

STAND_INS[Instance] = (LightInstance,)
LASTING[LightInstance] = frozenset(each.name for each in fields(Instance) if each.init) - PASSING

for _field in fields(Instance):
    if not _field.init:
        continue  # it has a resolver
    setattr(LightInstance, _field.name, property(_CHEAP.get(_field.name) or _whole(_field.name)))
