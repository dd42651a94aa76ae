"""The log as pages, in the order in which it is watched."""

from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

import strawberry
from sqlalchemy.ext.asyncio import AsyncSession

from schema.arguments import After, First, Which
from schema.context import Info
from schema.event_filter import InstanceEventFilter, Wanted
from schema.guards import Requires
from schema.live.results import fault_of
from schema.paging import check_first
from schema.types.event import InstanceEvent, InstanceEventConnection, InstanceEventEdge
from schema.types.page import PageInfo
from server.errors import CursorExpired, Refused
from server.events.cursor import Cursor
from server.events.event import Event
from server.events.replay import check_cursor, cursor_now, page_of_events
from server.words import Role

PAGE = 500  # events read at a time where the filter is more than the indexes know
MOST_PAGES = 10  # then the caller gets what was found so far, and a cursor to go on with


@strawberry.type
class EventQueries:
    @strawberry.field(
        description="Past events, oldest first, in the order in which instanceEvents tells them. `endCursor` is always "
        "there: go on with it here, or watch from it. A page may be empty while there is more.",
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
            wanted = (filter or InstanceEventFilter()).to_read()
            async with info.context.read_widely() as session:
                scan = await _scan(session, info.context.caller.project_id, wanted, size, place)
        except (CursorExpired, Refused) as error:
            raise fault_of(error) or error from None
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
    """What was found, and how far was looked: all before `end` is here or was not wanted."""

    events: list[Event]
    end: Cursor
    has_more: bool


async def _scan(session: AsyncSession, project_id: UUID, wanted: Wanted, size: int, place: Cursor | None) -> Scan:
    now = await cursor_now(session)
    position = None if place is None else await check_cursor(session, place)
    limit = PAGE if wanted.is_picky else size + 1
    found: list[Event] = []
    for _ in range(MOST_PAGES):
        page = await page_of_events(
            session,
            project_id=project_id,
            after=position,
            through=now.position,
            instance_ids=wanted.instance_ids,
            types=wanted.types,
            limit=limit,
        )
        found += [event for event in page if event.instance_id is not None and wanted.matches(event)]
        if len(found) > size:
            return Scan(found[:size], Cursor(now.epoch, found[size - 1].position), has_more=True)
        if len(page) < limit:
            return Scan(found, now, has_more=False)
        position = page[-1].position
    return Scan(found, Cursor(now.epoch, position or 0), has_more=True)


def _edge(event: Event, epoch: int) -> InstanceEventEdge:
    cursor = str(Cursor(epoch, event.position))
    return InstanceEventEdge(cursor=cursor, node=InstanceEvent.of(event, cursor=cursor))
