"""Two API processes share caches in a real Redis; when it dies, every request is still answered."""

import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.flows.deployment import new_token
from tests.server.cache.test_redis import BINARY, Redis
from tests.support.processes import pilotlight
from tests.support.waiting import until
from tests.support.watcher import GraphQLClient

pytestmark = pytest.mark.skipif(BINARY is None, reason="redis-server is not installed here")

PRODUCTS = "{ products { id name } }"


@dataclass
class SharedCache:
    callers: list[GraphQLClient]
    redis: Redis


@pytest.fixture
async def stage(new_database: Any, tmp_path: Path) -> AsyncIterator[SharedCache]:
    async with AsyncExitStack() as stack:
        redis = Redis(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pilotlight-redis-"))))
        await redis.start()
        stack.callback(redis.kill)
        settings = {"DATABASE_URL": await new_database.migrated(), "NOVITA_API_KEY": "sk_x", "LOG_FORMAT": "json"}
        settings["REDIS_URL"] = redis.url.get_secret_value()
        simulator = await stack.enter_async_context(pilotlight("simulate", "--port", "0"))
        token = await new_token(settings["DATABASE_URL"])
        await simulator.says("http://")
        settings["NOVITA_API_BASE_URL"] = next(word for word in simulator.said.split() if word.startswith("http://"))
        files = [tmp_path / "api-1", tmp_path / "api-2"]
        for file in files:
            await stack.enter_async_context(pilotlight("serve", "--port", "0", "--ready-file", str(file), env=settings))
        await until(lambda: all(file.exists() for file in files), within=60)
        yield SharedCache([GraphQLClient(json.loads(file.read_text())["graphqlUrl"], token) for file in files], redis)


async def test_redis_dying_costs_no_answer(stage: SharedCache):
    first, second = stage.callers
    answers = [await first.ask(PRODUCTS)]
    await second.create("while-it-lives")

    stage.redis.kill()
    answers += [await caller.ask(PRODUCTS) for caller in stage.callers]
    for number, caller in enumerate(stage.callers):
        await caller.create(f"while-it-is-dead-{number}")
    await stage.redis.start()
    answers += [await caller.ask(PRODUCTS) for caller in stage.callers]
    await first.create("when-it-is-back")

    assert all(answer == answers[0] for answer in answers)
    assert answers[0]["products"]
