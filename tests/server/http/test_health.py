"""`/readyz` and `fleet` show what the server lacks: workers, Redis, the provider."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import SecretStr

from server.cache.redis import PAUSE
from server.clock import new_id
from server.http.shared_responses import AT_ONCE
from tests.server.auth.test_tokens import counted
from tests.server.cache.test_redis import BINARY, Redis
from tests.server.cache.test_redis import redis as redis
from tests.support.api_server import Server, serving
from tests.support.waiting import until
from tests.support.world import World

WARNINGS = "{ fleet { warnings { code } } }"


@asynccontextmanager
async def served(world: World, **settings: Any) -> AsyncIterator[Server]:
    """When the event log is followed: until then it is not ready."""
    async with serving(world.database._hosts._urls[0], world.simulator, **settings) as server:
        await until(lambda: server.runtime.tail.is_following)
        yield server


async def readiness(server: Server) -> tuple[int, dict[str, str]]:
    async with server.http.get(f"http://{server.address}/readyz") as response:
        return response.status, (await response.json())["checks"]


async def warnings(server: Server, world: World) -> list[str]:
    token, _ = await world.new_token()
    return [each["code"] for each in (await server.ask(WARNINGS, token=token)).data["fleet"]["warnings"]]


async def start_worker(world: World) -> None:
    await world.execute(
        "INSERT INTO job_worker (id, name, lease_until) VALUES ($1, 'w', now() + interval '1 h')", new_id()
    )


async def test_missing_worker_is_shown(world: World):
    async with served(world) as server:
        status, checks = await readiness(server)
        assert (status, checks["workers"]) == (200, "no worker is alive; accepted work waits")
        assert "redis" not in checks
        assert await warnings(server, world) == ["NO_WORKERS"]

        await start_worker(world)
        assert (await readiness(server))[1]["workers"] == "ok"
        assert await warnings(server, world) == []


async def test_unreachable_provider_is_shown_in_the_fleet(world: World):
    await start_worker(world)
    async with served(world) as server:
        world.outage()
        assert await warnings(server, world) == ["PROVIDER_UNREACHABLE"]


async def test_redis_that_was_never_there_is_shown(world: World):
    await start_worker(world)
    async with served(world, redis_url=SecretStr("redis://127.0.0.1:1/0")) as server:
        status, checks = await readiness(server)
        assert (status, checks["redis"]) == (200, "Redis does not respond; each process uses its own cache")
        assert await warnings(server, world) == ["REDIS_UNAVAILABLE"]


@pytest.mark.skipif(BINARY is None, reason="redis-server is not installed here")
async def test_lost_redis_is_shown_until_it_is_back(world: World, redis: Redis):
    await start_worker(world)
    async with served(world, redis_url=redis.url) as server:
        assert (await readiness(server))[1]["redis"] == "ok"
        redis.kill()
        assert (await readiness(server))[1]["redis"] != "ok"
        assert await warnings(server, world) == ["REDIS_UNAVAILABLE"]
        await redis.start()

        async def is_back() -> bool:
            return (await readiness(server))[1]["redis"] == "ok"

        await until(is_back, within=10 * PAUSE.total_seconds())
        assert await warnings(server, world) == []


@pytest.mark.parametrize(("path", "statement"), [("/readyz", "SELECT 1"), ("/metrics", "FROM operation")])
async def test_many_requests_at_once_share_what_they_read(world: World, path: str, statement: str):
    """They need no token, so without this a stranger could keep all connections to the database busy."""
    async with served(world) as server:

        async def ask() -> int:
            async with server.http.get(f"http://{server.address}{path}") as response:
                await response.read()
                return response.status

        with counted(server.runtime.database) as statements:
            assert await asyncio.gather(*(ask() for _ in range(100))) == [200] * 100

    assert 1 <= len([each for each in statements if statement in each]) < 20


async def test_readiness_is_that_of_now_also_after_many_requests(world: World):
    await start_worker(world)
    async with served(world) as server:
        for _ in range(AT_ONCE + 2):
            assert (await readiness(server))[1]["workers"] == "ok"
        await world.execute("DELETE FROM job_worker")
        assert (await readiness(server))[1]["workers"] == "no worker is alive; accepted work waits"
