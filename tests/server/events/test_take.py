"""take() returns the available events without waiting, and how far the reader has come."""

from server.db.database import Database
from server.db.notify import Notifier
from server.events.sequencer import Sequencer
from server.events.tail import Tail
from tests.support.waiting import until

from .world import PROJECT, running, write_events


async def test_take_returns_the_available_events_and_advances_the_cursor(database: Database, signals: Notifier):
    async with running(Sequencer(database, signals)), running(Tail(database, signals, ring_size=4)) as tail:
        async with tail.subscribe(project_id=PROJECT, after=None) as first:
            start = first.cursor
            assert await first.take() == []
            assert first.cursor == start
        written = [event_id for _ in range(10) for event_id in await write_events(database)]
        await until(lambda: tail.head().position == start.position + 10)
        taken = []
        # From the table, for the ring is too short; then from the ring; then nothing more, without waiting.
        async with tail.subscribe(project_id=PROJECT, after=start, backlog=3) as reader:
            while reader.cursor != tail.head():
                batch = await reader.take()
                assert len(batch) <= 3
                taken += batch
                if batch:
                    assert reader.cursor.position == batch[-1].position
            assert await reader.take() == []
        assert [event.id for event in taken] == written
