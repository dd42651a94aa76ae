"""A machine that has become dearer than what was admitted is admitted again before it is made."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from server.enums import Billing, InstanceStatus
from server.market.wait_draft import WaitDraft
from tests.server.spend.test_budgets import LIFETIME, budget, usage
from tests.server.spend.test_quotas import quota
from tests.support.world import SINGAPORE, World

DEAR = 39_000  # on demand, in 1/100000 USD for an hour
MICROS = 10
ORDER: dict[str, Any] = {"regions": (SINGAPORE,), "lifetime": LIFETIME, "billing": Billing.ON_DEMAND}


async def raise_price(world: World, price_e5: int) -> None:
    products = world.simulator.world.catalog.products
    products["26"] = replace(products["26"], price=price_e5)
    await world.configure()  # without cached prices


@pytest.mark.parametrize("by", ["BUDGET_EXCEEDED", "PROJECT_QUOTA_EXCEEDED"])
async def test_create_makes_nothing_at_a_price_that_no_longer_fits(world: World, by: str):
    row = await budget(world, (2 if by != "BUDGET_EXCEEDED" else 1) * DEAR * MICROS)
    if by != "BUDGET_EXCEEDED":
        await quota(world, max_price_e5=DEAR)
    accepted = await world.create("one", **ORDER)
    assert (await world.operation(accepted.operation.id))["reserved_price_e5"] == DEAR
    await raise_price(world, DEAR + 1)

    operation = await world.work_until_over(accepted.operation.id)

    assert (operation["status"], operation["error_code"]) == ("FAILED", "NO_OPTIMAL_PRODUCT_ANY_REGION")
    assert await world.attempts(operation["id"]) == [(SINGAPORE, "onDemand", "REJECTED", by)]
    assert (world.made(), (await world.instance(accepted.instance.id))["status"]) == (0, InstanceStatus.FAILED)
    assert (await usage(world, row)).reserved == 0


async def test_create_reserves_the_price_that_it_takes(world: World):
    await budget(world, 2 * DEAR * MICROS)
    accepted = await world.create("one", **ORDER)
    await raise_price(world, DEAR + 1000)

    await world.work_until_status(accepted.instance.id, InstanceStatus.READY)

    assert (await world.operation(accepted.operation.id))["reserved_price_e5"] == DEAR + 1000
    assert (await world.instance(accepted.instance.id))["price_per_hour_e5"] == DEAR + 1000


async def test_create_accepted_without_an_offer_is_admitted_at_the_one_before_its_job(world: World):
    """It goes on waiting, and says for what; the provider was not asked, so there is no attempt."""
    await budget(world, DEAR * MICROS - 1)
    world.stock("*", 0)
    accepted = await world.create("one", on_no_capacity=WaitDraft(length=timedelta(hours=1)), **ORDER)
    assert (await world.operation(accepted.operation.id))["reserved_price_e5"] is None
    world.stock("*", 10)
    await world.configure()

    while await world.work_once():
        pass

    assert (await world.attempts(accepted.operation.id), world.made()) == ([], 0)
    wait = await world.one("SELECT unfit::text, blocked_by FROM capacity_wait")
    assert (wait["unfit"], wait["blocked_by"]) == ("[]", "BUDGET")
    assert (await world.instance(accepted.instance.id))["status"] == InstanceStatus.CREATING
