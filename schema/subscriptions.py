"""What callers can watch. Every message carries its place in the log."""

from collections.abc import AsyncGenerator

import strawberry
from graphql import GraphQLError

from schema import ids
from schema.context import Info
from schema.types.event import InstanceEvent, InstanceUpdate, OperationUpdate
from schema.types.instance import Instance
from schema.types.operation import Operation
from server.db import tables
from server.errors import CursorExpired, Lagging, NotFound, Refused
from server.events.cursor import Cursor
from server.events.event import Event
from server.instances import reads
from server.instances.snapshot import restored
from server.words import OPEN_OPERATION, InstanceStatus


@strawberry.input(description="Which events; without it, all of the project's.")
class InstanceEventFilter:
    ids: list[strawberry.ID] | None = strawberry.field(default=None, description="Only of these instances.")
    types: list[str] | None = strawberry.field(default=None, description="Only of these types.")
    statuses: list[InstanceStatus] | None = strawberry.field(
        default=None, description="Only moves to one of these statuses."
    )


@strawberry.type(description="What callers can watch.")
class Subscription:
    @strawberry.subscription(
        description="Every change, in order. With `after`, everything behind that cursor first: no gap, no double."
    )
    async def instance_events(
        self, info: Info, filter: InstanceEventFilter | None = None, after: str | None = None
    ) -> AsyncGenerator[InstanceEvent]:
        wanted = filter or InstanceEventFilter()
        statuses = None if wanted.statuses is None else frozenset(str(status) for status in wanted.statuses)
        try:
            subscription = info.context.services.tail.subscribe(
                project_id=info.context.caller.project_id,
                after=None if after is None else Cursor.parse(after),
                instance_ids=None if wanted.ids is None else [ids.read(ids.INSTANCE, id) for id in wanted.ids],
                types=wanted.types,
                wanted=None if statuses is None else lambda event: event.data.get("to") in statuses,
            )
            async with subscription as events:
                async for event in events:
                    if event.instance_id is not None:
                        yield InstanceEvent.of(event, epoch=_epoch(info))
        except (CursorExpired, Lagging, Refused) as error:
            raise _fault(error) from None

    @strawberry.subscription(description="The instance as it is, then after every change.")
    async def instance_updated(self, info: Info, id: strawberry.ID) -> AsyncGenerator[InstanceUpdate]:
        caller = info.context.caller
        try:
            instance_id = ids.read(ids.INSTANCE, id)
            # Live first, then the row: whatever happens in between comes as an event, and its version tells
            # whether the row had it already.
            async with info.context.services.tail.subscribe(
                project_id=caller.project_id, after=None, instance_ids=[instance_id], wanted=_has_instance
            ) as events:
                cursor = info.context.services.tail.head()
                async with info.context.read() as session:
                    row = await reads.get_instance(session, instance_id, project_id=caller.project_id)
                if row is None:
                    raise NotFound("instance")
                seen = row.version
                yield InstanceUpdate(cursor=str(cursor), instance=Instance.of(row))
                async for event in events:
                    row = restored(tables.Instance, event.data["instance"])
                    if row.version > seen:
                        seen = row.version
                        yield InstanceUpdate(cursor=_cursor(info, event), instance=Instance.of(row))
        except (CursorExpired, Lagging, Refused) as error:
            raise _fault(error) from None

    @strawberry.subscription(description="The operation as it is, then after every change; ends when it ends.")
    async def operation_updated(self, info: Info, id: strawberry.ID) -> AsyncGenerator[OperationUpdate]:
        caller = info.context.caller
        try:
            operation_id = ids.read(ids.OPERATION, id)
            async with info.context.services.tail.subscribe(
                project_id=caller.project_id,
                after=None,
                wanted=lambda event: event.operation_id == operation_id and "operation" in event.data,
            ) as events:
                cursor = info.context.services.tail.head()
                async with info.context.read() as session:
                    row = await reads.get_operation(session, operation_id, project_id=caller.project_id)
                if row is None:
                    raise NotFound("operation")
                seen = row.version
                yield OperationUpdate(cursor=str(cursor), operation=Operation.of(row))
                while row.status in OPEN_OPERATION:
                    event = await anext(events)
                    row = restored(tables.Operation, event.data["operation"])
                    if row.version > seen:
                        seen = row.version
                        yield OperationUpdate(cursor=_cursor(info, event), operation=Operation.of(row))
        except (CursorExpired, Lagging, Refused) as error:
            raise _fault(error) from None


def _has_instance(event: Event) -> bool:
    return "instance" in event.data


def _epoch(info: Info) -> int:
    return info.context.services.tail.head().epoch


def _cursor(info: Info, event: Event) -> str:
    return str(Cursor(_epoch(info), event.position))


def _fault(error: CursorExpired | Lagging | Refused) -> GraphQLError:
    match error:
        case CursorExpired():
            message = "The events behind this cursor are no longer kept; read the present state and go on from there."
            return GraphQLError(message, extensions={"code": "CURSOR_EXPIRED", "retryable": False})
        case Lagging():
            return GraphQLError(
                "This server can't follow the log at the moment; subscribe again with your last cursor.",
                extensions={"code": "RESUME", "retryable": True},
            )
        case Refused():
            return GraphQLError(error.message, extensions={"code": error.code, "retryable": False})
