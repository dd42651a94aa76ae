"""Reading the log from the tables: pages of past events, and the place in the log at which a snapshot holds."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncSession

from server.errors import CursorExpired
from server.events.cursor import Cursor, invalid_cursor
from server.events.event import COLUMNS, Event, event_of
from server.events.partitions import PARTITION_SIZE

PAGE_OF_PROJECT = f"""
    SELECT {COLUMNS} FROM event
    WHERE project_id = :project_id AND position > :after AND position <= :through {{more}}
    ORDER BY position LIMIT :limit
"""
# Instance by instance, so that each is one walk along its own index. With `= ANY` the planner may prefer to walk
# the whole log in order, throwing away what does not fit.
PAGE_OF_INSTANCES = f"""
    SELECT found.* FROM unnest(CAST(:instance_ids AS uuid[])) AS wanted (id)
    CROSS JOIN LATERAL (
        SELECT {COLUMNS} FROM event
        WHERE instance_id = wanted.id AND project_id = :project_id
          AND position > :after AND position <= :through {{more}}
        ORDER BY position LIMIT :limit
    ) AS found
    ORDER BY position LIMIT :limit
"""
# Positions that are looked through first, then twice as many: most pages are full after one or two partitions, and the
# planner looks at every partition that a statement might touch.
FIRST_SPAN = PARTITION_SIZE
OF_TYPES = "AND type = ANY (CAST(:types AS text[]))"
STATE = text("SELECT epoch, head FROM event_log")
IS_KEPT = text("SELECT EXISTS (SELECT FROM event WHERE position = :position)")
UNANNOUNCED = text("SELECT id FROM outbox WHERE project_id = :project_id")

_STATEMENTS: dict[tuple[bool, bool], TextClause] = {
    (by_instance, by_type): text(
        (PAGE_OF_INSTANCES if by_instance else PAGE_OF_PROJECT).format(more=OF_TYPES if by_type else "")
    )
    for by_instance in (False, True)
    for by_type in (False, True)
}


async def page_of_events(
    session: AsyncSession,
    *,
    project_id: UUID,
    after: int | None,
    through: int | None = None,
    instance_ids: Collection[UUID] | None = None,
    types: Collection[str] | None = None,
    limit: int,
) -> list[Event]:
    """The first `limit` events after a position, oldest first; None: from the oldest that is kept.

    Raises CursorExpired rather than begin after a hole.
    """
    if through is None:
        through = await position_now(session)
    parameters: dict[str, Any] = {"project_id": project_id}
    if instance_ids is not None:
        parameters["instance_ids"] = list(instance_ids)
    if types is not None:
        parameters["types"] = [str(each) for each in types]
    statement = _STATEMENTS[instance_ids is not None, types is not None]
    at = 0 if after is None else after
    # What an instance did may be anywhere, and each look would be for nothing.
    span = FIRST_SPAN if instance_ids is None else through
    events: list[Event] = []
    while at < through and len(events) < limit:
        until = min(through, at + span)
        wanted = parameters | {"after": at, "through": until, "limit": limit - len(events)}
        events += [event_of(row) for row in (await session.execute(statement, wanted)).mappings()]
        at, span = until, span * 2
    # Asked after the page was read: partitions go oldest first, so if the first event of the span is still there,
    # all of it was. (A dropped table is gone at once, even from a transaction whose snapshot is older.)
    if after is not None and after < through:
        await _refuse_unless_kept(session, after + 1)
    return events


async def position_now(session: AsyncSession) -> int:
    """Every change announced up to this position is in what this transaction reads.

    The converse does not hold: it may read changes whose events have no position yet. See `moment_of`.
    """
    return (await cursor_now(session)).position


async def cursor_now(session: AsyncSession) -> Cursor:
    """`position_now` as the caller's cursor."""
    row = (await session.execute(STATE)).one_or_none()
    return Cursor(0, 0) if row is None else Cursor(row.epoch, row.head)


async def has_reached(session: AsyncSession, cursor: Cursor) -> bool:
    """Whether this copy of the log goes that far. Asked in the transaction that is then read in."""
    now = await cursor_now(session)
    return now.epoch == cursor.epoch and now.position >= cursor.position


@dataclass(frozen=True, slots=True)
class Moment:
    """Where a read transaction stands in the log.

    What the transaction reads is exactly: every change announced up to `cursor`, and those of the `unannounced`
    events, whose positions will be above it. So whoever shows a state and then follows from `cursor` must skip the
    unannounced ones; everything else that comes is news, and nothing is missing.
    """

    cursor: Cursor
    unannounced: frozenset[UUID]


async def moment_of(session: AsyncSession, *, project_id: UUID) -> Moment:
    """For a session of `Database.read()`: all its statements see one snapshot, in any order."""
    cursor = await cursor_now(session)
    ids = (await session.execute(UNANNOUNCED, {"project_id": project_id})).scalars()
    return Moment(cursor, frozenset(ids))


async def check_cursor(session: AsyncSession, cursor: Cursor) -> int:
    """The position to read on from; refuses a cursor of another log, one beyond the head, and one too old."""
    now = await cursor_now(session)
    if cursor.epoch != now.epoch:
        raise CursorExpired
    if cursor.position > now.position:
        raise invalid_cursor()
    if cursor.position < now.position:
        await _refuse_unless_kept(session, cursor.position + 1)
    return cursor.position


async def _refuse_unless_kept(session: AsyncSession, position: int) -> None:
    if not (await session.execute(IS_KEPT, {"position": position})).scalar_one():
        raise CursorExpired
