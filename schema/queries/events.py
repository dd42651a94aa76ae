"""Query: events, in the order in which subscriptions send them."""

from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

import strawberry
from sqlalchemy.ext.asyncio import AsyncSession

from schema.context import Info
from schema.error_masking import to_graphql_error
from schema.filters import EventFilter, InstanceEventFilter
from schema.inputs import After, First, Which
from schema.pagination import PageInfo, check_first
from schema.permissions import Requires
from schema.types.event import InstanceEvent, InstanceEventConnection, InstanceEventEdge
from server.enums import Role
from server.errors import CursorExpired, Refused
from server.events.event import Cursor, Event
from server.events.replay import check_cursor, cursor_now, page_of_events

SCAN_PAGE = 500  # events read at a time if the filter has conditions without an index
SCAN_PAGES_MAX = 10  # then the page is returned with the matches so far and a cursor to continue


@strawberry.type
class EventQueries:
    @strawberry.field(
        description="Past events, oldest first, in the order of `instanceEvents`. `endCursor` is always set: "
        "continue from it here, or subscribe from it. A page may be empty although there are more.",
        extensions=[Requires(Role.READER)],
    )
    async def events(
        self,
        info: Info,
        filter: Annotated[InstanceEventFilter | None, Which] = None,
        first: First = 50,
        after: After = None,
    ) -> InstanceEventConnection:
        size = check_first(first)
        try:
            place = None if after is None else Cursor.parse(after)
            conditions = (filter or InstanceEventFilter()).to_domain()
            async with info.context.read_from_replica_if_fresh() as session:
                scan = await _scan(session, info.context.caller.project_id, conditions, size, place)
        except (CursorExpired, Refused) as error:
            raise to_graphql_error(error) from None
        edges = [_edge(event, scan.end.epoch) for event in scan.events]
        return InstanceEventConnection(
            edges=edges,
            nodes=[edge.node for edge in edges],
            page_info=PageInfo(
                has_next_page=scan.has_more,
                end_cursor=str(scan.end),
                start_cursor=edges[0].cursor if edges else None,
                has_previous_page=after is not None,
            ),
        )


@dataclass(frozen=True, slots=True)
class Scan:
    """Matching events up to `end`; every event before `end` was checked."""

    events: list[Event]
    end: Cursor
    has_more: bool


async def _scan(session: AsyncSession, project_id: UUID, filter: EventFilter, size: int, place: Cursor | None) -> Scan:
    now = await cursor_now(session)
    position = None if place is None else await check_cursor(session, place)
    limit = SCAN_PAGE if filter.needs_matching else size + 1
    matches: list[Event] = []
    for _ in range(SCAN_PAGES_MAX):
        page = await page_of_events(
            session,
            project_id=project_id,
            after=position,
            through=now.position,
            instance_ids=filter.instance_ids,
            types=filter.types,
            limit=limit,
        )
        matches += [event for event in page if event.instance_id is not None and filter.matches(event)]
        if len(matches) > size:
            return Scan(matches[:size], Cursor(now.epoch, matches[size - 1].position), has_more=True)
        if len(page) < limit:
            return Scan(matches, now, has_more=False)
        position = page[-1].position
    return Scan(matches, Cursor(now.epoch, position or 0), has_more=True)


def _edge(event: Event, epoch: int) -> InstanceEventEdge:
    cursor = str(Cursor(epoch, event.position))
    return InstanceEventEdge(cursor=cursor, node=InstanceEvent.of(event, cursor=cursor))
