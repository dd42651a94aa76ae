"""The machines of an instance: one row each, known to reconcile, and removed when another machine has replaced them."""

from typing import Any
from uuid import UUID

import asyncpg
import pytest

from server.clock import new_id
from server.enums import InstanceStatus
from server.errors import IllegalTransition
from server.instances import transitions
from server.instances.commands.adopt import AdoptDraft, adopt_instance
from server.instances.provider.reconcile import reconcile
from server.instances.provider.unlinked import Origin
from server.queue.kinds import RemoveMachine
from server.simulator.faults import Fault, FaultKind
from tests.support.accounting import machines_unaccounted
from tests.support.lifecycle import hasten
from tests.support.world import SINGAPORE, World

S = InstanceStatus
DELETE = "POST /gpu/instance/delete"
MACHINES = """
    SELECT number, novita_id, region, billing_mode, serving_from IS NOT NULL AS serves,
           removing_from IS NOT NULL AS leaves, ended_at IS NOT NULL AS is_over, end_reason
    FROM machine WHERE instance_id = $1 ORDER BY number
"""


async def machines_of(world: World, instance_id: UUID) -> list[tuple[Any, ...]]:
    """(number, id, serves, leaves, reason of the end) of each."""
    rows = await world.rows(MACHINES, instance_id)
    return [(row["number"], row["novita_id"], row["serves"], row["leaves"], row["end_reason"]) for row in rows]


async def ready(world: World, name: str = "one") -> tuple[UUID, str]:
    accepted = await world.create(name)
    await world.work_until_status(accepted.instance.id, S.READY)
    return accepted.instance.id, (await world.instance(accepted.instance.id))["novita_id"]


async def replaced(world: World) -> tuple[UUID, str, str]:
    """An instance whose machine was replaced by one that another create has made."""
    instance_id, old = await ready(world)
    other_id, new = await ready(world, "two")
    async with world.database.write() as session:
        # As if the other instance had never been: its machine is free.
        await transitions.update(session, other_id, cause=transitions.Cause(), novita_id=None)
    await world.execute("DELETE FROM machine WHERE instance_id = $1", other_id)
    await world.execute("DELETE FROM job WHERE kind = 'REMOVE_MACHINE'")
    async with world.database.write() as session:
        await transitions.update(session, instance_id, cause=transitions.Cause(), novita_id=new, region=SINGAPORE)
    return instance_id, old, new


async def test_create_and_delete_write_the_machine(world: World):
    instance_id, machine = await ready(world)

    row = await world.one("SELECT * FROM machine WHERE instance_id = $1", instance_id)
    instance = await world.instance(instance_id)
    assert (row["number"], row["novita_id"], row["region"]) == (1, machine, instance["region"])
    assert (row["product_id"], row["billing_mode"]) == (instance["product_id"], instance["billing_mode"])
    assert row["price_e5"] == instance["price_per_hour_e5"]
    assert row["serving_from"] is not None
    assert (row["ended_at"], row["end_reason"]) == (None, None)

    await world.delete(instance_id)
    await world.work_until_status(instance_id, S.DELETED)

    assert await machines_of(world, instance_id) == [(1, machine, True, False, "DELETED")]


async def test_machine_that_is_gone_ends_and_comes_back_with_its_number(world: World):
    instance_id, machine = await ready(world)
    async with world.database.write() as session:
        await transitions.update(session, instance_id, cause=transitions.Cause(), novita_status="removed")
    assert await machines_of(world, instance_id) == [(1, machine, True, False, "GONE_AT_PROVIDER")]

    async with world.database.write() as session:
        await transitions.update(session, instance_id, cause=transitions.Cause(), novita_status="running")

    assert await machines_of(world, instance_id) == [(1, machine, True, False, None)]


async def test_database_refuses_a_second_serving_machine(world: World):
    instance_id, _ = await ready(world)

    with pytest.raises(asyncpg.UniqueViolationError, match="machine_one_serving_per_instance"):
        await world.execute(
            "INSERT INTO machine (instance_id, number, novita_id, began_at, serving_from)"
            " VALUES ($1, 2, 'other', now(), now())",
            instance_id,
        )
    assert await world.value("SELECT count(*) FROM machine") == 1


async def test_replaced_machine_is_removed_and_never_taken_for_an_orphan(world: World):
    instance_id, old, new = await replaced(world)
    assert await machines_of(world, instance_id) == [(1, old, True, True, None), (2, new, True, False, None)]

    report = await reconcile(world.database, world.novita)

    assert (report.unlinked, world.calls(DELETE)) == ({Origin.SECOND: 1}, 0)
    assert await machines_unaccounted(world) == []

    async def is_removed() -> bool:
        return [each[4] for each in await machines_of(world, instance_id)] == ["REPLACED", None]

    await world.work_until(is_removed)
    hasten(world)
    assert [each.id for each in world.machines()] == [new]
    assert "instance.orphan_found" not in await world.event_types(instance_id)
    assert (await world.instance(instance_id))["status"] == S.READY


async def test_removal_goes_on_after_an_outage_and_a_lost_job(world: World):
    instance_id, old, new = await replaced(world)
    world.faults(Fault(FaultKind.ERROR, routes=(DELETE,), times=2))
    await world.hurry()
    await world.work_once()
    assert await machines_of(world, instance_id) == [(1, old, True, True, None), (2, new, True, False, None)]
    await world.execute("DELETE FROM job")

    report = await reconcile(world.database, world.novita)

    assert report.machines == 1

    async def is_removed() -> bool:
        return [each[4] for each in await machines_of(world, instance_id)] == ["REPLACED", None]

    await world.work_until(is_removed)
    assert world.made() == 2


async def test_removal_spares_a_machine_that_serves(world: World):
    instance_id, machine = await ready(world)
    await world.execute("UPDATE machine SET removing_from = now()")
    calls = world.calls(DELETE)
    await world.enqueue(RemoveMachine(instance_id, machine))

    await world.hurry()
    await world.work_once()

    assert (world.calls(DELETE), len(world.machines())) == (calls, 1)


async def test_row_that_an_older_process_did_not_write_is_added_by_reconcile(world: World):
    instance_id, machine = await ready(world)
    await world.execute("DELETE FROM machine")

    report = await reconcile(world.database, world.novita)

    assert (report.machines, report.unlinked) == (1, {})
    assert await machines_of(world, instance_id) == [(1, machine, True, False, None)]
    assert (await reconcile(world.database, world.novita)).machines == 0


async def test_machine_that_an_older_process_left_open_is_ended_by_reconcile(world: World):
    instance_id, machine = await ready(world)
    await world.delete(instance_id)
    await world.work_until_status(instance_id, S.DELETED)
    await world.execute("UPDATE machine SET ended_at = NULL, end_reason = NULL")

    assert (await reconcile(world.database, world.novita)).machines == 1

    assert await machines_of(world, instance_id) == [(1, machine, True, False, "DELETED")]


async def test_replaced_machine_can_not_be_adopted(world: World):
    _, old, _ = await replaced(world)

    with pytest.raises(IllegalTransition, match="another machine serves"):
        await adopt_instance(
            world.database, world.reader, AdoptDraft(old, name=f"new-{new_id().hex[-6:]}"), by=world.caller
        )

    assert await world.value("SELECT count(*) FROM instance WHERE novita_id = $1", old) == 0
