"""The whole provider in one story, as the example tells it: nothing is left, and its secrets are nowhere."""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest

from tests.examples.programs import python, running
from tests.flows.deployment import API_KEY, Deployment, deployment
from tests.flows.test_restore import execute
from tests.server.cache.test_redis import BINARY, Redis, _everything
from tests.support.databases import DatabaseMaker
from tests.support.processes import control
from tests.support.watcher import GraphQLClient

PASSWORD = "the-password-of-the-registry"
SECRET = "a-value-that-only-the-container-sees"
NO_SECRETS = ("registry.example.test/team/trainer", "RTX 4090 24GB", "operation.accepted", "job.done", "createInstance")
PREFIX = "/gpu-instance/openapi/v1"
SPEED = 50
TABLES = """
    SELECT relname FROM pg_class
    WHERE relkind IN ('r', 'p') AND NOT relispartition AND relnamespace = 'public'::regnamespace
"""


@pytest.fixture
async def redis() -> AsyncIterator[Redis]:
    if BINARY is None:
        pytest.skip("redis-server is not installed here")
    with tempfile.TemporaryDirectory(prefix="pilotlight-redis-") as folder:
        redis = Redis(Path(folder))
        await redis.start()
        yield redis
        redis.kill()


class Search:
    """Looks into every place, again and again during the story."""

    def __init__(self, stage: Deployment, redis: Redis) -> None:
        self.stage = stage
        self.redis = redis
        self.needles = {PASSWORD, SECRET, API_KEY, stage.token}
        self.found: set[tuple[str, str]] = set()
        self.searched: set[str] = set()  # where something of the story was found, so that the search is not blind
        self.machine_was_seen = False
        self.values_in_redis = 0
        self.rows = 0

    async def forever(self) -> None:
        while True:
            await self.once()
            await asyncio.sleep(0.2)

    async def once(self) -> None:
        for machine in await self._machines():
            self.machine_was_seen = True
            for component in ("connectComponentSSH", "connectComponentWebTerminal"):
                self.needles.add(str((machine.get(component) or {}).get("password") or PASSWORD))
            load = {"gpuPercent": 42, "from": time.time() - 3600, "to": time.time() + 3600}
            await control(self.stage.simulator_url, f"instances/{machine['id']}/load", load)
        connection = await asyncpg.connect(self.stage.database_url)
        try:
            for (table,) in await connection.fetch(TABLES):
                rows = await connection.fetch(f'SELECT to_jsonb(t)::text FROM "{table}" AS t')
                self.rows = max(self.rows, len(rows))
                self._look(f"table {table}", "\n".join(row[0] for row in rows))
        finally:
            await connection.close()
        values = [value for value in await _everything(self.redis) if value]
        self.values_in_redis = max(self.values_in_redis, len(values))
        self._look("Redis", "\n".join(value.decode("latin-1") for value in values))

    def logs_and_traces(self) -> None:
        self._look("the API's log", self.stage.api.said)
        self._look("the worker's log", self.stage.worker.said)
        self._look("traces", b"\n".join(self.stage.collector.raw).decode("latin-1"))

    async def dump(self, file: Path) -> None:
        await execute("pg_dump", "-f", str(file), self.stage.database_url)
        text = file.read_text()
        assert "COPY public.instance " in text
        self._look("pg_dump", text)

    def _look(self, where: str, text: str) -> None:
        self.found |= {(where, needle) for needle in self.needles if needle in text}
        if any(word in text for word in NO_SECRETS):
            self.searched.add(where)

    async def _machines(self) -> list[dict[str, Any]]:
        return (await provider(self.stage, "/gpu/instances"))["instances"]


async def provider(stage: Deployment, path: str) -> Any:
    headers = {"authorization": f"Bearer {API_KEY}"}
    async with (
        aiohttp.ClientSession(headers=headers) as http,
        http.get(f"{stage.simulator_url}{PREFIX}{path}") as response,
    ):
        return await response.json()


async def left(stage: Deployment) -> dict[str, Any]:
    """What the account has and a new one has not."""
    auths = (await provider(stage, "/repository/auths"))["data"]
    templates = (await provider(stage, "/templates?pageSize=100"))["template"]
    return {
        "machines": [each for each in (await provider(stage, "/gpu/instances"))["instances"] if is_there(each)],
        "volumes": (await control(stage.simulator_url, "volumes"))["volumes"],
        "auths": [each["name"] for each in auths if each["username"] != "robot" or each["password"] == PASSWORD],
        "templates": [each["name"] for each in templates if each["name"].startswith("trainer")],
    }


def is_there(machine: dict[str, Any]) -> bool:
    return machine["status"] != "removed"


async def test_a_private_image_a_volume_and_a_template_make_an_instance_and_leave_nothing(
    new_database: DatabaseMaker, tmp_path: Path, redis: Redis
):
    settings = {"REDIS_URL": redis.url.get_secret_value(), "ENCRYPTION_KEY": "k" * 40}
    async with deployment(await new_database.migrated(), tmp_path, **settings) as stage:
        await control(stage.simulator_url, "speed", {"speed": SPEED})
        search = Search(stage, redis)
        searching = asyncio.create_task(search.forever())
        env = {"PILOTLIGHT_URL": stage.graphql_url, "PILOTLIGHT_TOKEN": stage.token}
        command = python("python/whole_story.py", "trainer")
        async with running(command, tmp_path, REGISTRY_PASSWORD=PASSWORD, API_SECRET=SECRET, **env) as program:
            code = await program.ends()
        searching.cancel()
        (ended,) = await asyncio.gather(searching, return_exceptions=True)
        assert isinstance(ended, asyncio.CancelledError)
        await search.once()
        await search.dump(tmp_path / "dump.sql")
        search.logs_and_traces()

        assert code == 0, program.said
        assert program.lines == [
            "the volume is AVAILABLE",
            "createInstance: READY",
            "GPU: 42 %",
            program.lines[3],
            "access: ssh",
            "stopInstance: EXITED",
            "saveImage: EXITED",
            "upgradeInstance: READY",
            "deleteInstance: DELETED",
            "nothing is left",
        ]
        assert program.lines[3].startswith("log: ")
        assert await left(stage) == {"machines": [], "volumes": [], "auths": [], "templates": []}
        state = await control(stage.simulator_url, "state")
        assert (state["instancesMade"], state["volumesMade"]) == (1, 1)
        # There was something to search, and nothing was found.
        assert search.machine_was_seen
        assert len(search.needles) >= 5
        assert search.values_in_redis > 0
        assert search.rows > 10
        places = {"table instance", "table event", "Redis", "pg_dump", "the API's log", "the worker's log", "traces"}
        assert places <= search.searched
        assert search.found == set()
        caller = GraphQLClient(stage.graphql_url, stage.token)
        events = await caller.ask("{ projectEvents { nodes { type data { value } } } events { nodes { type } } }")
        types = [node["type"] for node in events["projectEvents"]["nodes"]]
        volumes = [each for each in types if each.startswith("volume.")]
        assert volumes == ["volume.creating", "volume.available", "volume.deleting", "volume.deleted"]
        others = {each for each in types if not each.startswith("volume.")}
        created, deleted = "registry_auth.created template.created", "registry_auth.deleted template.deleted"
        assert others == {*created.split(), *deleted.split()}
        assert events["events"]["nodes"][-1]["type"] == "operation.finished"
