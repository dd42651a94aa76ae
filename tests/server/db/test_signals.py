"""Waking other processes: heard by others, not echoed to oneself, and healed when the connection is killed."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from sqlalchemy import text

from server.db.engine import Database, will_change
from server.db.signals import Signals
from tests.world import until

LONG = timedelta(seconds=20)
MOMENT = timedelta(milliseconds=150)


@pytest.fixture
async def other(database_url: str) -> AsyncIterator[Signals]:
    """Another process, as far as PostgreSQL can tell."""
    database = Database(database_url, pool_size=1, name="other process")
    signals = Signals(database)
    signals.start()
    await until(lambda: signals.is_hearing)
    yield signals
    await signals.stop()
    await database.close()


@pytest.fixture
async def hearing(signals: Signals) -> Signals:
    await until(lambda: signals.is_hearing)
    return signals


async def test_another_process_is_woken(hearing: Signals, other: Signals):
    bell = other.wakeup("job")
    hearing.changed(["job"])
    assert await bell.wait(LONG) is True


async def test_a_commit_wakes_other_processes(database: Database, hearing: Signals, other: Signals):
    bell = other.wakeup("job")
    async with database.write() as session:
        will_change(session, "job")
    assert await bell.wait(LONG) is True


async def test_only_who_waits_for_the_topic_is_woken(hearing: Signals, other: Signals):
    bells = {topic: other.wakeup(topic) for topic in ("job", "event")}
    hearing.changed(["job"])
    assert await bells["job"].wait(LONG) is True
    assert await bells["event"].wait(timedelta(0)) is False


async def test_ones_own_waiters_are_woken_at_once_and_only_once(hearing: Signals, other: Signals):
    mine, theirs = hearing.wakeup("job"), other.wakeup("job")
    hearing.changed(["job"])
    assert await mine.wait(timedelta(seconds=1)) is True

    assert await theirs.wait(LONG) is True  # by now the message has gone out, and back to us
    assert await mine.wait(MOMENT) is False


async def test_a_signal_that_comes_while_nobody_waits_is_not_missed(hearing: Signals, other: Signals):
    bell = other.wakeup("job")
    hearing.changed(["job"])
    last = other.wakeup("last")
    hearing.changed(["last"])
    await last.wait(LONG)

    assert await bell.wait(timedelta(seconds=1)) is True
    assert await bell.wait(timedelta(0)) is False


async def test_a_forgotten_bell_is_no_longer_rung(hearing: Signals):
    bell = hearing.wakeup("job")
    hearing.forget("job", bell)
    hearing.forget("job", bell)
    hearing.changed(["job"])
    assert await bell.wait(timedelta(0)) is False


async def test_a_killed_connection_heals_and_whoever_waits_is_woken_to_look(
    database: Database, hearing: Signals, other: Signals
):
    bell = other.wakeup("job")
    async with database.write() as session:
        killed = await session.execute(
            text("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = :name"),
            {"name": "other process"},
        )
    assert killed.scalar_one() == 1
    await until(lambda: not other.is_hearing, within=8)  # long before the next ping

    assert await bell.wait(LONG) is True  # something may have been said while it was deaf
    await until(lambda: other.is_hearing)
    hearing.changed(["job"])
    assert await bell.wait(LONG) is True


async def test_a_burst_of_changes_reaches_the_others(hearing: Signals, other: Signals):
    bell = other.wakeup("job")
    for _ in range(1000):
        hearing.changed(["job"])
    assert await bell.wait(LONG) is True


async def test_changing_never_waits_and_never_fails_even_when_nobody_is_connected(database_url: str):
    signals = Signals(Database(database_url, pool_size=1))
    bell = signals.wakeup("job")
    signals.changed(["job"])
    assert await asyncio.wait_for(bell.wait(LONG), 20) is True
    await signals.stop()
