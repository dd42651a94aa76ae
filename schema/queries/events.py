"""Queries: events and projectEvents, in the order in which subscriptions send them."""

from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

import strawberry
from sqlalchemy.ext.asyncio import AsyncSession

from schema.context import Info
from schema.error_masking import to_graphql_error
from schema.filters import EventFilter, InstanceEventFilter, ProjectEventFilter
from schema.inputs import After, First, Which
from schema.pagination import PageInfo, check_first
from schema.permissions import query
from schema.types.event import (
    InstanceEvent,
    InstanceEventConnection,
    InstanceEventEdge,
    ProjectEvent,
    ProjectEventConnection,
    ProjectEventEdge,
)
from server.errors import CursorExpired, Lagging, Refused
from server.events.cursors import Cursors
from server.events.event import Cursor, Event
from server.events.replay import check_cursor, cursor_now, page_of_events

SCAN_PAGE = 500  # events read at a time if the filter has conditions without an index
SCAN_PAGES_MAX = 10  # then the page is returned with the matches so far and a cursor to continue


@strawberry.type
class EventQueries:
    @query(
        "Past events, oldest first, in the order of `instanceEvents`. `endCursor` is always set: "
        "continue from it here, or subscribe from it. A page may be empty although there are more."
    )
    async def events(
        self,
        info: Info,
        filter: Annotated[InstanceEventFilter | None, Which] = None,
        first: First = 50,
        after: After = None,
    ) -> InstanceEventConnection:
        scan = await _read(info, filter or InstanceEventFilter(), first, after)
        edges = [
            InstanceEventEdge(cursor=cursor, node=InstanceEvent.of(event, cursor=cursor))
            for event, cursor in scan.with_cursors()
        ]
        nodes = [edge.node for edge in edges]
        return InstanceEventConnection(edges=edges, nodes=nodes, page_info=scan.page_info(after))

    @query(
        "Past events of the project that are not about an instance, oldest first, with the cursors of "
        "`events`. A page may be empty although there are more."
    )
    async def project_events(
        self,
        info: Info,
        filter: Annotated[ProjectEventFilter | None, Which] = None,
        first: First = 50,
        after: After = None,
    ) -> ProjectEventConnection:
        scan = await _read(info, filter or ProjectEventFilter(), first, after)
        edges = [
            ProjectEventEdge(cursor=cursor, node=ProjectEvent.of(event, cursor=cursor))
            for event, cursor in scan.with_cursors()
        ]
        nodes = [edge.node for edge in edges]
        return ProjectEventConnection(edges=edges, nodes=nodes, page_info=scan.page_info(after))


@dataclass(frozen=True, slots=True)
class Scan:
    """Matching events up to `end`; every event before `end` was checked."""

    events: list[Event]
    end: Cursor
    has_more: bool
    cursors: Cursors

    def with_cursors(self) -> list[tuple[Event, str]]:
        return [(event, self.cursors.of_event(Cursor(self.end.epoch, event.position))) for event in self.events]

    def page_info(self, after: str | None) -> PageInfo:
        first = self.with_cursors()[:1]
        return PageInfo(
            has_next_page=self.has_more,
            end_cursor=self.cursors.of_state(self.end),
            start_cursor=first[0][1] if first else None,
            has_previous_page=after is not None,
        )


async def _read(info: Info, filter: InstanceEventFilter | ProjectEventFilter, first: int, after: str | None) -> Scan:
    size = check_first(first)
    cursors = info.context.services.cursors
    try:
        place = None if after is None else cursors.parse(after)
        conditions = filter.to_domain(info.context.caller)
        async with info.context.read_from_replica_if_fresh() as session:
            events, end, has_more = await _scan(session, info.context.caller.project_id, conditions, size, place)
            return Scan(events, end, has_more, cursors)
    except (CursorExpired, Lagging, Refused) as error:
        raise to_graphql_error(error) from None


async def _scan(
    session: AsyncSession, project_id: UUID, filter: EventFilter, size: int, place: Cursor | None
) -> tuple[list[Event], Cursor, bool]:
    """The matching events, how far they reach, and whether there may be more."""
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
            without_instance=not filter.is_of_instance,
            limit=limit,
        )
        matches += [event for event in page if filter.matches(event)]
        if len(matches) > size:
            return matches[:size], Cursor(now.epoch, matches[size - 1].position), True
        if len(page) < limit:
            return matches, now, False
        position = page[-1].position
    return matches, Cursor(now.epoch, position or 0), True
