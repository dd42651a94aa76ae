"""Pages of past events, and the position of a snapshot in the log."""

import asyncio
import random
from dataclasses import dataclass
from uuid import UUID

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import new_id
from server.db.database import Database
from server.db.notify import Notifier
from server.errors import CursorExpired, Lagging
from server.events import replay
from server.events.event import Cursor, EventType
from server.events.outbox import append_project_event
from server.events.replay import BY_IDS, check_cursor, cursor_now, get_events, page_of_events, position_now
from server.events.sequencer import Sequencer
from server.events.tail import Tail
from tests.support.waiting import until

from .world import PROJECT, change, count, make_instances, running, take, write_events


async def settled(database: Database) -> bool:
    return await count(database, "outbox") == 0


@pytest.mark.parametrize("first_span", [1, 7, replay.FIRST_SPAN])
async def test_pages_follow_each_other_without_overlap(
    database: Database, sequencer: Sequencer, first_span: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(replay, "FIRST_SPAN", first_span)
    await until(lambda: sequencer.is_leader)
    async with database.read() as session:
        start = await position_now(session)
    one, other = await make_instances(database, 2)
    made = [(await change(database, random.choice((one, other))))[0] for _ in range(25)]
    await until(lambda: settled(database))

    pages: list[list[UUID]] = []
    position = start
    async with database.read() as session:
        while page := await page_of_events(session, project_id=PROJECT, after=position, limit=10):
            pages.append([event.id for event in page])
            position = page[-1].position
        both = await page_of_events(
            session, project_id=PROJECT, after=start, instance_ids=[one, other], types=["instance.changed"], limit=100
        )
        assert await page_of_events(session, project_id=UUID(int=5), after=start, limit=100) == []
        assert await page_of_events(session, project_id=UUID(int=5), after=start, instance_ids=[one], limit=100) == []
        assert await page_of_events(session, project_id=PROJECT, after=start, instance_ids=[], limit=100) == []

    assert [len(page) for page in pages] == [10, 10, 5]
    assert [each for page in pages for each in page] == made == [event.id for event in both]


@dataclass(frozen=True, slots=True)
class Moment:
    """Where a read transaction stands: it sees every change up to `cursor`, and those of the unannounced events."""

    cursor: Cursor
    unannounced: frozenset[UUID]


async def moment_of(session: AsyncSession) -> Moment:
    ids = await session.execute(text("SELECT id FROM outbox WHERE project_id = :project_id"), {"project_id": PROJECT})
    return Moment(await cursor_now(session), frozenset(ids.scalars()))


async def test_a_change_that_is_shown_before_it_is_numbered_is_not_sent_again(database: Database, signals: Notifier):
    [instance_id] = await make_instances(database, 1)
    async with running(Sequencer(database, signals)) as sequencer:
        await until(lambda: sequencer.is_leader)
    shown, _ = await change(database, instance_id)  # no sequencer numbers it now

    async with database.read() as session:
        moment = await moment_of(session)
    assert moment.unannounced == {shown}

    async with running(Sequencer(database, signals)), running(Tail(database, signals)) as tail:
        news, _ = await change(database, instance_id)
        async with tail.subscribe(
            project_id=PROJECT, after=moment.cursor, predicate=lambda event: event.id not in moment.unannounced
        ) as events:
            [event] = await take(events, 1)
    assert event.id == news
    assert event.position == moment.cursor.position + 2


async def test_a_state_and_the_news_after_it_are_every_change_once(database: Database, tail: Tail):
    instances = await make_instances(database, 3)
    last: dict[UUID, int] = {}

    async def write(instance_id: UUID) -> None:
        for _ in range(80):
            _, last[instance_id] = await change(database, instance_id)

    async def show(instance_id: UUID) -> tuple[int, Moment]:
        async with database.read() as session:
            found = await session.execute(text("SELECT version FROM instance WHERE id = :id"), {"id": instance_id})
            return found.scalar_one(), await moment_of(session)

    async def follow(instance_id: UUID, moment: Moment, count: int) -> list[int]:
        async with tail.subscribe(
            project_id=PROJECT,
            after=moment.cursor,
            instance_ids=[instance_id],
            predicate=lambda event: event.id not in moment.unannounced,
        ) as events:
            return [event.data["version"] for event in await take(events, count)]

    async def watch(instance_id: UUID) -> None:
        version = 0
        while version < 80:
            version, moment = await show(instance_id)
            news = await follow(instance_id, moment, min(3, 80 - version))
            assert news == list(range(version + 1, version + 1 + len(news)))

    async with asyncio.timeout(30):
        await asyncio.gather(
            *(watch(each) for each in instances for _ in range(2)), *(write(each) for each in instances)
        )
    assert last == dict.fromkeys(instances, 80)


async def test_the_position_is_of_the_snapshot_not_of_the_moment_it_is_asked(database: Database, tail: Tail):
    async with database.read() as session:
        await session.execute(text("SELECT 1"))
        async with tail.subscribe(project_id=PROJECT, after=None) as events:
            await write_events(database)
            [event] = await take(events, 1)
        assert await position_now(session) < event.position
    async with database.read() as session:
        assert await position_now(session) == event.position


async def test_cursors_are_checked(database: Database, tail: Tail):
    async with tail.subscribe(project_id=PROJECT, after=None) as events:
        await write_events(database, 2)
        first, second = await take(events, 2)

    async with database.read() as session:
        now = await cursor_now(session)
        assert now == Cursor(events.epoch, second.position)
        assert await check_cursor(session, events.cursor_of(first)) == first.position
        assert await check_cursor(session, now) == second.position
        with pytest.raises(Lagging):
            await check_cursor(session, Cursor(now.epoch, now.position + 1))
        with pytest.raises(CursorExpired):
            await check_cursor(session, Cursor(now.epoch ^ 1, now.position))


async def test_pages_come_from_the_index_that_fits(database: Database, sequencer: Sequencer):
    """A sparse project, one instance and the tail's span, among five thousand events of others."""
    await until(lambda: sequencer.is_leader)
    [instance_id] = await make_instances(database, 1)
    async with database.write() as session:
        await session.execute(
            text("""
                INSERT INTO outbox (id, type, project_id, instance_id, data)
                SELECT gen_random_uuid(), 'x', gen_random_uuid(), gen_random_uuid(), '{}' FROM generate_series(1, 5000)
            """)
        )
    await change(database, instance_id)
    await until(lambda: settled(database))
    connection = await database.connect()
    try:
        await connection.execute("ANALYZE event")
        # Rows that tests before this one left behind make the table's order look random, which the log's never is.
        await connection.execute("SET enable_bitmapscan = off")
        head = await connection.fetchval("SELECT head FROM event_log")
        bounds = f"position > {head - 4000} AND position <= {head}"
        asked = {
            "project_id": f"SELECT * FROM event WHERE project_id = '{new_id()}' AND {bounds} ORDER BY position LIMIT 9",
            "instance_id": f"SELECT * FROM event WHERE instance_id = '{instance_id}' AND project_id = '{PROJECT}'"
            f" AND {bounds} ORDER BY position LIMIT 9",
            "pkey": f"SELECT * FROM event WHERE position > {head - 9} AND position <= {head} ORDER BY position",
        }
        for index, query in asked.items():
            plan = "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN {query}"))
            assert index in plan.split("Index")[1].split("\n")[0], plan
            assert "Seq Scan" not in plan
            assert "Sort" not in plan
    finally:
        await connection.close()


async def test_an_event_is_found_by_its_id_among_many_of_its_project(database: Database, sequencer: Sequencer):
    await until(lambda: sequencer.is_leader)
    async with database.write() as session:
        await session.execute(
            text("""
                INSERT INTO outbox (id, type, project_id, data)
                SELECT gen_random_uuid(), 'x', :project, '{}' FROM generate_series(1, 5000)
            """),
            {"project": PROJECT},
        )
    await until(lambda: settled(database))
    connection = await database.connect()
    try:
        await connection.execute("ANALYZE event")
        wanted = await connection.fetchval("SELECT id FROM event WHERE project_id = $1 LIMIT 1", PROJECT)
        query = BY_IDS.text.replace(":ids", f"'{{{wanted},{new_id()}}}'").replace(":project_id", f"'{PROJECT}'")
        plan = "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN {query}"))
        assert "event_from_1_id_idx" in plan, plan
    finally:
        await connection.close()
    async with database.read() as session:
        assert list(await get_events(session, [wanted, new_id()], project_id=PROJECT)) == [wanted]
        assert await get_events(session, [wanted], project_id=new_id()) == {}


async def test_events_without_an_instance_are_read_without_those_of_instances(database: Database, sequencer: Sequencer):
    """They are few among many of the project, and other projects have some: an index of their own has only them."""
    await until(lambda: sequencer.is_leader)
    async with database.write() as session:
        for type in (EventType.BALANCE_LOW, EventType.BALANCE_LOW):
            await session.execute(
                text("""
                    INSERT INTO outbox (id, type, project_id, instance_id, data)
                    SELECT gen_random_uuid(), 'x', CASE WHEN n % 50 > 0 THEN :project ELSE gen_random_uuid() END,
                           CASE WHEN n % 50 > 0 THEN gen_random_uuid() END, '{}' FROM generate_series(1, 6000) AS n
                """),
                {"project": PROJECT},
            )
            await append_project_event(session, type, project_id=PROJECT, values={"a": 1}, objects={"thing": "t_1"})
    await until(lambda: settled(database))
    async with database.read() as session:
        events = await page_of_events(session, project_id=PROJECT, after=None, without_instance=True, limit=9)
    assert [(each.type, each.instance_id, each.data) for each in events] == [
        ("balance.low", None, {"values": {"a": 1}, "objects": {"thing": "t_1"}})
    ] * 2
    connection = await database.connect()
    try:
        await connection.execute("ANALYZE event")
        bounds = f"position > 0 AND position <= {events[-1].position}"
        query = f"SELECT * FROM event WHERE project_id = '{PROJECT}' AND {bounds} AND instance_id IS NULL"
        rows = await connection.fetch(f"EXPLAIN {query} ORDER BY position LIMIT 9")
        plan = "\n".join(row[0] for row in rows)
        assert "Index Scan" in plan, plan
        assert "Filter" not in plan, plan  # the index's own condition
    finally:
        await connection.close()
