"""Processes of the previous release and of this one share a database during an upgrade."""

import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from server.db.database import Database
from server.db.migrate import current_revision, known_head
from tests.support.databases import DatabaseMaker
from tests.support.processes import ROOT, Pilotlight, free_port, pilotlight, run
from tests.support.waiting import until
from tests.support.watcher import STORY, GraphQLClient, positions, story_of
from tests.upgrade.release import PREVIOUS_HEAD, command_of, previous_release

NEW = command_of(ROOT)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@dataclass
class Both:
    """What runs, and how to run more of either kind."""

    stack: AsyncExitStack
    old: tuple[str, ...]
    environment: dict[str, str]
    url: str

    async def api(self, command: tuple[str, ...]) -> tuple[Pilotlight, str]:
        port = free_port()
        process = await self.stack.enter_async_context(
            pilotlight("serve", "--port", str(port), env=self.environment, command=command)
        )
        await process.says("api.ready")
        return process, f"http://127.0.0.1:{port}/graphql"

    async def worker(self, command: tuple[str, ...]) -> Pilotlight:
        process = await self.stack.enter_async_context(pilotlight("worker", env=self.environment, command=command))
        await process.says("worker.ready")
        return process

    async def migrate(self, command: tuple[str, ...]) -> None:
        done = await run("migrate", env=self.environment, command=command)
        assert done.code == 0, done.said

    async def revision(self) -> str | None:
        database = Database(self.url, pool_size=1)
        try:
            return await current_revision(database)
        finally:
            await database.close()


@pytest.fixture
async def both(new_database: DatabaseMaker, tmp_path: Path) -> AsyncIterator[Both]:
    folder = tmp_path / "previous"
    folder.mkdir()
    if previous_release(folder) is None:
        pytest.skip(f"git does not know the release that ended with migration {PREVIOUS_HEAD}")
    url = await new_database()
    port = free_port()
    environment = {
        "DATABASE_URL": url,
        "NOVITA_API_KEY": "sk_upgrade",
        "NOVITA_API_BASE_URL": f"http://127.0.0.1:{port}",
        "LOG_FORMAT": "json",
    }
    async with AsyncExitStack() as stack:
        simulator = (sys.executable, "-m", "server.simulator")
        process = await stack.enter_async_context(
            pilotlight("--port", str(port), "--speed", "50", command=simulator, env={"PYTHONPATH": str(ROOT)})
        )
        await until(lambda: _printed(process))
        yield Both(stack, command_of(folder), environment, url)


async def _printed(process: Pilotlight) -> bool:
    assert process.process.returncode is None, process.said
    return "http://" in process.printed


async def test_old_and_new_processes_share_jobs_and_subscribers_on_one_database(both: Both):
    await both.migrate(both.old)
    assert await both.revision() == PREVIOUS_HEAD
    old_api, old_url = await both.api(both.old)
    old_worker = await both.worker(both.old)
    secret = (await run("token", "create", "upgrade", env=both.environment, command=both.old)).printed.split()[-1]
    by_old = GraphQLClient(old_url, secret)
    before = await by_old.create("before")
    await by_old.becomes(before, "READY", within=60)

    # Everything of the old release runs on while the tables get their new shape.
    await both.migrate(NEW)
    assert await both.revision() == known_head()
    new_api, new_url = await both.api(NEW)
    new_worker = await both.worker(NEW)
    by_new = GraphQLClient(new_url, secret)

    async with by_old.subscribed() as old_stream, by_new.subscribed() as new_stream:
        ids = [await (by_old, by_new)[number % 2].create(f"during-{number}") for number in range(12)]
        seen_by_old = await old_stream.until("READY", *ids)
        seen_by_new = await new_stream.until("READY", *ids)
    for id in ids:
        assert story_of(seen_by_old, id) == story_of(seen_by_new, id) == STORY
        assert (await by_old.instance(id))["novitaId"] == (await by_new.instance(id))["novitaId"] is not None
    assert positions(seen_by_new) == sorted(set(positions(seen_by_new)))
    assert "job.done" in old_worker.said.partition("worker.ready")[2], old_worker.said
    assert "job.done" in new_worker.said, new_worker.said
    for process in (old_api, old_worker, new_api, new_worker):
        assert process.process.returncode is None, process.said
        assert '"level": "error"' not in process.said
        assert '"level":"error"' not in process.said

    # The old ones go; who watched there goes on where it was, with what it knew.
    assert await old_api.stop() == 0
    assert await old_worker.stop() == 0
    last = seen_by_old[-1]["cursor"]
    async with by_new.subscribed(after=last) as stream:
        after = await by_new.create("after")
        seen = await stream.until("READY", after)
    rest = [event["id"] for event in seen_by_new if positions([event]) > positions(seen_by_old[-1:])]
    assert [event["id"] for event in seen][: len(rest)] == rest
    assert story_of(seen, after) == STORY
