"""A cursor belongs to one log, not to its copy or its successor."""

import asyncio
import re

import pytest

from server.db.database import Database
from server.db.notify import Notifier
from server.errors import CursorExpired
from server.events.log_identity import confirm_epoch
from server.events.sequencer import Sequencer
from server.events.tail import Tail
from tests.support.waiting import until

from .world import PROJECT, running, take, write_events


async def test_a_copy_of_the_database_refuses_the_originals_cursors(new_database):
    original_url = await new_database.migrated()
    original = Database(original_url)
    signals = Notifier(original)
    async with (
        running(Sequencer(original, signals)),
        running(Tail(original, signals)) as tail,
        tail.subscribe(project_id=PROJECT, after=None) as events,
    ):
        await write_events(original, 3)
        cursor = events.cursor_of((await take(events, 3))[1])
    await original.close()

    copy = Database(await new_database(original_url))
    signals = Notifier(copy)
    async with running(Sequencer(copy, signals)), running(Tail(copy, signals)) as tail:
        with pytest.raises(CursorExpired):
            await tail.subscribe(project_id=PROJECT, after=cursor).__aenter__()
        async with tail.subscribe(project_id=PROJECT, after=None) as events:
            await write_events(copy, 1)
            [event] = await take(events, 1)
        assert event.position == cursor.position + 2  # its own log goes on from what was copied
    await copy.close()


async def test_restarting_everything_keeps_the_name(database: Database):
    names: set[int] = set()
    for _ in range(3):
        connection = await database.connect()
        names.add((await confirm_epoch(connection)).epoch)
        await connection.close()
    assert len(names) == 1


async def test_processes_that_meet_an_unnamed_log_agree_on_its_name(new_database):
    database = Database(await new_database.migrated())
    connections = [await database.connect() for _ in range(8)]
    await connections[0].execute("DELETE FROM event_log")
    states = await asyncio.gather(*(confirm_epoch(each) for each in connections))
    for each in connections:
        await each.close()
    await database.close()
    assert len(set(states)) == 1


async def test_a_reader_gets_an_error_when_its_log_is_replaced(new_database):
    database = Database(await new_database.migrated())
    signals = Notifier(database)
    async with running(Sequencer(database, signals)), running(Tail(database, signals)) as tail:
        async with tail.subscribe(project_id=PROJECT, after=None) as events:
            before = events.epoch
            reading = asyncio.create_task(take(events, 1))
            await until(lambda: events.is_live)
            connection = await database.connect()
            await connection.execute("UPDATE event_log SET home = 'the server it was copied from'")
            await connection.close()
            with pytest.raises(CursorExpired):
                await reading
        async with tail.subscribe(project_id=PROJECT, after=None) as events:
            await write_events(database, 1)
            assert len(await take(events, 1)) == 1
            assert events.epoch != before
    await database.close()


async def test_the_home_is_a_cluster_a_timeline_and_a_database(database: Database):
    """An ordinary role, such as the embedded server's, may ask for all three."""
    connection = await database.connect()
    await confirm_epoch(connection)
    home = await connection.fetchval("SELECT home FROM event_log")
    oid = await connection.fetchval("SELECT oid FROM pg_database WHERE datname = current_database()")
    await connection.close()
    assert re.fullmatch(rf"\d+/0000000\d/{oid}", home)
