"""Taking what is there: for readers that must not wait, and want to know how far they have come."""

from server.db.engine import Database
from server.db.signals import Signals
from server.events.sequencer import Sequencer
from server.events.tail import Tail

from .world import PROJECT, announce, running, until


async def test_who_takes_gets_what_is_there_and_its_cursor_says_how_far_that_was(database: Database, signals: Signals):
    async with running(Sequencer(database, signals)), running(Tail(database, signals, ring_size=4)) as tail:
        async with tail.subscribe(project_id=PROJECT, after=None) as first:
            start = first.cursor
            assert await first.take() == []
            assert first.cursor == start
        written = [event_id for _ in range(10) for event_id in await announce(database)]
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
