"""Notifications between processes: received by others, not by the sender, and restored after a lost connection."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from sqlalchemy import text

from server.db.database import Database, notify_after_commit
from server.db.notify import Look, Notifier
from tests.support.waiting import until

LONG = timedelta(seconds=20)
HOUR = timedelta(hours=1)
MOMENT = timedelta(milliseconds=150)


@pytest.fixture
async def other(database_url: str) -> AsyncIterator[Notifier]:
    """Another process, as far as PostgreSQL can tell."""
    database = Database(database_url, pool_size=1, name="other process")
    signals = Notifier(database)
    signals.start()
    await until(lambda: signals.is_listening)
    yield signals
    await signals.stop()
    await database.close()


@pytest.fixture
async def hearing(signals: Notifier) -> Notifier:
    await until(lambda: signals.is_listening)
    return signals


async def test_another_process_is_woken(hearing: Notifier, other: Notifier):
    bell = other.subscribe("job")
    hearing.notify(["job"])
    assert await bell.wait(LONG) is True


async def test_a_commit_wakes_other_processes(database: Database, hearing: Notifier, other: Notifier):
    bell = other.subscribe("job")
    async with database.write() as session:
        notify_after_commit(session, "job")
    assert await bell.wait(LONG) is True


async def test_only_waiters_for_the_topic_are_woken(hearing: Notifier, other: Notifier):
    bells = {topic: other.subscribe(topic) for topic in ("job", "event")}
    hearing.notify(["job"])
    assert await bells["job"].wait(LONG) is True
    assert await bells["event"].wait(timedelta(0)) is False


async def test_ones_own_waiters_are_woken_at_once_and_only_once(hearing: Notifier, other: Notifier):
    mine, theirs = hearing.subscribe("job"), other.subscribe("job")
    hearing.notify(["job"])
    assert await mine.wait(timedelta(seconds=1)) is True

    assert await theirs.wait(LONG) is True  # by now the message has gone out, and back to us
    assert await mine.wait(MOMENT) is False


async def test_a_signal_that_comes_before_the_wait_is_not_missed(hearing: Notifier, other: Notifier):
    bell = other.subscribe("job")
    hearing.notify(["job"])
    last = other.subscribe("last")
    hearing.notify(["last"])
    await last.wait(LONG)

    assert await bell.wait(timedelta(seconds=1)) is True
    assert await bell.wait(timedelta(0)) is False


async def test_a_removed_waiter_is_no_longer_woken(hearing: Notifier):
    bell = hearing.subscribe("job")
    hearing.unsubscribe("job", bell)
    hearing.unsubscribe("job", bell)
    hearing.notify(["job"])
    assert await bell.wait(timedelta(0)) is False


async def test_a_killed_connection_is_replaced_and_waiters_are_woken(
    database: Database, hearing: Notifier, other: Notifier
):
    bell = other.subscribe("job")
    async with database.write() as session:
        killed = await session.execute(
            text("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = :name"),
            {"name": "other process"},
        )
    assert killed.scalar_one() == 1
    await until(lambda: not other.is_listening, within=8)  # long before the next ping

    assert await bell.wait(LONG) is True  # something may have been said while it was deaf
    await until(lambda: other.is_listening)
    hearing.notify(["job"])
    assert await bell.wait(LONG) is True


async def test_a_look_wakes_the_reader_whose_notification_was_lost(database: Database, other: Notifier):
    bell = other.subscribe("job", Look("EXISTS (SELECT FROM job_pause)", MOMENT.total_seconds()))
    counter = other.subscribe("job", Look("(SELECT count(*) FROM job_pause)", MOMENT.total_seconds()))
    async with asyncio.timeout(LONG.total_seconds()):
        await counter.wait(HOUR)  # the first answer is news
        await database.raw.execute("INSERT INTO job_pause (kind) VALUES ('CLEANUP')")
        assert await bell.wait(HOUR) is False  # it was not notified
        assert await counter.wait(HOUR) is False
    assert await counter.wait(MOMENT * 4) is False  # nothing has changed since


async def test_a_reader_with_a_look_polls_for_itself_only_while_the_notifier_has_no_connection(
    database: Database, hearing: Notifier
):
    assert hearing.poll_interval(MOMENT) == timedelta(seconds=5)
    assert hearing.poll_interval(LONG) == LONG
    assert Notifier(database).poll_interval(MOMENT) == MOMENT


async def test_a_burst_of_changes_reaches_the_others(hearing: Notifier, other: Notifier):
    bell = other.subscribe("job")
    for _ in range(1000):
        hearing.notify(["job"])
    assert await bell.wait(LONG) is True


async def test_notifying_never_blocks_or_fails_even_without_a_connection(database_url: str):
    signals = Notifier(Database(database_url, pool_size=1))
    bell = signals.subscribe("job")
    signals.notify(["job"])
    assert await asyncio.wait_for(bell.wait(LONG), 20) is True
    await signals.stop()
