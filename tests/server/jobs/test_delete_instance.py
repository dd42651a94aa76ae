"""Deletes work in every status and during every operation, and leave nothing at the provider."""

import asyncio
from datetime import timedelta

import pytest

from server.enums import InstanceStatus
from server.errors import IllegalTransition
from server.instances.drafts import Port
from server.simulator.faults import Fault, FaultKind
from tests.support.lifecycle import age
from tests.support.waiting import until
from tests.support.world import CREATE, World

DELETE = "POST /gpu/instance/delete"

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
async def test_delete_ends_once_the_machine_is_gone_at_the_provider(world: World, status: InstanceStatus):
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


async def test_create_that_never_began_is_superseded_and_creates_nothing(world: World):
    accepted = await world.create("changed-my-mind")
    calls = world.calls()

    operation = await world.work_until_over(await world.delete(accepted.instance.id))

    assert operation["status"] == "SUCCEEDED"
    assert (await world.operation(accepted.operation.id))["status"] == "SUPERSEDED"
    assert (world.made(), world.calls()) == (0, calls)
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


async def test_machine_with_a_lost_create_response_is_found_and_deleted(world: World):
    accepted = await world.create("lost")
    world.faults(Fault(FaultKind.LOST_ANSWER, (CREATE,), times=1))
    await world.work_once()
    assert [status for _, _, status, _ in await world.attempts(accepted.operation.id)] == ["UNKNOWN"]

    operation = await world.work_until_over(await world.delete(accepted.instance.id))

    assert operation["status"] == "SUCCEEDED"
    assert world.made() == 1
    assert world.machines() == []
    assert [status for _, _, status, _ in await world.attempts(accepted.operation.id)] == ["CREATED"]


async def test_delete_waits_for_a_machine_that_appears_late(world: World):
    accepted = await world.create("late")
    world.faults(
        Fault(FaultKind.LOST_ANSWER, (CREATE,), times=1), Fault(FaultKind.LIST_LAG, (CREATE,), times=1, seconds=0.4)
    )
    await world.work_once()

    await world.work_until_over(await world.delete(accepted.instance.id))

    assert world.made() == 1
    assert world.machines() == []


async def test_attempt_that_created_nothing_ends_the_delete_after_the_grace(world: World):
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

    async def is_calling() -> bool:
        return await world.value("SELECT count(*) FROM attempt") == 1

    await until(is_calling)
    operation_id = await world.delete(accepted.instance.id)
    await world.work_until_over(operation_id)
    await creating

    assert world.made() == 1
    assert world.machines() == []
    assert (await world.instance(accepted.instance.id))["status"] == "DELETED"
    assert await world.value("SELECT count(*) FROM operation WHERE finished_at IS NULL") == 0


async def test_second_delete_returns_the_delete_in_progress(world: World):
    instance = await world.put()
    first = await world.delete(instance.id)

    second = await world.delete(instance.id)

    assert second == first
    assert await world.value("SELECT count(*) FROM operation") == 1
    assert await world.value("SELECT count(*) FROM job") == 1
    assert (await world.event_types(instance.id)).count("instance.deleting") == 1


async def test_what_is_deleted_cannot_be_deleted_again(world: World):
    instance = await world.put(InstanceStatus.DELETED)

    with pytest.raises(IllegalTransition, match="already deleted") as refused:
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


async def test_machine_that_is_already_gone_is_deleted(world: World):
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


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (Fault(FaultKind.OUTAGE, status=0), "NETWORK_ERROR"),
        (Fault(FaultKind.ERROR, status=401, reason="INVALID_API_KEY", message="no"), "PROVIDER_AUTH_FAILED"),
        (Fault(FaultKind.ERROR, status=402, reason="", message="no"), "PAYMENT_REQUIRED"),
        (Fault(FaultKind.ERROR, status=403, reason="FORBIDDEN", message="no"), "PROVIDER_AUTH_FAILED"),
        (Fault(FaultKind.ERROR, status=400, reason="VALIDATOR", message="no"), "PROVIDER_VALIDATION_FAILED"),
        (
            Fault(FaultKind.ERROR, (DELETE,), status=400, reason="", message="invalid state change"),
            "INVALID_STATE_CHANGE",
        ),
    ],
)
async def test_a_delete_never_gives_up_and_says_why_it_waits(world: World, fault: Fault, code: str):
    """Whatever the provider answers, and far longer than any other operation waits."""
    accepted = await world.create("stuck")
    await world.work_until_status(accepted.instance.id, InstanceStatus.READY)
    await world.configure(provider_max_wait=timedelta(milliseconds=1))
    operation_id = await world.delete(accepted.instance.id)
    world.faults(fault)
    await age(world, operation_id, 86_400)
    for _ in range(4):
        await world.hurry()
        await world.work_once()

    operation = await world.operation(operation_id)
    assert (operation["status"], operation["last_error_code"]) == ("RUNNING", code)
    assert (await world.instance(accepted.instance.id))["status"] == "DELETING"
    assert (await world.event_types(accepted.instance.id)).count("operation.changed") == 5  # one of them for the error

    world.faults()
    operation = await world.work_until_over(operation_id)

    assert (operation["status"], operation["last_error_code"]) == ("SUCCEEDED", None)
    assert world.machines() == []


async def test_a_delete_goes_on_after_its_job_has_failed(world: World):
    accepted = await world.create("unlucky")
    await world.work_until_status(accepted.instance.id, InstanceStatus.READY)
    operation_id = await world.delete(accepted.instance.id)
    await world.execute("UPDATE job SET losses = 20")
    await world.work_once()

    assert (await world.operation(operation_id))["last_error_code"] == "WORKER_LOST"
    assert await world.value("SELECT status FROM job_history WHERE kind = 'DELETE_INSTANCE'") == "FAILED"
    assert (await world.work_until_over(operation_id))["status"] == "SUCCEEDED"
    assert world.machines() == []
