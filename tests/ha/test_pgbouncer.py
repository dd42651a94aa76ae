"""Transactions through PgBouncer and sessions around it work as without it."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from server.db.database import Database
from server.db.notify import Notifier
from tests.ha.pgbouncer import pgbouncer
from tests.support.frozen import frozen_process
from tests.support.processes import pilotlight, run
from tests.support.waiting import until
from tests.support.watcher import STORY, GraphQLClient, story_of
from tests.support.world import World

pytestmark = pytest.mark.skipif(shutil.which("pgbouncer") is None, reason="pgbouncer is not installed here")

ADD = text("INSERT INTO project (id, name) VALUES (gen_random_uuid(), :name)")


@pytest.fixture
async def behind(database_url: str) -> AsyncIterator[Database]:
    """Ten connections of ours, two of the pooler's."""
    async with pgbouncer(database_url, pool_size=2) as url:
        database = Database(url, direct_url=database_url, pool_size=10)
        yield database
        await database.close()


async def test_statements_of_many_clients_do_not_meet_on_a_shared_connection(behind: Database):
    async def work(number: int) -> None:
        for step in range(5):
            name = f"{number}-{step}"
            async with behind.write() as session:
                await session.execute(ADD, {"name": name})
            async with behind.read() as session:
                found = await session.scalars(text("SELECT name FROM project WHERE name = :name"), {"name": name})
                assert list(found) == [name]
            pool = behind.raw
            assert await pool.fetchval("SELECT name || $2 FROM project WHERE name = $1", name, "!") == f"{name}!"

    await asyncio.gather(*(work(number) for number in range(20)))

    async with behind.read() as session:
        assert await session.scalar(text("SELECT count(*) FROM project")) == 100


async def test_frozen_process_frees_its_rows_behind_it_too(behind: Database, world: World, database_url: str):
    instance = await world.put()
    async with (
        pgbouncer(database_url, pool_size=1) as url,
        frozen_process(url, instance.id, idle=timedelta(seconds=1), direct=database_url),
        world.database.write() as session,
    ):
        await session.execute(text("SELECT FROM instance WHERE id = :id FOR UPDATE"), {"id": instance.id})

    async with behind.write() as session:
        bounds = await session.execute(
            text("SELECT current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout')")
        )
        assert tuple(bounds.one()) == ("15s", "10s")


async def test_signals_are_heard_past_it(behind: Database, database: Database):
    hearing, telling = Notifier(behind), Notifier(database)
    bell = hearing.subscribe("job")
    hearing.start()
    telling.start()
    try:
        await until(lambda: hearing.is_listening and telling.is_listening)
        telling.notify({"job"})
        assert await bell.wait(timedelta(seconds=30))
    finally:
        await hearing.stop()
        await telling.stop()


async def test_an_instance_becomes_ready_with_api_and_worker_behind_it(new_database: Any, tmp_path: Path):
    direct = await new_database()
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(pgbouncer(direct, pool_size=3))
        settings = {"DATABASE_URL": url, "DATABASE_DIRECT_URL": direct, "NOVITA_API_KEY": "sk_x", "LOG_FORMAT": "json"}
        simulator = await stack.enter_async_context(pilotlight("simulate", "--port", "0"))
        migrated = await run("migrate", env=settings)
        assert migrated.code == 0, migrated.said
        token = (await run("token", "create", "pooled", env=settings)).printed.strip()
        await simulator.says("http://")
        settings["NOVITA_API_BASE_URL"] = next(word for word in simulator.said.split() if word.startswith("http://"))
        file = tmp_path / "ready"
        api = await stack.enter_async_context(
            pilotlight("serve", "--port", "0", "--ready-file", str(file), env=settings)
        )
        worker = await stack.enter_async_context(pilotlight("worker", env=settings))
        await until(file.exists, within=60)
        caller = GraphQLClient(json.loads(file.read_text())["graphqlUrl"], token)
        async with caller.subscribed() as events:
            ids = await asyncio.gather(*(caller.create(f"pooled-{number}") for number in range(8)))
            seen = list(await events.until("READY", *ids, within=90))
        said = api.said + worker.said

    assert [story_of(seen, id) for id in ids] == [STORY] * 8
    assert "prepared statement" not in said
