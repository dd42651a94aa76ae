"""A machine that an instance has besides the one that serves is in `fleet` and in the ledger, whatever its jobs do."""

from dataclasses import replace
from uuid import UUID

import pytest

from server.auth.token_limits import TokenLimits
from server.billing import BILLED_WORDS
from server.instances.provider.reconcile import reconcile
from server.instances.queries.fleet import FleetSource, fleet
from server.simulator.faults import Fault, FaultKind
from tests.server.recovery.test_machines import replaced
from tests.server.recovery.test_recovery import see
from tests.server.recovery.test_replacement import BEFORE, OPEN_ENTRIES, drained, notify, ready, spare_made
from tests.server.recovery.test_replacement import replaced as taken_over
from tests.server.recovery.test_steps import DyingCreate, die
from tests.support.accounting import machines_unaccounted
from tests.support.deaths import Deaths
from tests.support.lifecycle import hasten
from tests.support.world import World

LOOK, DELETE = "GET /gpu/instance", "POST /gpu/instance/delete"
OTHER = "SELECT novita_id FROM machine WHERE removing_from IS NOT NULL OR serving_from IS NULL"
PAYER = "SELECT token_id, labels::text, project_id FROM cost_entry WHERE machine = $1"


async def spare(world: World) -> tuple[UUID, str, str]:
    """An instance, its machine, and a second one that runs and that nothing has looked at."""
    instance_id, old = await ready(world)
    await notify(world, old)
    new = await spare_made(world)
    hasten(world)
    return instance_id, old, new


async def open_entries(world: World) -> set[str]:
    return {each["machine"] for each in await world.rows(OPEN_ENTRIES)}


async def test_fleet_shows_it_with_its_instance_to_its_project_alone(world: World):
    instance_id, old, new = await spare(world)
    other = await world.new_caller("other")
    token = replace(await world.new_caller(), limits=TokenLimits(own_instances_only=True))

    shown = await fleet(world.database, world.reader, by=world.caller, include_novita_only=False)

    assert [
        (each.source, each.is_serving, each.instance and each.instance.id, each.snapshot and each.snapshot.id)
        for each in shown.items
    ] == [(FleetSource.MERGED, True, instance_id, old), (FleetSource.MERGED, False, instance_id, new)]
    for by, includes_all in ((other, True), (token, False)):
        assert (await fleet(world.database, world.reader, by=by, include_novita_only=includes_all)).items == []


async def test_fleet_shows_the_machine_of_an_unresolved_create_of_an_instance_that_has_one(world: World):
    _, old = await ready(world)
    await notify(world, old)
    await die(world, DyingCreate)
    (new,) = {each.id for each in world.machines()} - {old}

    shown = await fleet(world.database, world.reader, by=world.caller, include_novita_only=False)

    assert [(each.snapshot and each.snapshot.id, each.is_serving) for each in shown.items] == [
        (old, True),
        (new, False),
    ]


@pytest.mark.parametrize("why", ["provider", "job", "list"])
async def test_reconcile_brings_a_spare_that_its_job_can_not_look_at_into_the_ledger(world: World, why: str):
    _, old, new = await spare(world)
    began = world.simulator.world.instance(new).last_started_at
    if why == "provider":
        world.faults(Fault(FaultKind.ERROR, (LOOK,)))
        for _ in range(3):
            await world.hurry()
            await world.work_once()
    elif why == "job":
        await world.execute("DELETE FROM job")
    else:
        world.simulator.world.instance(new).listed = False
    assert await open_entries(world) == {old}

    await see(world)

    assert await open_entries(world) == {old, new}
    row = await world.one("SELECT began_at, price_e5 FROM cost_entry WHERE machine = $1", new)
    assert row["began_at"].timestamp() == int(began)
    assert row["price_e5"] == world.simulator.world.instance(new).price


async def test_reconcile_ends_the_entry_of_a_spare_that_has_stopped(world: World):
    _, old, new = await spare(world)
    await see(world)
    await world.novita.stop_instance(new)
    hasten(world)
    await world.execute("DELETE FROM job")

    await see(world)

    assert await open_entries(world) == {old}


async def test_reconcile_leaves_a_machine_alone_whose_removal_is_newer_than_its_list(world: World):
    instance_id, old = await ready(world)
    await notify(world, old)
    new = await taken_over(world, instance_id, old)
    await world.execute("DELETE FROM cost_entry WHERE machine = $1", old)
    for column in ("removal_sent_at", "removal_accepted_at"):
        await world.execute(f"UPDATE machine SET {column} = now() + interval '1 minute' WHERE novita_id = $1", old)
        await see(world)
        assert await open_entries(world) == {new}
        await world.execute("UPDATE machine SET removal_sent_at = NULL WHERE novita_id = $1", old)


async def test_machine_of_an_instance_without_any_entry_is_paid_for_by_the_token_of_its_run(world: World):
    _, old, _ = await replaced(world)
    (expected,) = await world.rows(PAYER, old)
    await world.execute("DELETE FROM cost_entry")

    await see(world)

    (entry,) = await world.rows(PAYER, old)
    assert tuple(entry) == tuple(expected)


async def test_at_every_death_of_a_replacement_all_billed_machines_are_in_fleet_and_ledger(world: World):
    instance_id, old = await ready(world, BEFORE)
    await notify(world, old)
    deaths = Deaths(world)

    async def is_replaced() -> bool:
        hasten(world)
        await reconcile(world.database, world.novita)
        assert await machines_unaccounted(world) == []
        known = {each["novita_id"] for each in await world.rows("SELECT novita_id FROM machine")}
        billed = {each.id for each in world.machines() if each.status in BILLED_WORDS}
        assert billed & known == await open_entries(world) & billed
        return (await world.instance(instance_id))["novita_id"] != old

    await deaths.work_until(is_replaced)
    await drained(world, instance_id)

    assert await open_entries(world) == {(await world.instance(instance_id))["novita_id"]}
    assert len(deaths.places) >= 8
