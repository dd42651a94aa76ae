"""Real workers that are killed, paused and cut off: every job is done, and none by two workers at once."""

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy import text

from server.db.database import Database
from server.db.embedded.server import EmbeddedPostgres, find_running
from server.db.outages import DATABASE_ERRORS
from server.queue.enqueue import enqueue, enqueue_many
from tests.server.queue.crew import PROOF, Crew, ExclusiveStep, Forker, Hang
from tests.support.databases import DatabaseMaker
from tests.support.proxy import Proxy
from tests.support.waiting import until

# QUEUE_KILLS=200 is the long version.
KILLS = int(os.environ.get("QUEUE_KILLS", "25"))

pytestmark = pytest.mark.slow


@pytest.fixture
async def url(new_database: DatabaseMaker) -> str:
    """A database of its own: workers that were killed may go on for a moment."""
    return await _with_proof(await new_database.migrated())


@pytest.fixture
async def durable_url(migrated_home: Path) -> AsyncIterator[str]:
    """A server of its own: it is restarted here, and what it has committed must still be there."""
    async with EmbeddedPostgres(migrated_home, durable=True) as running:
        yield await _with_proof(running.url)


async def _with_proof(url: str) -> str:
    connection = await asyncpg.connect(url)
    await connection.execute(PROOF)
    await connection.close()
    return url


@pytest.fixture(scope="module")
def forker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forker]:
    forker = Forker(tmp_path_factory.mktemp("crew") / "log")
    yield forker
    forker.end()


@pytest.fixture
def crew(forker: Forker, tmp_path: Path) -> Iterator[Crew]:
    crew = Crew(forker, tmp_path)
    yield crew
    crew.end()


@pytest.fixture
async def store(url: str) -> AsyncIterator[Database]:
    store = Database(url)
    yield store
    await store.close()


async def test_workers_killed_at_random_lose_nothing_and_no_job_runs_twice_at_once(
    url: str, crew: Crew, store: Database
):
    workers = [crew.start(url, 3) for _ in range(3)]
    asked = await _enqueue(store, 0, 300)
    for _ in range(KILLS):
        await asyncio.sleep(random.uniform(0.02, 0.15))
        victim = random.randrange(len(workers))
        os.kill(workers[victim], signal.SIGKILL)
        workers[victim] = crew.start(url, 3)
        asked += await _enqueue(store, asked, asked + 30)

    await until(lambda: _is_empty(store), within=60)

    assert await _value(store, "SELECT count(*) FROM proof") == asked
    assert await _value(store, "SELECT count(*) FROM job_history WHERE status = 'SUCCEEDED'") == asked
    assert await _value(store, "SELECT count(*) FROM job_history") == asked
    assert sorted(crew.folder.glob("two at once*")) == []


async def test_postgresql_restarted_under_load_loses_nothing(durable_url: str, migrated_home: Path, crew: Crew):
    store = Database(durable_url)
    try:
        await _restart_under_load(durable_url, migrated_home, crew, store)
    finally:
        await store.close()


async def _restart_under_load(url: str, migrated_home: Path, crew: Crew, store: Database) -> None:
    for _ in range(2):
        crew.start(url, 10)
    asked = await _enqueue(store, 0, 300)
    await until(lambda: _some_are_done(store))
    for _ in range(3):
        await until(lambda: find_running(migrated_home) is not None)
        running = find_running(migrated_home)
        assert running is not None
        os.kill(running.pid, signal.SIGQUIT)
        asked += await _enqueue(store, asked, asked + 300)

    await until(lambda: _is_empty(store), within=60)

    assert await _value(store, "SELECT count(DISTINCT number) FROM proof") == asked
    assert await _value(store, "SELECT count(*) FROM job_history WHERE status <> 'SUCCEEDED'") == 0
    assert sorted(crew.folder.glob("two at once*")) == []


async def test_worker_paused_past_its_lease_changes_nothing_when_it_continues(url: str, crew: Crew, store: Database):
    stopped = crew.start(url, 1)
    await _hang(store)
    await until(lambda: (crew.folder / f"{stopped} began").exists())

    os.kill(stopped, signal.SIGSTOP)
    successor = crew.start(url, 1)
    (crew.folder / f"{successor} go").touch()
    await until(lambda: _is_empty(store))
    (crew.folder / f"{stopped} go").touch()
    os.kill(stopped, signal.SIGCONT)

    await until(lambda: (crew.folder / f"{stopped} refused").exists())
    assert await _writers(store) == [successor]
    os.kill(successor, signal.SIGKILL)
    await _enqueue(store, 100, 101)
    await until(lambda: _is_empty(store))  # and the one that was stopped works again, under a new lease
    assert 100 in await _proved(store)


async def test_worker_cut_off_from_the_database_stops_in_time_and_writes_nothing_later(
    url: str, crew: Crew, store: Database
):
    async with Proxy(url) as proxy:
        cut_off = crew.start(proxy.url, 2)
        await _hang(store)
        await until(lambda: (crew.folder / f"{cut_off} began").exists())

        proxy.stall()
        successor = crew.start(url, 2)
        (crew.folder / f"{successor} go").touch()
        await until(lambda: (crew.folder / f"{successor} began").exists())
        taken_over_at = time.time()
        stopped_at = float((crew.folder / f"{cut_off} cancelled").read_text())
        await until(lambda: _is_empty(store))
        (crew.folder / f"{cut_off} go").touch()
        proxy.go_on()

        await until(lambda: (crew.folder / f"{cut_off} refused").exists())
        assert stopped_at < taken_over_at
        assert await _writers(store) == [successor]


async def test_a_worker_cut_off_inside_its_transaction_does_not_hold_the_job_for_ever(
    url: str, crew: Crew, store: Database
):
    async with Proxy(url) as proxy:
        cut_off = crew.start(proxy.url, 2)
        await _hang(store, in_transaction=True)
        await until(lambda: (crew.folder / f"{cut_off} began").exists())

        proxy.stall()
        successor = crew.start(url, 2)
        (crew.folder / f"{successor} go").touch()

        await until(lambda: _is_empty(store), within=30)
        assert await _writers(store) == [successor]


async def test_a_stopped_worker_finishes_what_it_runs_and_leaves_the_rest(url: str, crew: Crew, store: Database):
    worker = crew.start(url, 5)
    asked = await _enqueue(store, 0, 500)
    await until(lambda: _some_are_done(store))

    os.kill(worker, signal.SIGTERM)

    await until(lambda: not Path(f"/proc/{worker}").exists())
    waiting = await _value(store, "SELECT count(*) FROM job WHERE status = 'WAITING' AND attempts + losses = 0")
    done = await _value(store, "SELECT count(*) FROM job_history")
    assert (waiting + done, waiting > 0) == (asked, True)
    assert done == await _value(store, "SELECT count(*) FROM proof")
    assert await _value(store, "SELECT count(*) FROM job_worker") == 0


async def _enqueue(store: Database, first: int, after_last: int) -> int:
    """Enqueue steps with these numbers, with retries; a batch whose response was lost may be there twice."""
    while True:
        with suppress(*DATABASE_ERRORS):
            async with store.write() as session:
                await enqueue_many(session, [ExclusiveStep(number) for number in range(first, after_last)])
            return after_last - first
        await asyncio.sleep(0.05)


async def _hang(store: Database, *, in_transaction: bool = False) -> None:
    async with store.write() as session:
        await enqueue(session, Hang(1, in_transaction))


async def _value(store: Database, query: str) -> int:
    async with store.read() as session:
        return (await session.execute(text(query))).scalar_one()


async def _is_empty(store: Database) -> bool:
    try:
        return await _value(store, "SELECT count(*) FROM job") == 0
    except DATABASE_ERRORS:
        return False


async def _some_are_done(store: Database) -> bool:
    return await _value(store, "SELECT count(*) FROM job_history") > 20


async def _writers(store: Database) -> list[int]:
    async with store.read() as session:
        return list((await session.execute(text("SELECT by FROM proof"))).scalars())


async def _proved(store: Database) -> set[int]:
    async with store.read() as session:
        return set((await session.execute(text("SELECT number FROM proof"))).scalars())
