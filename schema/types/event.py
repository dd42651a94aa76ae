"""The log, as subscribers see it."""

from datetime import datetime
from uuid import UUID

import strawberry

from schema import ids
from schema.context import Info
from schema.types.instance import Instance
from schema.types.operation import Operation
from schema.types.page import PageInfo
from schema.types.probe import InstanceHealth
from schema.types.token import Token
from server.db import tables
from server.events.event import Event, EventType
from server.instances.snapshot import restored
from server.words import InstanceStatus

TYPES = (
    "What happened, in the words of webhooks: "
    + ", ".join(EventType)
    + ". There may be others: a newer server beside this one can write them."
)


@strawberry.type(description="One line of the log: what changed, and how things stood right after it.")
class InstanceEvent:
    token_row_id: strawberry.Private[UUID | None]
    id: strawberry.ID = strawberry.field(description="The same wherever and however often the event is seen.")
    cursor: str = strawberry.field(description="Give it as `after` to go on behind this event.")
    type: str = strawberry.field(description=TYPES)
    occurred_at: datetime = strawberry.field(description="When it was written.")
    instance_id: strawberry.ID = strawberry.field(description="The instance it is about.")
    previous_status: InstanceStatus | None = strawberry.field(description="The status before, where it changed.")
    status: InstanceStatus | None = strawberry.field(description="The status after, where it changed.")
    instance: Instance | None = strawberry.field(description="The instance as of this event, where it changed.")
    operation: Operation | None = strawberry.field(description="The operation as of this event, where it changed.")
    health: InstanceHealth | None = strawberry.field(description="What the probes found, where that is what is told.")

    @strawberry.field(description="The token behind it; null where no caller was.")
    async def caused_by(self, info: Info) -> Token | None:
        return await Token.found(info, self.token_row_id)

    @classmethod
    def of(cls, event: Event, *, cursor: str) -> "InstanceEvent":
        instance, operation = event.data.get("instance"), event.data.get("operation")
        previous, status = event.data.get("from"), event.data.get("to")
        if event.instance_id is None:
            raise LookupError("an event about no instance")
        return cls(
            token_row_id=event.caused_by,
            id=strawberry.ID(ids.shown(ids.EVENT, event.id)),
            cursor=cursor,
            type=event.type,
            occurred_at=event.occurred_at,
            instance_id=strawberry.ID(ids.shown(ids.INSTANCE, event.instance_id)),
            previous_status=InstanceStatus(previous) if previous else None,
            status=InstanceStatus(status) if status else None,
            instance=Instance.of(restored(tables.Instance, instance), at=event.occurred_at) if instance else None,
            operation=Operation.of(restored(tables.Operation, operation)) if operation else None,
            health=InstanceHealth.told(event.data["health"]) if event.data.get("health") else None,
        )


@strawberry.type(description="An instance after a change, or as it is when watching begins.")
class InstanceUpdate:
    cursor: str = strawberry.field(description="The place in the log that this state belongs to.")
    instance: Instance = strawberry.field(description="The instance.")


@strawberry.type(description="An operation after a change, or as it is when watching begins.")
class OperationUpdate:
    cursor: str = strawberry.field(description="The place in the log that this state belongs to.")
    operation: Operation = strawberry.field(description="The operation.")


@strawberry.type(description="One event of a page.")
class InstanceEventEdge:
    cursor: str = strawberry.field(description="The place right after this one.")
    node: InstanceEvent = strawberry.field(description="The event.")


@strawberry.type(description="A page of the log.")
class InstanceEventConnection:
    edges: list[InstanceEventEdge] = strawberry.field(description="The events with their cursors.")
    nodes: list[InstanceEvent] = strawberry.field(description="The events alone.")
    page_info: PageInfo = strawberry.field(description="Where this page stands.")
