"""Events of the log, their types, and the cursors that mark a position in it."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol
from uuid import UUID

import orjson

from server.errors import Refused


class EventType(StrEnum):
    """The types that this code writes. Readers may meet others: newer processes write to the same log."""

    INSTANCE_CREATED = "instance.created"
    INSTANCE_STARTING = "instance.starting"
    INSTANCE_RUNNING = "instance.running"
    INSTANCE_HEALTH_CHECKING = "instance.health_checking"
    INSTANCE_READY = "instance.ready"
    INSTANCE_STOPPING = "instance.stopping"
    INSTANCE_EXITED = "instance.exited"
    INSTANCE_RESTARTING = "instance.restarting"
    INSTANCE_MIGRATING = "instance.migrating"
    INSTANCE_DELETING = "instance.deleting"
    INSTANCE_DELETED = "instance.deleted"
    INSTANCE_FAILED = "instance.failed"
    INSTANCE_CHANGED = "instance.changed"  # something other than the status
    INSTANCE_ORPHAN_FOUND = "instance.orphan_found"  # a machine was created for it and has no owner now
    OPERATION_STARTED = "operation.started"
    OPERATION_CHANGED = "operation.changed"
    OPERATION_FINISHED = "operation.finished"
    HEALTH_CHECKED = "health.checked"
    HEALTH_CHANGED = "health.changed"  # a READY instance is degraded, or no longer
    SPOT_RECLAIM_SCHEDULED = "spot.reclaim_scheduled"
    LIFETIME_ENDING = "lifetime.ending"
    LIFETIME_EXTENDED = "lifetime.extended"
    LIFETIME_ENDED = "lifetime.ended"  # a step was taken, or was missed
    LIFETIME_OVERDUE = "lifetime.overdue"
    LIFETIME_IDLE_UNKNOWN = "lifetime.idle_unknown"
    RECOVERY_BEGAN = "recovery.began"  # an attempt
    RECOVERY_STEP = "recovery.step"  # a start takes a step, perhaps after another was refused
    RECOVERY_GAVE_UP = "recovery.gave_up"
    INSTANCE_RELOCATED = "instance.relocated"  # another machine serves
    WAIT_BEGAN = "wait.began"  # for capacity
    WAIT_MATCHED = "wait.matched"  # an offer is there, and is asked for
    WAIT_RETURNED = "wait.returned"  # the offer was refused; it waits again
    WAIT_EXPIRED = "wait.expired"
    ATTEMPT_FINISHED = "attempt.finished"
    BALANCE_LOW = "balance.low"  # of the server's project
    BUDGET_THRESHOLD = "budget.threshold"
    BUDGET_EXHAUSTED = "budget.exhausted"
    BUDGET_RESET = "budget.reset"  # a new period has begun
    SPEND_DIFFERS = "spend.differs"  # a day of the provider's bill and of the ledger
    MARKET_ALERT = "market.alert"
    VOLUME_CREATING = "volume.creating"
    VOLUME_AVAILABLE = "volume.available"
    VOLUME_CHANGED = "volume.changed"  # name, size or price
    VOLUME_DELETING = "volume.deleting"
    VOLUME_DELETED = "volume.deleted"
    VOLUME_FAILED = "volume.failed"  # it was not created, or is gone at the provider
    VOLUME_ORPHAN_FOUND = "volume.orphan_found"  # it exists although it was deleted; it is deleted again
    REGISTRY_AUTH_CREATED = "registry_auth.created"
    REGISTRY_AUTH_CHANGED = "registry_auth.changed"
    REGISTRY_AUTH_DELETED = "registry_auth.deleted"  # by a caller, or outside of Pilotlight
    TEMPLATE_CREATED = "template.created"
    TEMPLATE_CHANGED = "template.changed"
    TEMPLATE_DELETED = "template.deleted"
    NETWORK_CREATED = "network.created"
    NETWORK_CHANGED = "network.changed"
    NETWORK_DELETED = "network.deleted"
    PREWARM_CREATED = "prewarm.created"
    PREWARM_CHANGED = "prewarm.changed"  # its note, or it has ended
    PREWARM_DELETED = "prewarm.deleted"


OWNER = "owner_token_id"  # in an event's data, if the instance belongs to a token that sees only its own

_PROJECT_OBJECTS = ("balance", "budget", "market", "spend", "volume", "registry_auth", "template", "network", "prewarm")
# About a project, not about one of its instances.
PROJECT_EVENTS = frozenset(each for each in EventType if each.value.partition(".")[0] in _PROJECT_OBJECTS)


@dataclass(frozen=True, slots=True)
class Event:
    """Shared by all readers of a process, so `data` must not be changed in place."""

    position: int
    id: UUID
    type: str
    project_id: UUID
    instance_id: UUID | None
    operation_id: UUID | None
    caused_by: UUID | None  # the token of the caller, if a caller caused it
    data: dict[str, Any]
    occurred_at: datetime


COLUMNS = "position, id, type, project_id, instance_id, operation_id, caused_by, data, occurred_at"


class Row(Protocol):
    """A row of either driver."""

    def __getitem__(self, column: str, /) -> Any: ...


def event_of(row: Row) -> Event:
    """From a row with `COLUMNS`; raw connections return JSON as text, sessions return it parsed."""
    data = row["data"]
    return Event(
        position=row["position"],
        id=row["id"],
        type=row["type"],
        project_id=row["project_id"],
        instance_id=row["instance_id"],
        operation_id=row["operation_id"],
        caused_by=row["caused_by"],
        data=orjson.loads(data) if isinstance(data, str) else data,
        occurred_at=row["occurred_at"],
    )


def is_hidden(event: Event, owner_id: UUID | None) -> bool:
    """From a token that sees only its own instances: events of others, and those with sums over all instances."""
    if owner_id is None:
        return False
    if event.instance_id is None:
        return event.type.partition(".")[0] in ("balance", "budget", "spend")
    return event.data.get(OWNER) != str(owner_id)


@dataclass(frozen=True, slots=True)
class Cursor:
    """A reader has seen everything up to and including `position` of the log identified by `epoch`.

    Clients get it as text (`Cursors`). A position alone would fit any log: after a restored backup it would silently
    skip the events written since.
    """

    epoch: int
    position: int


def invalid_cursor() -> Refused:
    return Refused("INVALID_CURSOR", "This cursor was not issued by this server; start again without one.", ("after",))
