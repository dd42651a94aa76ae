"""Backups made as in docs/operating.md are restored: all data is there, and old cursors are refused."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from server.db.database import Database
from server.db.migrate import upgrade
from server.db.notify import Notifier
from server.errors import CursorExpired
from server.events.event import Cursor
from server.events.sequencer import Sequencer
from server.events.tail import Tail
from tests.ha.streaming import PostgresServer, primary_and_replica, run_as_server
from tests.server.events.world import PROJECT, log_of, running, take, write_events


@pytest.fixture(scope="module")
async def server() -> AsyncIterator[PostgresServer]:
    async with primary_and_replica() as (primary, _):
        await primary.ask("CREATE DATABASE pilotlight")
        await upgrade(primary.url("pilotlight"))
        yield primary


async def write(url: str, many: int) -> tuple[Cursor, list[tuple[int, object]]]:
    """So many events; the cursor after the last of them, and the whole log."""
    database = Database(url)
    signals = Notifier(database)
    async with (
        running(signals),
        running(Sequencer(database, signals)),
        running(Tail(database, signals)) as tail,
        tail.subscribe(project_id=PROJECT, after=None) as events,
    ):
        await write_events(database, many)
        cursor = events.cursor_of((await take(events, many))[-1])
        log = await log_of(database)
    await database.close()
    return cursor, log


async def expect_another_log(url: str, cursor: Cursor) -> None:
    """An old cursor is refused, not taken for a position in this log; a subscriber that starts again misses nothing."""
    database = Database(url)
    signals = Notifier(database)
    async with (
        running(signals),
        running(Sequencer(database, signals)),
        running(Tail(database, signals)) as tail,
    ):
        with pytest.raises(CursorExpired):
            await tail.subscribe(project_id=PROJECT, after=cursor).__aenter__()
        async with tail.subscribe(project_id=PROJECT, after=None) as events:
            await write_events(database, 3)
            assert len(await take(events, 3)) == 3
        positions = [position for position, _ in await log_of(database)]
    await database.close()
    assert positions == list(range(1, len(positions) + 1))


async def test_a_dump_is_restored_into_another_database(server: PostgresServer):
    source = ("-h", "127.0.0.1", "-p", str(server.port), "-U", "postgres")
    await write(server.url("pilotlight"), 10)
    dump = server.data.parent / "dump"
    dump.mkdir()
    dump.chmod(0o777)
    await run_as_server(dump, "pg_dump", *source, "-Fd", "-j", "2", "-f", str(dump / "pilotlight"), "pilotlight")
    cursor, _ = await write(server.url("pilotlight"), 5)  # what the dump lacks

    await server.ask("CREATE DATABASE restored")
    await run_as_server(dump, "pg_restore", *source, "-j", "2", "-d", "restored", str(dump / "pilotlight"))

    await expect_another_log(server.url("restored"), cursor)


async def test_a_base_backup_is_brought_up_on_a_timeline_of_its_own(server: PostgresServer):
    await write(server.url("pilotlight"), 10)
    restored = PostgresServer(Path(f"{server.data}-restored"), 0)
    restored.data.mkdir(mode=0o700)
    await server.back_up(restored)
    cursor, _ = await write(server.url("pilotlight"), 5)  # what the backup lacks

    (restored.data / "recovery.signal").touch()
    with (restored.data / "postgresql.auto.conf").open("a") as settings:
        settings.write("restore_command = 'false'\n")
    await restored.start()
    try:
        await expect_another_log(restored.url("pilotlight"), cursor)
    finally:
        await restored.kill()
