"""What a start by steps and a recovery may cost: admitted at the most expensive candidate, and never more than that."""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from schema import ids
from server.enums import Billing, InstanceStatus, StartStep
from server.errors import BudgetExceeded
from server.instances.commands.lifecycle import Target
from server.lifetimes.extend import Extension, extend_lifetime
from server.spend.budgets import BudgetChange, update_budget
from server.spend.refusals import QuotaExceeded
from tests.server.recovery.test_recovery import RECOVERIES, reclaim, recovered, see
from tests.server.recovery.test_recovery import ready as ready_spot
from tests.server.recovery.test_steps import cluster_of, start, stopped, taken
from tests.server.spend.test_budgets import LIFETIME, budget, usage
from tests.server.spend.test_quotas import quota
from tests.support.api import Api
from tests.support.world import MUMBAI, SINGAPORE, World

S = InstanceStatus
CHEAP, DEAR = 33_000, 39_000  # on demand, in 1/100000 USD for an hour
CHEAP_SPOT, DEAR_SPOT = 16_000, 19_500
MICROS = 10
ORDER = {"regions": (MUMBAI, SINGAPORE), "lifetime": LIFETIME}


async def limit(world: World, row: Any, micros: int) -> None:
    async with world.database.write() as session:
        await update_budget(session, row.id, BudgetChange(limit_micros=micros), project_id=row.project_id)


async def reserved(world: World, operation_id: UUID) -> int:
    return (await world.operation(operation_id))["reserved_price_e5"]


async def test_start_that_may_relocate_is_admitted_at_the_dearest_candidate(world: World):
    instance_id, _ = await stopped(world, **ORDER)
    assert (await world.instance(instance_id))["price_per_hour_e5"] == CHEAP
    row = await budget(world, DEAR * MICROS - 1)
    spent = (await usage(world, row)).spent
    await limit(world, row, DEAR * MICROS - 1 + spent)
    before = await world.counts()

    with pytest.raises(BudgetExceeded) as refused:
        await start(world, instance_id)
    assert (refused.value.needed_micros, await world.counts()) == (DEAR * MICROS, before)

    await limit(world, row, DEAR * MICROS + spent)
    accepted = await start(world, instance_id)
    assert await reserved(world, accepted.operation.id) == DEAR


async def test_start_of_the_same_machine_is_admitted_at_its_own_price(world: World):
    instance_id, _ = await stopped(world, **ORDER)
    await quota(world, max_price_e5=CHEAP)
    before = await world.counts()

    with pytest.raises(QuotaExceeded):
        await start(world, instance_id)
    assert await world.counts() == before

    accepted = await start(world, instance_id, StartStep.SAME, StartStep.MIGRATE)
    assert await reserved(world, accepted.operation.id) == CHEAP


async def test_candidate_that_became_dearer_than_admitted_is_not_taken(world: World):
    instance_id, old = await stopped(world, **ORDER)
    world.stock(cluster_of(world, old), 0)
    await world.configure()
    accepted = await start(world, instance_id)
    assert await reserved(world, accepted.operation.id) == DEAR
    products = world.simulator.world.catalog.products
    products["26"] = replace(products["26"], price=DEAR + 1)
    await world.configure()  # without cached prices

    operation = await world.work_until_over(accepted.operation.id)

    assert (operation["status"], operation["error_code"]) == ("FAILED", "NO_OPTIMAL_PRODUCT_ANY_REGION")
    assert (SINGAPORE, "onDemand", "REJECTED", "PRICE_ABOVE_MAX") in await world.attempts(accepted.operation.id)
    assert (world.made(), (await world.instance(instance_id))["status"]) == (1, S.EXITED)


async def test_recovery_above_the_budget_begins_nothing_until_there_is_enough(world: World):
    instance_id, machine = await ready_spot(world, **ORDER)
    row = await budget(world, DEAR_SPOT * MICROS - 1)
    world.simulator.world.set_dialect(world.simulator.world.dialect.changed({"starts_reclaimed": False}))
    reclaim(world, machine)
    await see(world)
    world.stock(cluster_of(world, machine), 0)

    async def is_refused() -> bool:
        return "recovery.began" in await world.event_types(instance_id)

    await world.work_until(is_refused)
    began = next(each for each in await world.events(instance_id) if each.type == "recovery.began")
    assert began.data["values"]["refused"] == "BUDGET_EXCEEDED"
    assert (await world.value(RECOVERIES), world.made()) == (0, 1)

    await limit(world, row, 10 * DEAR_SPOT * MICROS)
    await world.execute("UPDATE instance SET status_since = status_since - interval '1 hour'")
    await recovered(world, instance_id)

    after = await world.instance(instance_id)
    assert (after["region"], after["price_per_hour_e5"]) == (SINGAPORE, DEAR_SPOT)
    assert await world.value("SELECT reserved_price_e5 FROM operation WHERE reason = 'RECOVERY'") == DEAR_SPOT


async def test_what_a_recovery_reserves_counts_for_the_token_of_the_run(world: World):
    _, machine = await ready_spot(world, **ORDER)
    row = await budget(world, 10 * DEAR_SPOT * MICROS, token_id=world.caller.token_id)
    reclaim(world, machine)
    await see(world)
    assert (await usage(world, row)).reserved == 0

    async def has_begun() -> bool:
        return bool(await world.value(RECOVERIES))

    await world.work_until(has_begun)

    assert (await usage(world, row)).reserved == DEAR_SPOT * MICROS


async def test_relocation_stays_in_the_regions_of_the_token(world: World):
    instance_id, old = await stopped(world, **ORDER)
    await world.execute('UPDATE token SET limits = \'{"regions": ["AS-IN-01"]}\' WHERE id = $1', world.caller.token_id)
    world.stock(cluster_of(world, old), 0)

    operation = await world.work_until_over((await start(world, instance_id)).operation.id)

    assert operation["error_code"] == "NO_OPTIMAL_PRODUCT_ANY_REGION"
    assert (SINGAPORE, "onDemand", "REJECTED", "TOKEN_LIMIT_EXCEEDED") in await world.attempts(operation["id"])
    assert (await taken(world, instance_id), world.made()) == (["SAME", "MIGRATE", "RELOCATE"], 1)


async def test_extension_during_a_start_keeps_the_price_that_was_admitted(world: World):
    instance_id, _ = await stopped(world, **ORDER)
    accepted = await start(world, instance_id)

    await extend_lifetime(world.database, Target(instance_id), Extension(by=timedelta(hours=1)), by=world.caller)

    row = await world.operation(accepted.operation.id)
    assert (row["reserved_price_e5"], row["reserved_s"]) == (DEAR, 7200)


async def test_api_admits_a_start_by_steps_at_the_dearest_candidate(api: Api):
    instance = await api.world.put(
        S.EXITED,
        project_id=api.caller.project_id,
        novita_id="m1",
        region=MUMBAI,
        regions=[MUMBAI, SINGAPORE],
        billing=Billing.ON_DEMAND,
        price_per_hour_e5=CHEAP,
    )
    document = """mutation ($input: StartInstanceInput!) {
        startInstance(input: $input) { operation { id } errors { code } } }"""
    wish = {"id": ids.format_id(ids.INSTANCE, instance.id), "steps": ["SAME", "RELOCATE"], "allowDataLoss": True}

    started = (await api.ask(document, input=wish)).data["startInstance"]

    assert started["errors"] == []
    assert await api.world.value("SELECT reserved_price_e5 FROM operation") == DEAR
