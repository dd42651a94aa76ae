"""A reader continues from its cursor through past events into live ones, without gaps or duplicates."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from uuid import UUID

import pytest

from server.db.database import Database
from server.db.notify import Notifier
from server.errors import CursorExpired, Lagging
from server.events.event import Cursor, Event
from server.events.sequencer import Sequencer
from server.events.tail import Tail
from tests.support.waiting import until

from .world import PROJECT, change, log_of, make_instances, running, take, terminate, write_events

OTHER_PROJECT = UUID(int=99)


@pytest.fixture
async def two_tails(sequencer: Sequencer, database_url: str) -> AsyncIterator[list[Tail]]:
    """Each with its own connections and signals, as in two processes; the rings are small, so tables are read too."""
    async with AsyncExitStack() as stack:
        tails: list[Tail] = []
        for size in (5, 50):
            database = Database(database_url, pool_size=5)
            stack.push_async_callback(database.close)
            signals = await stack.enter_async_context(running(Notifier(database)))
            tails.append(await stack.enter_async_context(running(Tail(database, signals, ring_size=size))))
        yield tails


async def beginning(tail: Tail) -> Cursor:
    await until(lambda: is_ready(tail))
    return tail.head()


def is_ready(tail: Tail) -> bool:
    try:
        tail.head()
    except Lagging:
        return False
    return True


async def test_readers_cut_at_random_and_resumed_elsewhere_see_the_log(database: Database, two_tails: list[Tail]):
    start = await beginning(two_tails[0])
    instances = await make_instances(database, 8)
    total = 8 * 40

    async def write(instance_id: UUID) -> None:
        for _ in range(40):
            await change(database, instance_id)

    async def read(number: int) -> list[tuple[int, UUID]]:
        rng = random.Random(number)
        record: list[tuple[int, UUID]] = []
        cursor = start
        while len(record) < total:
            tail = rng.choice(two_tails)
            async with tail.subscribe(project_id=PROJECT, after=cursor, backlog=rng.choice((1, 3, 256))) as events:
                for _ in range(min(rng.randint(1, 60), total - len(record))):
                    event = await anext(events)
                    record.append((event.position, event.id))
                    cursor = events.cursor_of(event)
        return record

    async with asyncio.timeout(120):
        records = (await asyncio.gather(*(write(each) for each in instances), *(read(each) for each in range(10))))[8:]

    log = await log_of(database)
    assert [position for position, _ in log] == list(range(start.position + 1, start.position + total + 1))
    assert all(record == log for record in records)
    assert [tail.subscribers for tail in two_tails] == [0, 0]


async def test_a_cursor_from_a_process_that_is_ahead_is_good(database: Database, two_tails: list[Tail]):
    first, second = two_tails
    start = await beginning(second)
    await first.stop()
    async with second.subscribe(project_id=PROJECT, after=start) as events:
        await write_events(database, 3)
        seen = await take(events, 3)
    cursor = events.cursor_of(seen[1])

    stale = Tail(database, Notifier(database))  # not notified: it has read up to where the log was before
    await beginning_without_following(stale, start)
    async with stale.subscribe(project_id=PROJECT, after=cursor) as resumed:
        assert resumed.cursor == cursor
        async with running(stale):
            assert await take(resumed, 1) == [seen[2]]


async def beginning_without_following(tail: Tail, start: Cursor) -> None:
    """As if its last read was a moment ago."""
    tail.__dict__["_epoch"] = start.epoch
    tail.ring.restart(start.position)
    tail.__dict__["_ready"].set()


async def test_a_slow_reader_keeps_little_in_memory_and_misses_nothing(database: Database, tail: Tail):
    async with (
        tail.subscribe(project_id=PROJECT, after=None, backlog=10) as slow,
        tail.subscribe(project_id=PROJECT, after=None, backlog=10_000) as quick,
    ):
        quickly = asyncio.create_task(take(quick, 3000))
        await write_events(database, 1)
        first = await take(slow, 1)
        assert slow.is_live
        most = 0
        for _ in range(30):
            await write_events(database, 100)
            most = max(most, slow.waiting)
        expected = await quickly
        assert not slow.is_live
        assert most == 10

        await until(lambda: tail.head().position == first[0].position + 3000)
        seen = first + await take(slow, 3000)
        assert slow.waiting == 0
        await write_events(database, 1)
        seen += await take(slow, 1)
        assert slow.is_live

    assert seen[:3000] == expected
    assert [event.position for event in seen] == list(range(seen[0].position, seen[0].position + 3002))


async def test_a_reader_gets_its_project_its_instances_and_its_types(database: Database, tail: Tail):
    one, other = await make_instances(database, 2)
    start = await beginning(tail)

    async def collect(stop: UUID, **chosen) -> list[UUID]:
        """The same from the past and live."""
        live: list[UUID] = []
        async with tail.subscribe(project_id=PROJECT, after=start, **chosen) as events:
            while not live or live[-1] != stop:
                live += [event.id for event in await take(events, 1)]
        return live

    first, _ = await change(database, one)
    await write_events(database, 2, project_id=OTHER_PROJECT)
    second, _ = await change(database, other)
    [checked] = await write_events(database)
    third, _ = await change(database, one)

    for _ in range(2):
        assert await collect(third) == [first, second, checked, third]
        assert await collect(third, instance_ids=[one]) == [first, third]
        assert await collect(checked, types=["health.checked"]) == [checked]
        assert await collect(third, instance_ids=[one, other], types=["instance.changed"]) == [first, second, third]
        assert await collect(third, predicate=lambda event: event.data.get("version") == 2) == [third]
        tail.ring.restart(tail.ring.head)  # and once more, now from the table


async def test_an_idle_readers_cursor_advances_past_filtered_events(database: Database, tail: Tail):
    async with tail.subscribe(
        project_id=PROJECT, after=None, predicate=lambda event: event.data["number"] == 0
    ) as events:
        reading = asyncio.create_task(take(events, 2))
        await write_events(database, 5)
        await write_events(database, 5)
        first, second = await reading
        waiting = asyncio.create_task(anext(events))
        await until(lambda: events.cursor.position == second.position + 4)
        assert events.cursor == tail.head()
        assert second.position == first.position + 5
        waiting.cancel()


async def test_a_reader_whose_filter_fails_is_alone_with_it(database: Database, tail: Tail):
    def fails(event: Event) -> bool:
        raise ZeroDivisionError

    async with (
        tail.subscribe(project_id=PROJECT, after=None, predicate=fails) as broken,
        tail.subscribe(project_id=PROJECT, after=None) as whole,
    ):
        reading = asyncio.create_task(take(broken, 1))
        await asyncio.sleep(0)
        ids = await write_events(database, 2)
        assert [event.id for event in await take(whole, 2)] == ids
        with pytest.raises(ZeroDivisionError):
            await reading


async def test_cursors_that_do_not_fit_are_refused(database: Database, tail: Tail):
    head = await beginning(tail)

    with pytest.raises(CursorExpired):
        await tail.subscribe(project_id=PROJECT, after=Cursor(head.epoch + 1, head.position)).__aenter__()
    with pytest.raises(Lagging):
        await tail.subscribe(project_id=PROJECT, after=Cursor(head.epoch, head.position + 1)).__aenter__()

    assert tail.subscribers == 0


async def test_lost_connections_heal_under_a_reader(database: Database, database_url: str, tail: Tail):
    killer = Database(database_url, pool_size=1, name="killer")
    instances = await make_instances(database, 4)
    start = await beginning(tail)
    written: list[UUID] = []

    async def write(instance_id: UUID) -> None:
        for _ in range(50):
            event_id, _version = await change(database, instance_id)
            written.append(event_id)

    async with tail.subscribe(project_id=PROJECT, after=start, backlog=5) as events:
        writers = asyncio.gather(*(write(each) for each in instances))
        reading = asyncio.create_task(take(events, 200))
        cuts = 0
        while not writers.done():
            cuts += await terminate(killer, "pilotlight tail")
            cuts += await terminate(killer, "pilotlight sequencer")
        await writers
        seen = await reading
    await killer.close()

    assert cuts >= 2
    assert [event.position for event in seen] == list(range(start.position + 1, start.position + 201))
    assert sorted(event.id for event in seen) == sorted(written)


async def test_a_page_that_could_not_be_read_is_read_again(database: Database, database_url: str, sequencer: Sequencer):
    """The reader's own way to the table breaks: each pooled connection is dead when it is next used."""
    own = Database(database_url, pool_size=2, name="reader")
    signals = Notifier(own)
    try:
        async with running(Tail(own, signals, ring_size=1)) as tail:
            start = await beginning(tail)
            ids = await write_events(database, 40)
            await until(lambda: tail.head().position == start.position + 40)
            async with tail.subscribe(project_id=PROJECT, after=start, backlog=8) as events:
                seen = await take(events, 8)
                assert await terminate(database, "reader") >= 1
                seen += await take(events, 32)
        assert [event.id for event in seen] == ids
    finally:
        await own.close()


async def test_a_tail_that_starts_later_serves_the_newest_from_memory(
    database: Database, signals: Notifier, sequencer: Sequencer
):
    async with running(Tail(database, signals)) as first:
        start = await beginning(first)
        ids = await write_events(database, 10)
        await until(lambda: first.head().position == start.position + 10)

    async with running(Tail(database, signals, ring_size=4)) as later:
        head = await beginning(later)
        assert head.position == start.position + 10
        assert later.ring.covers(head.position - 4)
        assert not later.ring.covers(head.position - 5)
        assert [event.id for event in later.ring.after(head.position - 4)] == ids[-4:]


async def test_stopping_the_tail_tells_its_readers_to_resume(database: Database, tail: Tail):
    async with tail.subscribe(project_id=PROJECT, after=None) as events:
        reading = asyncio.create_task(take(events, 1))
        await until(lambda: events.is_live)
        await tail.stop()
        with pytest.raises(Lagging):
            await reading
