"""PostgreSQL itself is killed: what was seen stays seen, and everything goes on."""

import asyncio
import os
import signal
from pathlib import Path
from uuid import UUID

import pytest

from server.db.embedded import EmbeddedPostgres
from server.db.engine import Database
from server.db.migrate import upgrade
from server.db.signals import Signals
from server.db.trouble import DATABASE_TROUBLE
from server.events.event import Event
from server.events.sequencer import Sequencer
from server.events.tail import Tail

from .world import PROJECT, WITHIN, announce, log_of, running, until


@pytest.mark.slow
async def test_a_reader_sees_the_whole_log_across_a_killed_server(home: Path):
    async with EmbeddedPostgres(home, durable=True) as server:
        await upgrade(server.url)
        database = Database(server.url)
        signals = Signals(database)
        committed: list[UUID] = []
        killed = asyncio.Event()

        async def write() -> None:
            """Until some were committed after the crash. One whose answer was lost may or may not be in the log."""
            after = 0
            while after < 50:
                try:
                    committed.extend(await announce(database))
                    after += killed.is_set()
                except DATABASE_TROUBLE:
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
