"""Many waiting creates, stock that comes one by one, and workers that die. `make wait-storm` has 500 of them."""

import asyncio
import os
import random
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

import pytest

from server.auth.caller import Caller
from server.market.tape import record_poll
from server.novita.client import NovitaClient
from tests.server.market.polls import CLUSTER, Market
from tests.server.market.test_alerts import SEGMENT
from tests.server.market.waiters import CREATE, DyingAfter, DyingBefore, create, names_made, work
from tests.support.accounting import machines_unaccounted
from tests.support.lifecycle import rescue

MANY = int(os.environ.get("WAIT_STORM", "12"))
SEED = 2031
PROJECTS, PRIORITIES = 5, (10, 50, 90)
DEATH = 0.3  # of a worker, at each arrival


Place = tuple[int, datetime, str]


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


@pytest.mark.timeout(3600)
async def test_waiters_of_several_projects_are_served_in_the_exact_order_whatever_dies(empty: Market):
    world, rng, queue = empty.world, random.Random(SEED), Queue()
    callers: list[Caller] = [await world.new_caller(f"project-{number}") for number in range(PROJECTS)]
    for number in range(MANY):
        by, priority = callers[rng.randrange(PROJECTS)], rng.choice(PRIORITIES)
        accepted = await create(empty, f"one-{number:03}", priority=priority, by=by)
        queue.join(by.project_id, priority, accepted.operation.created_at, accepted.instance.name)
    await work(empty)
    assert await world.value("SELECT count(*) FROM capacity_wait WHERE job_id IS NULL") == MANY

    expected: list[str] = []
    deaths = 0
    for _ in range(MANY):
        expected.append(queue.take())
        await one_comes(empty)
        deaths += await work_and_die(empty, rng)
        assert world.made() == len(expected)

    assert deaths > 0
    assert await names_made(empty) == expected
    assert await world.value("SELECT count(*) FROM capacity_wait") == 0
    assert await world.value("SELECT count(DISTINCT novita_id) FROM instance") == len(world.machines()) == MANY
    assert world.calls(CREATE) <= MANY + MANY  # machines made and offers
    assert await machines_unaccounted(world) == []
