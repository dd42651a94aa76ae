"""Two API processes share their caches in a real Redis; it dies under them, and every request is answered."""

import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.flows.watcher import Caller
from tests.processes import eventually, pilotlight, run
from tests.server.catalog.test_shared import BINARY, Redis

pytestmark = pytest.mark.skipif(BINARY is None, reason="redis-server is not installed here")

PRODUCTS = "{ products { id name } }"


@dataclass
class Stage:
    callers: list[Caller]
    redis: Redis


@pytest.fixture
async def stage(new_database: Any, tmp_path: Path) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        redis = Redis(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pilotlight-redis-"))))
        await redis.start()
        stack.callback(redis.kill)
        settings = {"DATABASE_URL": await new_database(), "NOVITA_API_KEY": "sk_x", "LOG_FORMAT": "json"}
        settings["REDIS_URL"] = redis.url.get_secret_value()
        simulator = await stack.enter_async_context(pilotlight("simulate", "--port", "0"))
        assert (await run("migrate", env=settings)).code == 0
        token = (await run("token", "create", "redis", env=settings)).printed.strip()
        await simulator.says("http://")
        settings["NOVITA_API_BASE_URL"] = next(word for word in simulator.said.split() if word.startswith("http://"))
        files = [tmp_path / "api-1", tmp_path / "api-2"]
        for file in files:
            await stack.enter_async_context(pilotlight("serve", "--port", "0", "--ready-file", str(file), env=settings))
        await eventually(lambda: all(file.exists() for file in files), within=60)
        yield Stage([Caller(json.loads(file.read_text())["graphqlUrl"], token) for file in files], redis)


async def test_redis_dying_costs_no_answer(stage: Stage):
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
