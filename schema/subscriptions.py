"""What callers can watch. Every message about the log carries its place in it."""

from collections.abc import AsyncGenerator
from typing import Annotated, Any

import strawberry
from graphql import GraphQLError

from schema import ids
from schema.arguments import Id, Which
from schema.context import Info
from schema.event_filter import InstanceEventFilter
from schema.guards import Requires
from schema.live.feeds import Feed, LogFeed, News, StatsFeed
from schema.live.results import fault_of
from schema.types.event import InstanceEvent, InstanceUpdate, OperationUpdate
from schema.types.instance import Instance
from schema.types.job import JobStats
from schema.types.operation import Operation
from schema.types.stats import FleetStats
from server.db import tables
from server.errors import NotFound, Refused
from server.events.cursor import Cursor
from server.events.event import Event
from server.events.replay import cursor_now
from server.instances import reads
from server.instances.snapshot import restored
from server.instances.stats import fleet_stats
from server.queue.reads import job_stats
from server.words import OPEN_OPERATION, Role


@strawberry.type(description="What callers can watch.")
class Subscription:
    @strawberry.subscription(
        description="Every change, in order. With `after`, everything behind that cursor first: no gap, no double.",
        extensions=[Requires(Role.READER)],
    )
    async def instance_events(
        self,
        info: Info,
        filter: Annotated[InstanceEventFilter | None, Which] = None,
        after: Annotated[
            str | None,
            strawberry.argument(description="The cursor of the last event that was seen; without it, from now on."),
        ] = None,
    ) -> AsyncGenerator[InstanceEvent]:
        try:
            wanted = (filter or InstanceEventFilter()).to_read()
            cursor = None if after is None else Cursor.parse(after)
        except Refused as error:
            raise _fault(error) from None

        def show(event: Event, at: str) -> News | None:
            if event.instance_id is None:
                return None
            return News(event.position, InstanceEvent.of(event, cursor=at), cursor=at)

        return _stream(
            LogFeed(
                info.context.services.tail,
                project_id=info.context.caller.project_id,
                show=show,
                instance_ids=wanted.instance_ids,
                types=wanted.types,
                wanted=wanted.matches if wanted.is_picky else None,
                after=cursor,
            )
        )

    @strawberry.subscription(
        description="The instance as it is, then after every change.", extensions=[Requires(Role.READER)]
    )
    async def instance_updated(self, info: Info, id: Id) -> AsyncGenerator[InstanceUpdate]:
        context, project_id = info.context, info.context.caller.project_id
        instance_id = _read(ids.INSTANCE, id)

        async def state() -> News:
            async with context.read() as session:
                row = await reads.get_instance(session, instance_id, project_id=project_id)
                cursor = await cursor_now(session)
            if row is None:
                raise NotFound("instance")
            return news(row, cursor.position, str(cursor))

        def show(event: Event, at: str) -> News | None:
            return news(restored(tables.Instance, event.data["instance"]), event.position, at)

        def news(row: tables.Instance, position: int, cursor: str) -> News:
            update = InstanceUpdate(cursor=cursor, instance=Instance.of(row))
            return News(position, update, version=row.version, cursor=cursor)

        return _stream(
            LogFeed(
                context.services.tail,
                project_id=project_id,
                show=show,
                instance_ids=[instance_id],
                wanted=lambda event: "instance" in event.data,
                state=state,
            )
        )

    @strawberry.subscription(
        description="The operation as it is, then after every change; ends when it ends.",
        extensions=[Requires(Role.READER)],
    )
    async def operation_updated(self, info: Info, id: Id) -> AsyncGenerator[OperationUpdate]:
        context, project_id = info.context, info.context.caller.project_id
        operation_id = _read(ids.OPERATION, id)

        async def state() -> News:
            async with context.read() as session:
                row = await reads.get_operation(session, operation_id, project_id=project_id)
                cursor = await cursor_now(session)
            if row is None:
                raise NotFound("operation")
            return news(row, cursor.position, str(cursor))

        def show(event: Event, at: str) -> News | None:
            return news(restored(tables.Operation, event.data["operation"]), event.position, at)

        def news(row: tables.Operation, position: int, cursor: str) -> News:
            update = OperationUpdate(cursor=cursor, operation=Operation.of(row))
            is_last = row.status not in OPEN_OPERATION
            return News(position, update, version=row.version, cursor=cursor, is_last=is_last)

        return _stream(
            LogFeed(
                context.services.tail,
                project_id=project_id,
                show=show,
                wanted=lambda event: event.operation_id == operation_id and "operation" in event.data,
                state=state,
            )
        )

    @strawberry.subscription(
        description="How many instances there are in each status and what they cost; when that changes, at most once a "
        "second.",
        extensions=[Requires(Role.READER)],
    )
    async def fleet_stats(self, info: Info) -> AsyncGenerator[FleetStats]:
        context, project_id = info.context, info.context.caller.project_id

        async def look() -> FleetStats:
            async with context.read() as session:
                return FleetStats.of(await fleet_stats(session, project_id=project_id), await cursor_now(session))

        return _stream(StatsFeed(look, same=lambda one, other: one.found == other.found))

    @strawberry.subscription(
        description="How the queue is doing: the project's jobs, or all there are for an ADMIN of the project "
        "`default`; when that changes, at most once a second.",
        extensions=[Requires(Role.READER)],
    )
    async def job_stats(self, info: Info) -> AsyncGenerator[JobStats]:
        context, caller = info.context, info.context.caller

        async def look() -> JobStats:
            async with context.read() as session:
                scope = None if await context.runs_the_server() else caller.project_id
                return JobStats.of(await job_stats(session, project_id=scope), await cursor_now(session))

        return _stream(
            StatsFeed(look, same=lambda one, other: (one.kinds, one.workers) == (other.kinds, other.workers))
        )


def _stream(feed: Feed) -> AsyncGenerator[Any]:
    """A feed can be iterated; the type that GraphQL wants to see here is narrower than what it needs."""
    return feed  # type: ignore[return-value]


def _read(prefix: str, id: str) -> Any:
    try:
        return ids.read(prefix, id)
    except NotFound as error:
        raise _fault(error) from None


def _fault(error: Refused) -> GraphQLError:
    return fault_of(error) or GraphQLError(error.message)
