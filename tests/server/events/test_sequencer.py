"""Only one process at a time assigns positions, even when leaders die."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest
from sqlalchemy import text

from server.db.database import Database
from server.db.notify import Notifier
from server.events.log_identity import confirm_epoch
from server.events.partitions import partitions
from server.events.sequencer import LOCK, MOVE, Sequencer
from server.events.tail import Tail
from tests.support.waiting import until

from .world import PROJECT, change, count, log_of, make_instances, running, take, terminate, write_events


async def is_empty(database: Database, table: str) -> bool:
    return await count(database, table) == 0


async def head_of(database: Database) -> int:
    connection = await database.connect()
    try:
        return (await confirm_epoch(connection)).head
    finally:
        await connection.close()


async def test_of_two_sequencers_one_leads_and_the_other_takes_over(database: Database, signals: Notifier):
    first, second = Sequencer(database, signals), Sequencer(database, signals)
    async with running(first):
        await until(lambda: first.is_leader)
        async with running(second):
            ids = await write_events(database, 3)
            await until(lambda: is_empty(database, "outbox"))
            assert (first.is_leader, second.is_leader) == (True, False)

            await first.stop()
            await until(lambda: second.is_leader)
            assert not first.is_leader
            ids += await write_events(database, 3)
            await until(lambda: is_empty(database, "outbox"))

    log = await log_of(database)
    assert [event_id for _, event_id in log] == ids
    assert [position for position, _ in log] == list(range(log[0][0], log[0][0] + 6))


async def test_it_stops_while_it_makes_a_partition(database: Database, signals: Notifier):
    blocker = await database.connect()
    transaction = blocker.transaction()
    await transaction.start()
    await blocker.execute("LOCK TABLE event IN SHARE UPDATE EXCLUSIVE MODE")  # a new partition has to wait
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'event'::regclass"
    sequencer = Sequencer(database, signals, partition_size=1_000_000_000)
    sequencer.start()
    try:
        await until(lambda: blocker.fetchval(waiting))
        async with asyncio.timeout(10):
            await sequencer.stop()
    finally:
        await transaction.rollback()
        await blocker.close()


async def test_cutting_the_leader_off_again_and_again_loses_and_doubles_nothing(database: Database, signals: Notifier):
    before = await head_of(database)
    instances = await make_instances(database, 8)
    first, second = Sequencer(database, signals, batch=7), Sequencer(database, signals, batch=7)
    cuts = 0

    async with running(first), running(second):
        writers = asyncio.gather(*(write(database, each, 60) for each in instances))
        while not writers.done():
            await until(lambda: first.is_leader or second.is_leader)
            cuts += await terminate(database, "pilotlight sequencer")
            assert not (first.is_leader and second.is_leader)
        await writers
        await until(lambda: is_empty(database, "outbox"))

    assert cuts >= 2
    assert [position for position, _ in await log_of(database)] == list(range(before + 1, before + 481))
    assert await head_of(database) == before + 480
    assert await disordered(database) == 0


async def test_a_killed_process_is_succeeded_without_a_gap(database: Database, database_url: str, signals: Notifier):
    before = await head_of(database)
    instances = await make_instances(database, 8)
    async with leading_process(database, database_url) as process, running(Sequencer(database, signals)) as successor:
        writers = asyncio.gather(*(write(database, each, 40) for each in instances))
        await until(lambda: has_some(database))
        assert not successor.is_leader
        process.kill()
        await writers
        await until(lambda: is_empty(database, "outbox"))
        assert successor.is_leader

    assert [position for position, _ in await log_of(database)] == list(range(before + 1, before + 321))
    assert await disordered(database) == 0


async def test_a_process_that_hangs_loses_the_lead(database: Database, database_url: str, signals: Notifier):
    async with (
        leading_process(database, database_url, silent_for=1.0) as process,
        running(Sequencer(database, signals)) as other,
    ):
        process.send_signal(signal.SIGSTOP)
        await until(lambda: other.is_leader)
        [event_id] = await write_events(database)
        await until(lambda: is_empty(database, "outbox"))

        process.send_signal(signal.SIGCONT)
        again = await write_events(database, 5)
        await until(lambda: is_empty(database, "outbox"))
        assert other.is_leader

    assert [each for _, each in await log_of(database)] == [event_id, *again]


async def test_the_outbox_outlives_a_time_without_a_sequencer(database: Database, signals: Notifier):
    ids = await write_events(database, 5)
    assert await log_of(database) == []

    async with running(Sequencer(database, signals)):
        await until(lambda: is_empty(database, "outbox"))

    assert [event_id for _, event_id in await log_of(database)] == ids


async def test_a_lost_wake_up_costs_one_poll(database: Database, signals: Notifier):
    async with running(Sequencer(database, signals)) as sequencer, running(Tail(database, signals)) as tail:
        await until(lambda: sequencer.is_leader)
        async with tail.subscribe(project_id=PROJECT, after=None) as events:
            database.on_commit = None
            [event_id] = await write_events(database)
            [event] = await take(events, 1)
    assert event.id == event_id


async def test_no_other_process_can_number_events_beside_the_leader(database: Database, signals: Notifier):
    """Even a connection without the lock, running the very same statement, keeps positions gap-free and unique."""
    before = await head_of(database)
    async with running(Sequencer(database, signals, batch=3)) as sequencer:
        await until(lambda: sequencer.is_leader)
        intruder = await database.connect()
        try:
            assert await intruder.fetchval("SELECT pg_try_advisory_lock($1)", LOCK) is False
            writers = asyncio.gather(*(write_events(database, 10) for _ in range(20)))
            while not writers.done():
                await intruder.fetchrow(MOVE, 3)
            await writers
        finally:
            await intruder.close()
        await until(lambda: is_empty(database, "outbox"))

    assert [position for position, _ in await log_of(database)] == list(range(before + 1, before + 201))


async def test_partitions_are_there_before_they_are_needed(empty_log: Database):
    async with running(Sequencer(empty_log, Notifier(empty_log), batch=4, partition_size=10)):
        for _ in range(7):
            await write_events(empty_log, 13)
        await until(lambda: is_empty(empty_log, "outbox"))

    assert [position for position, _ in await log_of(empty_log)] == list(range(1, 92))
    connection = await empty_log.connect()
    made = await partitions(connection)
    await connection.close()
    assert (made[0].first, made[-1].beyond) == (1, 101)
    assert all(one.beyond == other.first for one, other in pairwise(made))


async def test_a_partition_that_can_not_be_made_yet_stops_nothing_while_there_is_room(empty_log: Database):
    async with running(Sequencer(empty_log, Notifier(empty_log), batch=4, partition_size=10)):
        await write_events(empty_log, 1)
        await until(lambda: is_empty(empty_log, "outbox"))
        blocker = await empty_log.connect()
        async with blocker.transaction():
            await blocker.execute("LOCK TABLE event IN SHARE UPDATE EXCLUSIVE MODE")  # as ANALYZE does
            await write_events(empty_log, 12)  # nine of them still fit
            await until(lambda: has_left(empty_log, 3))
        await blocker.close()
        await until(lambda: is_empty(empty_log, "outbox"))

    assert [position for position, _ in await log_of(empty_log)] == list(range(1, 14))


async def has_left(database: Database, events: int) -> bool:
    return await count(database, "outbox") == events


async def test_without_its_row_the_log_numbers_nothing_and_then_recovers(new_database):
    database = Database(await new_database.migrated())
    try:
        ids = await write_events(database, 3)
        connection = await database.connect()
        await connection.execute("DELETE FROM event_log")
        with pytest.raises(Exception, match=r"null value|no partition"):
            await connection.fetchrow(MOVE, 10)
        await connection.close()
        assert await count(database, "outbox") == 3

        async with running(Sequencer(database, Notifier(database))):
            await until(lambda: is_empty(database, "outbox"))
        assert [event_id for _, event_id in await log_of(database)] == ids
    finally:
        await database.close()


async def test_positions_wait_for_the_disk_even_where_the_server_does_not(new_database):
    url = await new_database.migrated()
    database = Database(url)
    try:
        async with database.write() as session:
            name = url.rsplit("/", 1)[1]
            await session.execute(text(f'ALTER DATABASE "{name}" SET synchronous_commit = off'))
        connection = await database.connect()
        assert await connection.fetchval("SHOW synchronous_commit") == "off"
        # What the leader's own session says, recorded by a trigger when it numbers an event.
        await connection.execute("CREATE TABLE said (setting text)")
        await connection.execute("""
            CREATE FUNCTION say() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN INSERT INTO said SELECT current_setting('synchronous_commit'); RETURN NULL; END $$
        """)
        await connection.execute("CREATE TRIGGER says AFTER UPDATE ON event_log FOR EACH ROW EXECUTE FUNCTION say()")
        async with running(Sequencer(database, Notifier(database))):
            await write_events(database)
            await until(lambda: is_empty(database, "outbox"))
        assert await connection.fetchval("SELECT setting FROM said") == "on"
        await connection.close()
    finally:
        await database.close()


async def test_sequencing_uses_the_index_however_full_the_outbox_was_when_planned(database: Database):
    connection = await database.connect(server_settings={"enable_seqscan": "off"})
    try:
        await connection.execute("ANALYZE outbox")
        plan = "\n".join(row[0] for row in await connection.fetch("EXPLAIN " + MOVE.replace("$1", "1000")))
    finally:
        await connection.close()
    assert plan.count("outbox_pkey") == 2
    assert "Seq Scan on outbox" not in plan


async def write(database: Database, instance_id, times: int) -> None:
    for _ in range(times):
        await change(database, instance_id)


async def has_some(database: Database) -> bool:
    return await count(database, "event") > 20


async def disordered(database: Database) -> int:
    """How many events have a version that is not the one after the version before."""
    async with database.read() as session:
        found = await session.execute(
            text("""
                SELECT count(*) FROM (
                    SELECT (data->>'version')::bigint AS version,
                           row_number() OVER (PARTITION BY instance_id ORDER BY position) AS expected
                    FROM event
                ) AS seen WHERE version <> expected
            """)
        )
        return found.scalar_one()


@asynccontextmanager
async def leading_process(
    database: Database, url: str, silent_for: float = 10.0
) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.server.events.leader", url, str(silent_for), stdout=asyncio.subprocess.DEVNULL
    )
    try:
        await until(lambda: is_led(database))
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def is_led(database: Database) -> bool:
    async with database.read() as session:
        found = await session.execute(
            text("""
                SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database
                WHERE locktype = 'advisory' AND datname = current_database()
                  AND classid = CAST(:lock AS bigint) >> 32 AND objid = CAST(:lock AS bigint) & 4294967295
            """),
            {"lock": LOCK},
        )
        return found.scalar_one() == 1
