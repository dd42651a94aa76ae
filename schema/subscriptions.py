"""The subscriptions. Every message made from the event log carries its cursor."""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, TypeVar
from uuid import UUID

import strawberry

from schema import ids
from schema.context import Info
from schema.error_masking import to_graphql_error
from schema.event_sources import (
    LOG_LINES,
    EventSource,
    LogSource,
    LogTextSource,
    ReadPace,
    ShownEvents,
    SourceEvent,
    StatsSource,
)
from schema.filters import EventFilter, InstanceEventFilter, InstanceFilter, ProjectEventFilter
from schema.inputs import Id, Which
from schema.permissions import Requires, subscription
from schema.queries.access import InstanceId, WhichLog, find_row
from schema.types.event import InstanceEvent, InstanceUpdate, OperationUpdate, ProjectEvent
from schema.types.fleet import FleetStats
from schema.types.instance import Instance
from schema.types.job import JobStats
from schema.types.log import InstanceLog
from schema.types.market.offer import MarketFilter, MarketOffer
from schema.types.operation import Operation
from schema.types.spend.report import SpendSummary
from server.db import tables
from server.enums import OPEN_OPERATION, InstanceStatus, Role
from server.errors import CursorExpired, NotFound, Refused
from server.events.event import Cursor, Event
from server.events.replay import cursor_now
from server.instances.events import restored
from server.instances.queries import fast_page, operations
from server.instances.queries.fleet import fleet_stats
from server.instances.queries.log import LogKind, LogPart, log_address
from server.market.queries import read_offers, watch_offers
from server.queue.queries import job_stats
from server.spend.report import read_summaries

WATCH_INTERVAL = 20.0  # seconds; shorter than half of the time for which a watch holds
Row = TypeVar("Row", tables.Instance, tables.Operation)
Read = TypeVar("Read", tables.InstanceRow, tables.OperationRow)


@strawberry.type(description="Subscriptions: receive changes as they happen.")
class Subscription:
    @subscription(
        "All changes, in order. With `after`: first everything since that cursor, without gaps or duplicates."
    )
    async def instance_events(
        self,
        info: Info,
        filter: Annotated[InstanceEventFilter | None, Which] = None,
        after: Annotated[
            str | None,
            strawberry.argument(description="Cursor of the last event you received. Default: only new events."),
        ] = None,
    ) -> AsyncGenerator[InstanceEvent]:
        try:
            conditions = (filter or InstanceEventFilter()).to_domain(info.context.caller)
            cursor = None if after is None else info.context.services.cursors.parse(after)
        except (CursorExpired, Refused) as error:
            raise to_graphql_error(error) from None

        return _log(info, conditions, cursor, InstanceEvent.of)

    @subscription(
        "All events of the project that are not about an instance. Cursors and replay are those of `instanceEvents`."
    )
    async def project_events(
        self,
        info: Info,
        filter: Annotated[ProjectEventFilter | None, Which] = None,
        after: Annotated[
            str | None,
            strawberry.argument(description="Cursor of the last event you received. Default: only new events."),
        ] = None,
    ) -> AsyncGenerator[ProjectEvent]:
        try:
            conditions = (filter or ProjectEventFilter()).to_domain(info.context.caller)
            cursor = None if after is None else info.context.services.cursors.parse(after)
        except (CursorExpired, Refused) as error:
            raise to_graphql_error(error) from None
        return _log(info, conditions, cursor, ProjectEvent.of)

    @subscription("The instance now, then after every change. Completes when the instance is DELETED.")
    async def instance_updated(self, info: Info, id: Id) -> AsyncGenerator[InstanceUpdate]:
        instance_id = _parse_id(ids.INSTANCE, id)

        def show(row: tables.InstanceLike, position: int, cursor: str) -> SourceEvent:
            update = InstanceUpdate(cursor=cursor, instance=Instance.of(row))
            is_last = row.status == InstanceStatus.DELETED
            return SourceEvent(position, update, version=row.version, cursor=cursor, is_last=is_last)

        return _updates(
            info,
            tables.Instance,
            partial(fast_page.read_in, instance_id=instance_id),
            show,
            instance_ids=[instance_id],
            predicate=lambda event: "instance" in event.data,
        )

    @subscription("The operation now, then after every change. Completes when the operation ends.")
    async def operation_updated(self, info: Info, id: Id) -> AsyncGenerator[OperationUpdate]:
        operation_id = _parse_id(ids.OPERATION, id)

        def show(row: tables.OperationLike, position: int, cursor: str) -> SourceEvent:
            update = OperationUpdate(cursor=cursor, operation=Operation.of(row))
            is_last = row.status not in OPEN_OPERATION
            return SourceEvent(position, update, version=row.version, cursor=cursor, is_last=is_last)

        return _updates(
            info,
            tables.Operation,
            partial(operations.read_in, operation_id=operation_id),
            show,
            predicate=lambda event: event.operation_id == operation_id and "operation" in event.data,
        )

    @subscription(
        "The last 200 lines of a log, then what is added to it, every 2 seconds. Ends with an error when "
        "the log can no longer be read. Needs the role OPERATOR.",
        Requires(Role.OPERATOR),
    )
    async def instance_log(
        self, info: Info, instance_id: InstanceId, which: WhichLog = LogKind.CONTAINER
    ) -> AsyncGenerator[InstanceLog]:
        context = info.context
        row = await find_row(info, instance_id)
        if row is None:
            raise to_graphql_error(NotFound("instance"))
        services, project_id = context.services, context.caller.project_id
        # The execution is shared, so it has no token: the project's share of live reads pays for it.
        by = replace(context.caller, token_id=project_id)
        address = await log_address(services.provider_reader, row, which, by=by)
        if address is None:
            raise to_graphql_error(Refused("INSTANCE_NOT_RUNNING", "There is no machine whose log can be read."))
        reader, turn = services.log_reader, _turn(info)

        async def read_end() -> LogPart:
            await turn()
            return (await reader.read_end(address)).last_lines(LOG_LINES)

        async def read_from(begin: int) -> LogPart:
            await turn()
            return await reader.read_from(address, begin)

        return _stream(LogTextSource(read_end, read_from, InstanceLog.of))

    @subscription(
        "Instance counts by status and what the provider bills for them; sent on change, at most once a "
        "second. Also a query."
    )
    async def fleet_stats(
        self, info: Info, filter: Annotated[InstanceFilter | None, Which] = None
    ) -> AsyncGenerator[FleetStats]:
        context, project_id = info.context, info.context.caller.project_id
        wanted = (filter or InstanceFilter()).to_domain(info.context.caller)

        async def read() -> FleetStats:
            async with context.read() as session:
                stats = await fleet_stats(session, project_id=project_id, wanted=wanted)
                return FleetStats.of(stats, context.state_cursor(await cursor_now(session)))

        return _polled(info, read, same=lambda one, other: one.stats == other.stats)

    @subscription(
        "What the project spends; sent when an entry of the ledger begins, ends or is cut, at most once a "
        "second. Also `Project.spend`."
    )
    async def spend(self, info: Info) -> AsyncGenerator[SpendSummary]:
        context, project_id = info.context, info.context.caller.project_id

        async def read() -> SpendSummary:
            async with context.read() as session:
                summary = (await read_summaries(session, [project_id], token_id=context.caller.owner_id))[project_id]
                return SpendSummary.of(summary, context.state_cursor(await cursor_now(session)))

        return _polled(info, read, same=lambda one, other: one.summary.open_entries == other.summary.open_entries)

    @subscription(
        "All matching offers now, and again whenever one of them changes, at most once a second. While "
        "something subscribes to them, they are read every MARKET_HOT."
    )
    async def market(
        self, info: Info, filter: Annotated[MarketFilter | None, Which] = None
    ) -> AsyncGenerator[list[MarketOffer]]:
        context, wanted = info.context, (filter or MarketFilter()).to_domain()
        watched_at = float("-inf")

        async def read() -> list[MarketOffer]:
            nonlocal watched_at
            if time.monotonic() > watched_at + WATCH_INTERVAL:
                async with context.write() as session:
                    await watch_offers(session, wanted)
                watched_at = time.monotonic()
            async with context.read() as session:
                return [MarketOffer.of(offer) for offer in await read_offers(session, wanted)]

        return _polled(
            info, read, same=lambda one, other: [each.state for each in one] == [each.state for each in other]
        )

    @subscription(
        "Queue statistics: of the project's jobs, or of all jobs for an ADMIN of the project "
        "`default`; sent on change, at most once a second."
    )
    async def job_stats(self, info: Info) -> AsyncGenerator[JobStats]:
        context, caller = info.context, info.context.caller

        async def read() -> JobStats:
            async with context.read() as session:
                scope = None if await context.is_server_admin() else caller.project_id
                return JobStats.of(
                    await job_stats(session, project_id=scope, owner_id=caller.owner_id),
                    context.state_cursor(await cursor_now(session)),
                )

        return _polled(info, read, same=lambda one, other: (one.kinds, one.workers) == (other.kinds, other.workers))


def _log(
    info: Info, conditions: EventFilter, after: Cursor | None, to_item: Callable[..., object]
) -> AsyncGenerator[Any]:
    """The project's events that match; `to_item` makes the GraphQL object of an event and its cursor."""
    shown = info.context.services.database.shared(ShownEvents)

    def show(event: Event, at: str) -> SourceEvent | None:
        if conditions.is_of_instance == (event.instance_id is None):
            return None
        return SourceEvent(event.position, shown.of(event, at, to_item), cursor=at)

    return _stream(
        LogSource(
            info.context.services.tail,
            info.context.services.cursors,
            project_id=info.context.caller.project_id,
            show=show,
            instance_ids=conditions.instance_ids,
            types=conditions.types,
            without_instance=not conditions.is_of_instance,
            predicate=conditions.matches if conditions.needs_matching else None,
            after=after,
        )
    )


def _updates(
    info: Info,
    kind: type[Row],
    get: Callable[..., Awaitable[Read | None]],
    show: Callable[[Row | Read, int, str], SourceEvent],
    *,
    predicate: Callable[[Event], bool],
    instance_ids: Collection[UUID] | None = None,
) -> AsyncGenerator[Any]:
    """A row's present state, then its state at each event; `show` makes a message of a row, its position and cursor."""
    context, project_id = info.context, info.context.caller.project_id
    name = kind.__tablename__  # of the row's snapshot in events, too

    async def state() -> SourceEvent:
        async with context.read() as session:
            row = await get(session, by=context.caller)
            cursor = await cursor_now(session)
        if row is None:
            raise NotFound(name)
        return show(row, cursor.position, context.state_cursor(cursor))

    def show_event(event: Event, at: str) -> SourceEvent:
        return show(restored(kind, event.data[name]), event.position, at)

    return _stream(
        LogSource(
            context.services.tail,
            context.services.cursors,
            show=show_event,
            state=state,
            project_id=project_id,
            instance_ids=instance_ids,
            predicate=predicate,
        )
    )


def _polled(info: Info, read: Callable[[], Awaitable[Any]], *, same: Callable[[Any, Any], bool]) -> AsyncGenerator[Any]:
    """What `read` returns, now and whenever it is not the same any more."""
    turn = _turn(info)

    async def read_in_turn() -> Any:
        await turn()
        return await read()

    return _stream(StatsSource(read_in_turn, same=same))


def _turn(info: Info) -> Callable[[], Awaitable[None]]:
    """Waits until the project may read once more."""
    return partial(info.context.services.database.shared(ReadPace).take, info.context.caller.project_id)


def _stream(source: EventSource) -> AsyncGenerator[Any]:
    """A source can be iterated; Strawberry's expected type is narrower than what it needs."""
    return source  # type: ignore[return-value]


def _parse_id(prefix: str, id: str) -> Any:
    try:
        return ids.parse(prefix, id)
    except NotFound as error:
        raise to_graphql_error(error) from None
