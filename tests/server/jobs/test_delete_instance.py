"""Deleting: in every status, during anything, and nothing is left at the provider."""

import asyncio
from datetime import timedelta

import pytest

from server.errors import IllegalMove
from server.instances.drafts import Port
from server.novita.simulator.faults import Fault, FaultKind
from server.words import InstanceStatus
from tests.world import CREATE, World, until

WITHOUT_A_MACHINE = [status for status in InstanceStatus if status is not InstanceStatus.DELETED]


@pytest.mark.parametrize("status", WITHOUT_A_MACHINE)
async def test_every_status_can_be_deleted(world: World, status: InstanceStatus):
    instance = await world.put(status)

    operation = await world.work_until_over(await world.delete(instance.id))

    assert operation["status"] == "SUCCEEDED"
    row = await world.instance(instance.id)
    assert row["status"] == "DELETED"
    assert row["deleted_at"] is not None
    assert world.calls() == 0  # it never had a machine


@pytest.mark.parametrize("status", [InstanceStatus.STARTING, InstanceStatus.HEALTH_CHECKING, InstanceStatus.READY])
async def test_deleted_is_said_once_the_provider_no_longer_has_it(world: World, status: InstanceStatus):
    accepted = await world.create("going", ports=(Port(80, "http"),))
    await world.work_until_status(accepted.instance.id, status)
    operation_id = await world.delete(accepted.instance.id)
    world.simulator.world.set_speed(0.001)
    for _ in range(3):
        await world.hurry()
        await world.work_once()
    row = await world.instance(accepted.instance.id)
    assert (row["status"], row["novita_status"]) == ("DELETING", "toRemove")

    world.simulator.world.set_speed(100)
    operation = await world.work_until_over(operation_id)

    assert operation["status"] == "SUCCEEDED"
    assert world.machines() == []
    assert (await world.instance(accepted.instance.id))["status"] == "DELETED"
    assert await world.value("SELECT count(*) FROM job") == 0


async def test_a_create_that_was_never_begun_is_superseded_and_nothing_is_made(world: World):
    accepted = await world.create("changed-my-mind")

    operation = await world.work_until_over(await world.delete(accepted.instance.id))

    assert operation["status"] == "SUCCEEDED"
    assert (await world.operation(accepted.operation.id))["status"] == "SUPERSEDED"
    assert world.made() == 0
    assert await world.event_types(accepted.instance.id) == [
        "instance.created",
        "operation.started",
        "operation.finished",
        "operation.started",
        "instance.deleting",
        "operation.changed",
        "instance.deleted",
        "operation.finished",
    ]


async def test_a_machine_whose_create_answer_was_lost_is_found_and_removed(world: World):
    accepted = await world.create("lost")
    world.faults(Fault(FaultKind.LOST_ANSWER, (CREATE,), times=1))
    await world.work_once()
    assert [status for _, _, status, _ in await world.attempts(accepted.operation.id)] == ["UNKNOWN"]

    operation = await world.work_until_over(await world.delete(accepted.instance.id))

    assert operation["status"] == "SUCCEEDED"
    assert world.made() == 1
    assert world.machines() == []
    assert [status for _, _, status, _ in await world.attempts(accepted.operation.id)] == ["CREATED"]


async def test_a_machine_that_appears_late_is_waited_for_before_deleted_is_said(world: World):
    accepted = await world.create("late")
    world.faults(
        Fault(FaultKind.LOST_ANSWER, (CREATE,), times=1), Fault(FaultKind.LIST_LAG, (CREATE,), times=1, seconds=0.4)
    )
    await world.work_once()

    await world.work_until_over(await world.delete(accepted.instance.id))

    assert world.made() == 1
    assert world.machines() == []


async def test_an_attempt_that_made_nothing_ends_the_delete_only_after_the_grace(world: World):
    accepted = await world.create("unsure")
    world.faults(Fault(FaultKind.ERROR, (CREATE,), times=1))
    await world.work_once()
    operation_id = await world.delete(accepted.instance.id)
    for _ in range(3):
        await world.hurry()
        await world.work_once()
    assert (await world.instance(accepted.instance.id))["status"] == "DELETING"

    await world.age_attempts()
    await world.work_until_over(operation_id)

    assert [status for _, _, status, _ in await world.attempts(accepted.operation.id)] == ["ABSENT"]
    assert world.made() == 0


async def test_a_delete_while_the_create_call_is_under_way_removes_what_it_makes(world: World):
    accepted = await world.create("crossing")
    world.faults(Fault(FaultKind.LATENCY, (CREATE,), times=1, seconds=0.3))
    creating = asyncio.create_task(world.work_once())

    async def is_asking() -> bool:
        return await world.value("SELECT count(*) FROM attempt") == 1

    await until(is_asking)
    operation_id = await world.delete(accepted.instance.id)
    await world.work_until_over(operation_id)
    await creating

    assert world.made() == 1
    assert world.machines() == []
    assert (await world.instance(accepted.instance.id))["status"] == "DELETED"
    assert await world.value("SELECT count(*) FROM operation WHERE finished_at IS NULL") == 0


async def test_asking_twice_gives_the_delete_that_is_under_way(world: World):
    instance = await world.put()
    first = await world.delete(instance.id)

    second = await world.delete(instance.id)

    assert second == first
    assert await world.value("SELECT count(*) FROM operation") == 1
    assert await world.value("SELECT count(*) FROM job") == 1
    assert (await world.event_types(instance.id)).count("instance.deleting") == 1


async def test_what_is_deleted_cannot_be_deleted_again(world: World):
    instance = await world.put(InstanceStatus.DELETED)

    with pytest.raises(IllegalMove, match="deleted already") as refused:
        await world.delete(instance.id)

    assert refused.value.code == "INSTANCE_DELETED"
    counts = await world.counts()
    assert (counts["operation"], counts["job"], counts["event"]) == (0, 0, 0)


async def test_eight_deletes_at_once_are_one(world: World):
    instance = await world.put()

    operations = await asyncio.gather(*(world.delete(instance.id) for _ in range(8)))

    assert len(set(operations)) == 1
    assert await world.value("SELECT count(*) FROM job") == 1
    assert await world.event_types(instance.id) == ["operation.started", "instance.deleting"]


async def test_a_machine_that_is_gone_already_is_deleted_all_the_same(world: World):
    accepted = await world.create("vanished")
    await world.work_until_status(accepted.instance.id, InstanceStatus.READY)
    (machine,) = world.machines()
    world.simulator.world.forget_instance(machine)

    operation = await world.work_until_over(await world.delete(accepted.instance.id))

    assert operation["status"] == "SUCCEEDED"


async def test_a_delete_waits_for_a_provider_that_is_away_and_then_goes_on(world: World):
    accepted = await world.create("patient")
    await world.work_until_status(accepted.instance.id, InstanceStatus.READY)
    operation_id = await world.delete(accepted.instance.id)
    world.outage()
    for _ in range(5):
        await world.hurry()
        await world.work_once()
    assert (await world.instance(accepted.instance.id))["status"] == "DELETING"
    assert await world.value("SELECT attempts FROM job") == 0

    world.faults()
    await world.work_until_over(operation_id)
    assert world.machines() == []


async def test_a_provider_that_stays_away_for_too_long_fails_the_delete_and_it_can_be_asked_again(world: World):
    accepted = await world.create("stuck")
    await world.work_until_status(accepted.instance.id, InstanceStatus.READY)
    await world.configure(provider_max_wait=timedelta(milliseconds=1))
    operation_id = await world.delete(accepted.instance.id)
    world.outage()
    operation = await world.work_until_over(operation_id)
    assert (operation["status"], operation["error_code"], operation["error_retryable"]) == (
        "FAILED",
        "NETWORK_ERROR",
        True,
    )
    assert (await world.instance(accepted.instance.id))["status"] == "FAILED"

    world.faults()
    again = await world.work_until_over(await world.delete(accepted.instance.id))

    assert again["status"] == "SUCCEEDED"
    assert world.machines() == []
