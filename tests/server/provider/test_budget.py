"""The budget in the database: all processes together keep within the limit."""

import asyncio

from server.novita.transport.budget import CallPriority
from server.provider.budget import SharedBudget
from tests.support.world import World

P = CallPriority


async def test_two_clients_share_one_budget(world: World):
    budgets = [SharedBudget(world.database, 120) for _ in range(2)]  # two calls a second, 12 at once

    grants = await asyncio.gather(*(budgets[n % 2].take({P.END: 3}, charged={}, successes=0) for n in range(20)))

    assert 12 <= sum(grant.calls[P.END] for grant in grants) <= 20  # twelve, and what is added meanwhile


async def test_a_refusal_seen_by_one_client_slows_the_other(world: World):
    one, other = SharedBudget(world.database, 600), SharedBudget(world.database, 600)

    assert await one.lower() == 7.0

    assert (await other.take({}, charged={}, successes=0)).rate == 7.0
