"""PostgreSQL is killed: delivered events stay in the log, and everything continues."""

import asyncio
import os
import signal
from pathlib import Path
from uuid import UUID

import pytest

from server.db.database import Database
from server.db.embedded.server import EmbeddedPostgres
from server.db.notify import Notifier
from server.db.outages import DATABASE_ERRORS
from server.events.event import Event
from server.events.sequencer import Sequencer
from server.events.tail import Tail
from tests.support.waiting import until

from .world import PROJECT, WITHIN, log_of, running, write_events


@pytest.mark.slow
async def test_a_reader_sees_the_whole_log_across_a_killed_server(migrated_home: Path):
    async with EmbeddedPostgres(migrated_home, durable=True) as server:
        database = Database(server.url)
        signals = Notifier(database)
        committed: list[UUID] = []
        killed = asyncio.Event()

        async def write() -> None:
            """Until some were committed after the crash. One whose answer was lost may or may not be in the log."""
            after = 0
            while after < 50:
                try:
                    committed.extend(await write_events(database))
                    after += killed.is_set()
                except DATABASE_ERRORS:
                    await asyncio.sleep(0.02)

        seen: list[Event] = []

        async def read(tail: Tail) -> None:
            async with tail.subscribe(project_id=PROJECT, after=None, backlog=4) as events:
                async for event in events:
                    seen.append(event)
                    if len(seen) == 100:
                        os.kill(server.pid, signal.SIGKILL)
                        killed.set()

        async with (
            running(signals),
            running(Sequencer(database, signals)),
            running(Tail(database, signals, ring_size=10)) as tail,
        ):
            reading = asyncio.create_task(read(tail))
            async with asyncio.timeout(WITHIN.total_seconds() * 2):
                await asyncio.gather(*(write() for _ in range(4)))
                await until(lambda: set(committed) <= {event.id for event in seen})
            reading.cancel()
            log = await log_of(database)
        await database.close()

    assert [(event.position, event.id) for event in seen] == log[: len(seen)]
    assert [position for position, _ in log] == list(range(1, len(log) + 1))
    assert set(committed) <= {event_id for _, event_id in log}
