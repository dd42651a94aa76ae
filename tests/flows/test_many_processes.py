"""Several `serve` and `worker` processes share the work of one database, and one of them may die."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest

from tests.support.processes import Pilotlight, control, has_made, made, pilotlight, run
from tests.support.waiting import until
from tests.support.watcher import STORY, GraphQLClient, positions, story_of

INSTANCES = 20
SLOTS = 5  # jobs that one worker runs at once


@dataclass
class Cluster:
    """A simulator, two APIs, two workers."""

    database_url: str
    simulator_url: str
    callers: list[GraphQLClient]
    workers: list[Pilotlight]

    async def query(self, statement: str) -> list[Any]:
        connection = await asyncpg.connect(self.database_url)
        try:
            return await connection.fetch(statement)
        finally:
            await connection.close()


@pytest.fixture(scope="module")
async def cluster(new_database: Any, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    tmp_path = tmp_path_factory.mktemp("cluster")
    url = await new_database()
    settings = {"DATABASE_URL": url, "NOVITA_API_KEY": "sk_x", "LOG_FORMAT": "json"}
    settings |= {"MAX_CONCURRENT_JOBS": str(SLOTS), "REQUEST_TIMEOUT": "3s", "BREAKER_RECOVERY": "1s"}
    async with AsyncExitStack() as stack:
        simulator = await stack.enter_async_context(pilotlight("simulate", "--port", "0"))
        # Ten at once would migrate once as well: see the tests of migrations. Here is the way of every deployment.
        migrated = await run("migrate", env=settings)
        assert migrated.code == 0, migrated.said
        token = (await run("token", "create", "cluster", env=settings)).printed.strip()
        await simulator.says("http://")
        settings["NOVITA_API_BASE_URL"] = next(word for word in simulator.said.split() if word.startswith("http://"))
        files = [tmp_path / "api-1", tmp_path / "api-2"]
        for file in files:
            await stack.enter_async_context(pilotlight("serve", "--port", "0", "--ready-file", str(file), env=settings))
        workers = [await stack.enter_async_context(pilotlight("worker", env=settings)) for _ in range(2)]
        await until(lambda: all(file.exists() for file in files), within=60)
        for worker in workers:
            await worker.says("worker.ready")
        callers = [GraphQLClient(json.loads(file.read_text())["graphqlUrl"], token) for file in files]
        yield Cluster(url, settings["NOVITA_API_BASE_URL"], callers, workers)


async def test_the_work_is_shared_and_events_of_one_api_reach_subscribers_of_the_other(cluster: Cluster):
    first, second = cluster.callers
    async with first.subscribed() as events:
        names = [f"shared-{number}" for number in range(INSTANCES)]
        ids = await asyncio.gather(*(cluster.callers[n % 2].create(name) for n, name in enumerate(names)))
        seen = list(await events.until("READY", *ids))

    assert len(set(ids)) == INSTANCES
    assert [story_of(seen, id) for id in ids] == [STORY] * INSTANCES
    places = positions(seen, await second.log())
    assert places == sorted(set(places))
    assert {(await second.instance(id))["status"] for id in ids} == {"READY"}
    assert await made(cluster.simulator_url) == INSTANCES
    done = [set(jobs_done(worker)) for worker in cluster.workers]
    assert all(done)
    assert done[0].isdisjoint(done[1])
    assert len(done[0] | done[1]) == 3 * INSTANCES  # create, monitor, check health


async def test_a_worker_that_is_killed_leaves_its_jobs_to_the_other(cluster: Cluster):
    """While all of its creates hang at the provider, so that it holds as many jobs as it can."""
    hang = {"kind": "hangAfter", "routes": ["POST /gpu/instance/create"], "times": 2 * SLOTS}
    await control(cluster.simulator_url, "faults", {"faults": [hang]})
    before = await made(cluster.simulator_url)
    caller = cluster.callers[0]
    async with caller.subscribed() as events:
        ids = await asyncio.gather(*(caller.create(f"orphan-{number}") for number in range(INSTANCES)))
        victim, heir = cluster.workers
        await has_made(cluster.simulator_url, before + 2 * SLOTS)
        held = await cluster.query("SELECT name FROM job JOIN job_worker ON worker_id = job_worker.id")
        assert any(row["name"].endswith(f":{victim.pid}") for row in held)

        await victim.kill_tree()
        await control(cluster.simulator_url, "faults", {"faults": []})
        seen = list(await events.until("READY", *ids, within=90))

    assert [story_of(seen, id) for id in ids] == [STORY] * INSTANCES
    places = positions(seen, await caller.log())
    assert places == sorted(set(places))
    assert await made(cluster.simulator_url) == before + INSTANCES
    assert "worker.rescued" in heir.said
    assert await heir.stop(signal.SIGTERM) == 0


def jobs_done(worker: Pilotlight) -> Iterable[int]:
    """The ids of the jobs that it did, as its log has them."""
    lines = [json.loads(line) for line in worker.said.splitlines()]
    return [line["job_id"] for line in lines if line["event"] == "job.done" and line["kind"] != "CLEAN_UP"]
