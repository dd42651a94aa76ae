"""Types of events and subscription messages."""

from collections.abc import Mapping
from datetime import datetime
from operator import attrgetter
from typing import Any
from uuid import UUID

import strawberry

from schema import ids
from schema.context import Info
from schema.ids import Node
from schema.loaded import Lookup
from schema.pagination import Connection, Edge
from schema.types.health import InstanceHealth
from schema.types.instance import Instance, InstanceState
from schema.types.instance_parts import KeyValue, pairs
from schema.types.market.alert import MarketAlert
from schema.types.money import BillingMode
from schema.types.operation import Operation, OperationState
from schema.types.spend.budget import Budget
from schema.types.token import Token
from schema.types.volume import Volume
from server.db import tables
from server.enums import InstanceStatus
from server.events.event import PROJECT_EVENTS, Event, EventType
from server.instances.events import restored

ALL_TYPES = ", ".join(EventType)
TYPES = (
    "Event type, as in webhooks: "
    + ", ".join(each for each in EventType if each not in PROJECT_EVENTS)
    + ". Expect others: a newer server version may write them."
)


@strawberry.type(description="A create attempt at an event.")
class EventAttempt:
    number: int = strawberry.field(description="Counts from 1 within the operation.")
    region: str = strawberry.field(description="Region code, such as AS-SGP-02.")
    billing_mode: BillingMode | None = strawberry.field(description="Billing mode that was requested, if any.")
    status: str = strawberry.field(description="How it ended: CREATED, REJECTED or ABSENT.")
    reason_code: str | None = strawberry.field(description="Why it was rejected; null otherwise.")
    reason_message: str | None = strawberry.field(description="The same for people.")

    @classmethod
    def of(cls, attempt: Mapping[str, Any]) -> "EventAttempt":
        return cls(
            number=attempt["number"],
            region=attempt["region"],
            billing_mode=BillingMode.of(attempt["billing_mode"]),
            status=attempt["status"],
            reason_code=attempt["reason_code"],
            reason_message=attempt["reason_message"],
        )


@strawberry.type(description="An instance as it was right after an event. For its present state, use `Instance`.")
class InstanceSnapshot(InstanceState):
    instance_id: strawberry.ID = strawberry.field(description="Id of the instance.")

    @classmethod
    def identity(cls, row: tables.InstanceLike) -> dict[str, Any]:
        return {"instance_id": strawberry.ID(ids.format_id(ids.INSTANCE, row.id))}


@strawberry.type(description="An operation as it was right after an event. For its present state, use `Operation`.")
class OperationSnapshot(OperationState):
    operation_id: strawberry.ID = strawberry.field(description="Id of the operation.")

    @classmethod
    def identity(cls, row: tables.OperationLike) -> dict[str, Any]:
        return {"operation_id": strawberry.ID(ids.format_id(ids.OPERATION, row.id))}


INSTANCE = Lookup(
    attrgetter("instance"), attrgetter("instance_row_id"), lambda row: None if row is None else Instance.of(row)
)
OPERATION = Lookup(
    attrgetter("operation"), attrgetter("operation_row_id"), lambda row: None if row is None else Operation.of(row)
)
CAUSED_BY = Lookup(attrgetter("token"), attrgetter("token_row_id"), lambda row: None if row is None else Token.of(row))


@strawberry.type(description="One event: what changed, and the state right after it.")
class InstanceEvent(Node):
    token_row_id: strawberry.Private[UUID | None]
    instance_row_id: strawberry.Private[UUID]
    operation_row_id: strawberry.Private[UUID | None]
    cursor: str = strawberry.field(description="Cursor: pass it as `after` to continue behind this event.")
    type: str = strawberry.field(description=TYPES)
    occurred_at: datetime = strawberry.field(description="Time of the event.")
    instance_id: strawberry.ID = strawberry.field(description="Id of the instance.")
    previous_status: InstanceStatus | None = strawberry.field(
        description="Status before the event; null if it did not change."
    )
    status: InstanceStatus | None = strawberry.field(description="Status after the event; null if it did not change.")
    instance_snapshot: InstanceSnapshot | None = strawberry.field(
        description="The instance right after this event; null if it did not change."
    )
    operation_snapshot: OperationSnapshot | None = strawberry.field(
        description="The operation right after this event; null if it did not change."
    )
    operation_id: strawberry.ID | None = strawberry.field(
        description="Id of the operation that it belongs to; null if it was not part of one."
    )
    attempt: EventAttempt | None = strawberry.field(
        description="The create attempt of `attempt.finished`; the last one of the create of `operation.finished`."
    )
    health: InstanceHealth | None = strawberry.field(description="Result of the health check, for events about health.")
    data: list[KeyValue] = strawberry.field(description="Further values, by name; docs/events.md lists them by type.")

    @strawberry.field(
        description="The instance as it is now; null if it is no longer stored.", metadata=INSTANCE.metadata
    )
    async def instance(self, info: Info) -> Instance | None:
        return await INSTANCE.load(self, info)

    @strawberry.field(
        description="Its operation as it is now; null if there was none, or if it is no longer stored.",
        metadata=OPERATION.metadata,
    )
    async def operation(self, info: Info) -> Operation | None:
        return await OPERATION.load(self, info)

    @strawberry.field(
        description="Token that caused it; null if it was not caused by a request.", metadata=CAUSED_BY.metadata
    )
    async def caused_by(self, info: Info) -> Token | None:
        return await CAUSED_BY.load(self, info)

    @classmethod
    def of(cls, event: Event, *, cursor: str) -> "InstanceEvent":
        from schema.lazy_instance import LazySnapshot  # noqa: PLC0415 - the two modules refer to each other

        instance, operation = event.data.get("instance"), event.data.get("operation")
        previous, status = event.data.get("from"), event.data.get("to")
        if event.instance_id is None:
            raise LookupError("an event about no instance")
        return cls(
            token_row_id=event.caused_by,
            instance_row_id=event.instance_id,
            operation_row_id=event.operation_id,
            id=strawberry.ID(ids.format_id(ids.EVENT, event.id)),
            cursor=cursor,
            type=event.type,
            occurred_at=event.occurred_at,
            instance_id=strawberry.ID(ids.format_id(ids.INSTANCE, event.instance_id)),
            previous_status=InstanceStatus(previous) if previous else None,
            status=InstanceStatus(status) if status else None,
            instance_snapshot=LazySnapshot(restored(tables.Instance, instance), at=event.occurred_at)
            if instance
            else None,
            operation_snapshot=OperationSnapshot.of(restored(tables.Operation, operation)) if operation else None,
            operation_id=None
            if event.operation_id is None
            else strawberry.ID(ids.format_id(ids.OPERATION, event.operation_id)),
            attempt=EventAttempt.of(event.data["attempt"]) if event.data.get("attempt") else None,
            health=InstanceHealth.of_event(event.data["health"]) if event.data.get("health") else None,
            data=pairs(event.data.get("values") or {}),
        )


@strawberry.type(description="One event of the project that is not about one of its instances.")
class ProjectEvent(Node):
    token_row_id: strawberry.Private[UUID | None]
    objects: strawberry.Private[Mapping[str, str]]  # ids of what it is about, by the name of the field that shows it
    cursor: str = strawberry.field(description="Cursor: pass it as `after` to continue behind this event.")
    type: str = strawberry.field(
        description="Event type: " + ", ".join(sorted(PROJECT_EVENTS)) + ". Expect others from newer servers."
    )
    occurred_at: datetime = strawberry.field(description="Time of the event.")
    data: list[KeyValue] = strawberry.field(
        description="Values as of the event, by name; docs/events.md lists them by type."
    )

    @strawberry.field(description="The budget of a `budget.*` event as it is now; null if it was deleted.")
    async def budget(self, info: Info) -> Budget | None:
        return await Budget.load(info, self.objects["budget"]) if "budget" in self.objects else None

    @strawberry.field(description="The alert of a `market.alert` event as it is now; null if it was deleted.")
    async def alert(self, info: Info) -> MarketAlert | None:
        return await MarketAlert.load(info, self.objects["alert"]) if "alert" in self.objects else None

    @strawberry.field(description="The volume of a `volume.*` event as it is now; null if it was deleted.")
    async def volume(self, info: Info) -> Volume | None:
        return await Volume.load(info, self.objects["volume"]) if "volume" in self.objects else None

    @strawberry.field(
        description="Token that caused it; null if it was not caused by a request.", metadata=CAUSED_BY.metadata
    )
    async def caused_by(self, info: Info) -> Token | None:
        return await CAUSED_BY.load(self, info)

    @classmethod
    def of(cls, event: Event, *, cursor: str) -> "ProjectEvent":
        values: Mapping[str, Any] = event.data.get("values") or {}
        return cls(
            token_row_id=event.caused_by,
            objects=event.data.get("objects") or {},
            id=strawberry.ID(ids.format_id(ids.EVENT, event.id)),
            cursor=cursor,
            type=event.type,
            occurred_at=event.occurred_at,
            data=pairs({key: str(value) for key, value in values.items()}),
        )


@strawberry.type(description="An event of the project with its cursor.")
class ProjectEventEdge(Edge[ProjectEvent]):
    pass


@strawberry.type(description="A page of events of the project.")
class ProjectEventConnection(Connection[ProjectEventEdge, ProjectEvent]):
    pass


@strawberry.type(description="An instance after a change, or at the start of the subscription.")
class InstanceUpdate:
    cursor: str = strawberry.field(description="Position of this state in the event log.")
    instance: Instance = strawberry.field(description="The instance.")


@strawberry.type(description="An operation after a change, or at the start of the subscription.")
class OperationUpdate:
    cursor: str = strawberry.field(description="Position of this state in the event log.")
    operation: Operation = strawberry.field(description="The operation.")


@strawberry.type(description="An event with its cursor.")
class InstanceEventEdge(Edge[InstanceEvent]):
    pass


@strawberry.type(description="A page of events.")
class InstanceEventConnection(Connection[InstanceEventEdge, InstanceEvent]):
    pass
