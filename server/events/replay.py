"""Reads the log from its tables: pages of past events, and the position that a transaction sees."""

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.database import Database
from server.errors import CursorExpired, Lagging
from server.events.event import COLUMNS, Cursor, Event, event_of
from server.events.partitions import PARTITION_SIZE

PAGE_OF_PROJECT = f"""
    SELECT {COLUMNS} FROM event
    WHERE project_id = :project_id AND position > :after AND position <= :through {{more}}
    ORDER BY position LIMIT :limit
"""
# One index scan per instance. With `= ANY` the planner may scan the whole log in order and discard most rows.
PAGE_OF_INSTANCES = f"""
    SELECT page.* FROM unnest(CAST(:instance_ids AS uuid[])) AS requested (id)
    CROSS JOIN LATERAL (
        SELECT {COLUMNS} FROM event
        WHERE instance_id = requested.id AND project_id = :project_id
          AND position > :after AND position <= :through {{more}}
        ORDER BY position LIMIT :limit
    ) AS page
    ORDER BY position LIMIT :limit
"""
# Positions covered by the first statement; each further one covers twice as many. Most pages are full after one or two
# partitions, and planning considers every partition that a statement might touch.
FIRST_SPAN = PARTITION_SIZE
WITHOUT_INSTANCE = "AND instance_id IS NULL"  # has an index of its own: such events are few among many
OF_TYPES = "AND type = ANY (CAST(:types AS text[]))"
BY_IDS = text(f"SELECT {COLUMNS} FROM event WHERE id = ANY (CAST(:ids AS uuid[])) AND project_id = :project_id")
# One statement, so one snapshot: an event is either in the outbox, or in the log up to its head, or dropped.
BEFORE_OPERATIONS = """
    SELECT requested.id, epoch, CASE WHEN first.position IS NULL THEN head ELSE first.position - 1 END
    FROM event_log, unnest($1::uuid[], $2::uuid[]) AS requested (id, instance_id)
    CROSS JOIN LATERAL (
        SELECT min(position) AS position FROM event
        WHERE instance_id = requested.instance_id AND operation_id = requested.id
    ) AS first
    WHERE first.position IS NOT NULL OR EXISTS (SELECT FROM outbox WHERE operation_id = requested.id)
"""
STATE = text("SELECT epoch, head FROM event_log")
IS_KEPT = text("SELECT EXISTS (SELECT FROM event WHERE position = :position)")

_STATEMENTS: dict[tuple[bool, bool, bool], TextClause] = {
    (by_instance, by_type, without_instance): text(
        (PAGE_OF_INSTANCES if by_instance else PAGE_OF_PROJECT).format(
            more=f"{OF_TYPES if by_type else ''} {WITHOUT_INSTANCE if without_instance else ''}"
        )
    )
    for by_instance in (False, True)
    for by_type in (False, True)
    for without_instance in (False, True)
}


async def page_of_events(
    session: AsyncSession,
    *,
    project_id: UUID,
    after: int | None,
    through: int | None = None,
    instance_ids: Collection[UUID] | None = None,
    types: Collection[str] | None = None,
    without_instance: bool = False,
    limit: int,
) -> list[Event]:
    """The first `limit` events after a position, oldest first; None starts at the oldest event.

    Raises CursorExpired if events after that position were dropped.
    """
    if through is None:
        through = await position_now(session)
    parameters: dict[str, Any] = {"project_id": project_id}
    if instance_ids is not None:
        parameters["instance_ids"] = list(instance_ids)
    if types is not None:
        parameters["types"] = [str(each) for each in types]
    statement = _STATEMENTS[instance_ids is not None, types is not None, without_instance]
    at = 0 if after is None else after
    # An instance's events may be anywhere in the log, so small spans would only add statements.
    span = FIRST_SPAN if instance_ids is None else through
    events: list[Event] = []
    while at < through and len(events) < limit:
        until = min(through, at + span)
        bounds = parameters | {"after": at, "through": until, "limit": limit - len(events)}
        events += [event_of(row) for row in (await session.execute(statement, bounds)).mappings()]
        at, span = until, span * 2
    # Checked after reading: partitions are dropped oldest first, so if the span's first event still exists, all of it
    # was there. (A dropped table is gone at once, even for a transaction with an older snapshot.)
    if after is not None and after < through:
        await _refuse_unless_kept(session, after + 1)
    return events


async def get_events(session: AsyncSession, ids: Sequence[UUID], *, project_id: UUID) -> dict[UUID, Event]:
    """The project's events with these ids, as far as the log keeps them."""
    rows = await session.execute(BY_IDS, {"ids": list(ids), "project_id": project_id})
    return {event.id: event for event in map(event_of, rows.mappings())}


async def cursors_before(database: Database, operations: Sequence[tuple[UUID, UUID]]) -> dict[UUID, Cursor]:
    """Right before the first event of each operation, given with its instance; none if the log no longer keeps it.

    From the primary: a replica may lack an operation that was just accepted.
    """
    rows = await database.raw.fetch(
        BEFORE_OPERATIONS, [each[0] for each in operations], [each[1] for each in operations]
    )
    return {id: Cursor(epoch, position) for id, epoch, position in rows}


async def position_now(session: AsyncSession) -> int:
    """This transaction sees every change whose event has a position up to this one.

    It may also see changes whose events have no position yet.
    """
    return (await cursor_now(session)).position


async def cursor_now(session: AsyncSession) -> Cursor:
    """`position_now` as a cursor."""
    row = (await session.execute(STATE)).one_or_none()
    return Cursor(0, 0) if row is None else Cursor(row.epoch, row.head)


async def has_reached(session: AsyncSession, cursor: Cursor) -> bool:
    """Whether this copy of the log contains the cursor's position. Use it in the transaction that then reads."""
    now = await cursor_now(session)
    return now.epoch == cursor.epoch and now.position >= cursor.position


async def check_cursor(session: AsyncSession, cursor: Cursor) -> int:
    """The position to continue from; refuses cursors of another log, or older than the log.

    Beyond the head is Lagging, not an error of the caller: cursors are sealed, so a process that reads another server
    has issued it. After a failover some processes still read the former primary for seconds.
    """
    now = await cursor_now(session)
    if cursor.epoch != now.epoch:
        raise CursorExpired
    if cursor.position > now.position:
        raise Lagging("the database that is read has not reached the cursor")
    if cursor.position < now.position:
        await _refuse_unless_kept(session, cursor.position + 1)
    return cursor.position


async def _refuse_unless_kept(session: AsyncSession, position: int) -> None:
    if not (await session.execute(IS_KEPT, {"position": position})).scalar_one():
        raise CursorExpired
