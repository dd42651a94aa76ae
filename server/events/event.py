"""One line of the log: what happened, to what, by whom, and how things stood right after it."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol
from uuid import UUID

import orjson


class EventType(StrEnum):
    """What this code can announce. A reader may meet others: newer processes write to the same log."""

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
    INSTANCE_ORPHAN_FOUND = "instance.orphan_found"  # a machine that was made for it and belongs to nobody now
    OPERATION_STARTED = "operation.started"
    OPERATION_CHANGED = "operation.changed"
    OPERATION_FINISHED = "operation.finished"
    HEALTH_CHECKED = "health.checked"
    SPOT_RECLAIM_SCHEDULED = "spot.reclaim_scheduled"
    ATTEMPT_FINISHED = "attempt.finished"


@dataclass(frozen=True, slots=True)
class Event:
    """Shared by all readers of a process, so nobody may change `data` in place."""

    position: int
    id: UUID
    type: str
    project_id: UUID
    instance_id: UUID | None
    operation_id: UUID | None
    caused_by: UUID | None  # the token, where a caller was behind it
    data: dict[str, Any]
    occurred_at: datetime


COLUMNS = "position, id, type, project_id, instance_id, operation_id, caused_by, data, occurred_at"


class Row(Protocol):
    """A row of either driver."""

    def __getitem__(self, column: str, /) -> Any: ...


def event_of(row: Row) -> Event:
    """From a row with `COLUMNS`; a raw connection gives JSON as text, a session gives it read already."""
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
