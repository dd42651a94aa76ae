"""Many waiting creates, stock that comes one by one, and workers that die. `make wait-storm` has 500 of them.

The expected order is computed here, the made one read from the simulator: nothing is taken from what the product says
about its queue.
"""

import asyncio
import os
import random
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

import pytest

from server.auth.caller import Caller
from server.market.tape import record_poll
from server.novita.client import NovitaClient
from server.simulator.faults import Fault, FaultKind
from tests.server.market.polls import CLUSTER, Market
from tests.server.market.test_alerts import SEGMENT
from tests.server.market.waiters import CREATE, DyingAfter, DyingBefore, create, names_made, work
from tests.support.accounting import machines_unaccounted
from tests.support.lifecycle import rescue
from tests.support.processes import Pilotlight, pilotlight
from tests.support.waiting import until

MANY = int(os.environ.get("WAIT_STORM", "12"))
MANY_WITH_PROCESSES = int(os.environ.get("WAIT_STORM", "5"))
SEED = 2031
PROJECTS, PRIORITIES = 5, (10, 50, 90)
DEATH = 0.3  # of a worker, at each arrival
KILL = 0.4  # of a process
CALLS_MAX = 6  # a process is killed after so many calls of the provider at most
PROCESSES = 2
# A worker that takes over waits for these; short ones keep the proportions.
SETTINGS = {
    "LOG_FORMAT": "json",
    "REQUEST_TIMEOUT": "3s",
    "REQUEST_DEADLINE": "4s",
    "CREATE_GRACE": "3s",
    "MARKET_HOT": "1s",
    "MARKET_CALLS": "1000",
}


@dataclass
class Queue:
    """What the order has to be, said another way than in SQL: a list of names for each project."""

    waiting: dict[UUID, list[tuple[int, datetime, str]]] = field(
        default_factory=dict[UUID, list[tuple[int, datetime, str]]]
    )
    served: dict[UUID, int] = field(default_factory=dict[UUID, int])

    def join(self, project: UUID, priority: int, since: datetime, name: str) -> None:
        self.waiting.setdefault(project, []).append((-priority, since, name))

    def take(self) -> str:
        """Of the project that was served longest ago, or never and waits longest, the first by priority and time."""
        project = min(
            (each for each, queue in self.waiting.items() if queue),
            key=lambda each: (self.served.get(each, 0), min(since for _, since, _ in self.waiting[each])),
        )
        first = min(self.waiting[project])
        self.waiting[project].remove(first)
        self.served[project] = 1 + max(self.served.values(), default=0)
        return first[2]


async def one_comes(market: Market) -> None:
    """One machine is free, and a poll of its segment sees it."""
    world = market.world
    market.plan(free=1)
    at = await world.value("SELECT clock_timestamp()")
    products = await world.novita.products(cluster_id=CLUSTER, billing="spot", gpu_count=1)
    async with world.database.write() as session:
        await record_poll(session, SEGMENT, products, at=at)


async def work_and_die(market: Market, rng: random.Random) -> int:
    """Work; now and then the worker dies before or after a create has reached the provider. Returns how often."""
    deaths = 0
    if rng.random() < DEATH:
        market.world.novita.__class__ = rng.choice((DyingBefore, DyingAfter))
        try:
            await work(market)
        except asyncio.CancelledError:
            deaths = 1
        finally:
            market.world.novita.__class__ = NovitaClient
        await rescue(market.world)
        await market.world.age_attempts()
    await work(market)
    return deaths


async def all_wait(market: Market, rng: random.Random, many: int) -> Queue:
    """Creates of several projects and priorities that sleep."""
    world, queue = market.world, Queue()
    callers: list[Caller] = [await world.new_caller(f"project-{number}") for number in range(PROJECTS)]
    for number in range(many):
        by, priority = callers[rng.randrange(PROJECTS)], rng.choice(PRIORITIES)
        accepted = await create(market, f"one-{number:03}", priority=priority, by=by)
        queue.join(by.project_id, priority, accepted.operation.created_at, accepted.instance.name)
    await work(market)
    assert await world.value("SELECT count(*) FROM capacity_wait WHERE job_id IS NULL") == many
    return queue


async def check(market: Market, expected: list[str]) -> None:
    """Served in this order, each once, none left, with one refused create for each offer at most."""
    world = market.world
    assert await names_made(market) == expected
    assert await world.value("SELECT count(*) FROM capacity_wait") == 0
    machines = await world.value("SELECT count(DISTINCT novita_id) FROM instance")
    assert machines == len(world.machines()) == world.made() == len(expected)
    assert world.calls(CREATE) <= len(expected) + len(expected)  # machines made and offers
    assert await machines_unaccounted(world) == []


@pytest.mark.timeout(3600)
async def test_waiters_of_several_projects_are_served_in_the_exact_order_whatever_dies(empty: Market):
    world, rng = empty.world, random.Random(SEED)
    queue = await all_wait(empty, rng, MANY)

    expected: list[str] = []
    deaths = 0
    for _ in range(MANY):
        expected.append(queue.take())
        await one_comes(empty)
        deaths += await work_and_die(empty, rng)
        assert world.made() == len(expected)

    assert deaths > 0
    await check(empty, expected)


@asynccontextmanager
async def worker(settings: dict[str, str]) -> AsyncGenerator[Pilotlight]:
    """A worker process; kill -9 ends it."""
    async with pilotlight("worker", env=settings) as process:
        await process.says("worker.ready")
        yield process


async def wait_for_its_moment(market: Market, rng: random.Random, made: int) -> None:
    """At a random call of the provider, or before the answer to a create is there."""
    world, before = market.world, market.world.calls()
    if rng.random() < 0.5:
        world.faults(Fault(FaultKind.HANG_AFTER, (CREATE,), times=1))
        await until(lambda: world.made() == made, within=60)
        return
    calls = rng.randint(1, CALLS_MAX)
    await until(lambda: world.calls() >= before + calls or world.made() == made, within=60)


@pytest.mark.slow
@pytest.mark.timeout(7200)
async def test_processes_that_are_killed_at_random_keep_the_exact_order(empty: Market, database_url: str):
    world, rng = empty.world, random.Random(SEED)
    queue = await all_wait(empty, rng, MANY_WITH_PROCESSES)
    provider = {"NOVITA_API_BASE_URL": world.simulator.url, "NOVITA_API_KEY": world.simulator.api_key}
    settings = {**SETTINGS, **provider, "DATABASE_URL": database_url}
    await world.execute("UPDATE job SET run_at = now(), due_at = now() WHERE kind = 'POLL_MARKET'")
    expected: list[str] = []
    kills = 0
    async with AsyncExitStack() as stack:
        running: list[AsyncExitStack] = []

        async def start() -> None:
            one = await stack.enter_async_context(AsyncExitStack())
            await one.enter_async_context(worker(settings))
            running.append(one)

        for _ in range(PROCESSES):
            await start()
        for _ in range(MANY_WITH_PROCESSES):
            expected.append(queue.take())
            empty.plan(free=1)
            if rng.random() < KILL:
                await wait_for_its_moment(empty, rng, len(expected))
                await running.pop(rng.randrange(PROCESSES)).aclose()
                kills += 1
                world.faults()
                await start()
            await until(lambda: world.made() == len(expected), within=120)

        async def all_are_linked() -> bool:
            return await world.value("SELECT count(*) FROM instance WHERE novita_id IS NOT NULL") == len(expected)

        await until(all_are_linked, within=120)

    assert kills > 0
    await check(empty, expected)
