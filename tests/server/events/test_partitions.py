"""Old events are dropped by whole partitions, and a cursor into a dropped one is refused."""

import asyncio
from datetime import timedelta

import pytest
from sqlalchemy import text

from server.db.database import Database
from server.db.notify import Notifier
from server.errors import CursorExpired
from server.events.event import Cursor
from server.events.partitions import drop_old_events
from server.events.replay import check_cursor, cursor_now, page_of_events
from server.events.sequencer import Sequencer
from server.events.tail import Tail
from tests.support.waiting import until

from .world import PROJECT, log_of, running, take, write_events

DAY = timedelta(days=1)


@pytest.fixture
async def small(empty_log: Database) -> Database:
    """In partitions of ten, 25 events, of which the first 23 are two days old."""
    async with running(Sequencer(empty_log, Notifier(empty_log), partition_size=10, batch=5)):
        await write_events(empty_log, 25)
        await until(lambda: has(empty_log, 25))
    async with empty_log.write() as session:
        await session.execute(
            text("UPDATE event SET occurred_at = occurred_at - interval '2 days' WHERE position <= 23")
        )
    return empty_log


async def has(database: Database, events: int) -> bool:
    return len(await log_of(database)) == events


async def drop(database: Database, expected: int) -> None:
    """Repeats until it succeeds: open readers of the log postpone it."""
    dropped = 0

    async def is_done() -> bool:
        nonlocal dropped
        dropped += await drop_old_events(database, DAY)
        return dropped >= expected

    await until(is_done)
    assert dropped == expected


async def epoch_of(database: Database) -> int:
    async with database.read() as session:
        return (await cursor_now(session)).epoch


async def test_only_partitions_that_are_full_and_old_go(small: Database):
    assert await drop_old_events(small, 3 * DAY) == 0
    await drop(small, 20)
    assert await drop_old_events(small, DAY) == 0

    assert [position for position, _ in await log_of(small)] == [21, 22, 23, 24, 25]


async def test_a_cursor_into_what_is_gone_has_expired_and_the_next_one_has_not(small: Database):
    epoch = await epoch_of(small)
    await drop(small, 20)

    async with running(Tail(small, Notifier(small), ring_size=1)) as tail:
        for position in (0, 19):
            with pytest.raises(CursorExpired):
                await tail.subscribe(project_id=PROJECT, after=Cursor(epoch, position)).__aenter__()
        async with tail.subscribe(project_id=PROJECT, after=Cursor(epoch, 20)) as events:
            assert [event.position for event in await take(events, 5)] == [21, 22, 23, 24, 25]


async def test_a_page_never_begins_after_a_hole(small: Database):
    async with small.read() as session:
        # The snapshot is older than the drop, yet the table is gone: no page may pass the hole off as the log.
        await session.execute(text("SELECT 1"))
        await drop(small, 20)
        with pytest.raises(CursorExpired):
            await page_of_events(session, project_id=PROJECT, after=3, limit=100)
    async with small.read() as session:
        oldest = await page_of_events(session, project_id=PROJECT, after=None, limit=100)
        assert [event.position for event in oldest] == [21, 22, 23, 24, 25]
        assert await check_cursor(session, Cursor(await epoch_of(small), 20)) == 20


async def test_a_reader_overtaken_by_retention_gets_an_error(small: Database):
    epoch = await epoch_of(small)
    async with (
        running(Tail(small, Notifier(small), ring_size=1)) as tail,
        tail.subscribe(project_id=PROJECT, after=Cursor(epoch, 0), backlog=4) as events,
    ):
        assert [event.position for event in await take(events, 4)] == [1, 2, 3, 4]
        await drop(small, 20)
        with pytest.raises(CursorExpired):
            await take(events, 1)


async def test_a_tail_overtaken_by_retention_continues_and_its_readers_get_an_error(small: Database):
    tail = Tail(small, Notifier(small))
    async with running(tail):
        await until(lambda: tail.ring.head == 25)
        async with (
            tail.subscribe(project_id=PROJECT, after=None) as live,
            tail.subscribe(project_id=PROJECT, after=Cursor(await epoch_of(small), 25), backlog=1) as other,
        ):
            reading, waiting = asyncio.create_task(take(live, 1)), asyncio.create_task(take(other, 1))
            await until(lambda: live.is_live and other.is_live)
            await drop(small, 20)
            # As if this process had been asleep since position 12.
            tail.ring.restart(12)
            live.__dict__["_through"] = other.__dict__["_through"] = 12
            for task in (reading, waiting):
                with pytest.raises(CursorExpired):
                    await task
        await until(lambda: tail.ring.head == 25)


async def test_nothing_waits_long_for_a_reader_that_holds_the_log(small: Database):
    async with small.read() as session:
        await session.execute(text("SELECT count(*) FROM event"))
        async with asyncio.timeout(30):
            assert await drop_old_events(small, DAY) == 0
    await drop(small, 20)


async def test_two_at_once_count_each_event_once(small: Database):
    counts = await asyncio.gather(*(drop_old_events(small, DAY) for _ in range(4)))
    await drop(small, 20 - sum(counts))


async def test_the_log_goes_on_where_it_was_when_all_of_it_is_gone(small: Database):
    epoch = await epoch_of(small)
    signals = Notifier(small)
    async with running(Sequencer(small, signals, partition_size=10, batch=5)), running(Tail(small, signals)) as tail:
        await write_events(small, 5)
        await until(lambda: has(small, 30))
        async with small.write() as session:
            await session.execute(text("UPDATE event SET occurred_at = occurred_at - interval '2 days'"))
        await drop(small, 30)
        assert await log_of(small) == []

        async with tail.subscribe(project_id=PROJECT, after=Cursor(epoch, 30)) as events:
            await write_events(small, 1)
            assert [event.position for event in await take(events, 1)] == [31]
    async with running(Tail(small, signals)) as later:
        await until(lambda: later.ring.head == 31)
