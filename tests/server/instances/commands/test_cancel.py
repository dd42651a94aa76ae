"""Cancelling each kind of operation in each phase; it never leaves a machine behind."""

import asyncio
from datetime import timedelta

import pytest

from server.enums import InstanceStatus, OperationKind
from server.errors import NotCancellable, NotFound
from server.instances.commands.cancel import cancel_operation
from server.instances.drafts import Port
from server.simulator.faults import Fault, FaultKind
from tests.support.lifecycle import (
    ROUTES,
    ask,
    cancel,
    changes,
    done,
    exited,
    fit_for,
    machine,
    ready,
    row_of,
    status_of,
    transitions_of,
)
from tests.support.waiting import until
from tests.support.world import CREATE, World

ASKED = list(ROUTES)


async def work_off(world: World) -> None:
    """Run whatever there is to run, until there is nothing."""

    async def is_empty() -> bool:
        return await world.value("SELECT count(*) FROM job") == 0

    await world.work_until(is_empty)


@pytest.mark.parametrize("kind", ASKED)
async def test_a_waiting_operation_is_cancelled_and_the_instance_unchanged(world: World, kind: OperationKind):
    instance_id = await fit_for(world, kind)
    before = await row_of(world, instance_id)
    accepted = await ask(world, kind, instance_id)

    cancelled = await cancel(world, accepted.operation.id)

    assert (cancelled.operation.status, cancelled.operation.phase, cancelled.clean_up) == ("CANCELLED", "OVER", None)
    assert cancelled.operation.error_code is None
    await work_off(world)
    after = await row_of(world, instance_id)
    assert after.status == before.status
    assert (after.running_at, after.ready_at, after.endpoints) == (before.running_at, before.ready_at, before.endpoints)
    assert changes(world) == {}
    assert (await done(world, kind, instance_id))["status"] == "SUCCEEDED"


async def test_a_cancelled_restart_of_a_failed_instance_says_again_why_it_failed(world: World):
    instance = await world.put(InstanceStatus.FAILED, novita_id="n1", failure_message="broken")
    accepted = await ask(world, OperationKind.RESTART, instance.id)

    await cancel(world, accepted.operation.id)

    row = await world.instance(instance.id)
    assert (row["status"], row["failure_code"], row["failure_message"]) == ("FAILED", "BROKEN", "broken")


@pytest.mark.parametrize("kind", ASKED)
async def test_an_operation_can_be_cancelled_while_the_provider_is_away(world: World, kind: OperationKind):
    instance_id = await fit_for(world, kind)
    before = await status_of(world, instance_id)
    accepted = await ask(world, kind, instance_id)
    world.outage()
    await world.work_once()

    cancelled = await cancel(world, accepted.operation.id)

    assert cancelled.operation.status == "CANCELLED"
    assert await status_of(world, instance_id) == before


@pytest.mark.parametrize("kind", ASKED)
async def test_an_operation_already_sent_to_the_provider_can_not_be_cancelled(world: World, kind: OperationKind):
    instance_id = await fit_for(world, kind)
    accepted = await ask(world, kind, instance_id)
    await world.work_once()
    before = await world.counts()

    with pytest.raises(NotCancellable) as refused:
        await cancel(world, accepted.operation.id)

    assert refused.value.code == "NOT_CANCELLABLE"
    assert await world.counts() == before
    assert (await world.work_until_over(accepted.operation.id))["status"] == "SUCCEEDED"


async def test_what_is_over_can_not_be_cancelled_and_what_is_cancelled_stays_so(world: World):
    instance_id = await exited(world)
    over = await done(world, OperationKind.START, instance_id)
    with pytest.raises(NotCancellable):
        await cancel(world, over["id"])

    accepted = await ask(world, OperationKind.STOP, instance_id)
    await cancel(world, accepted.operation.id)
    before = await world.counts()
    again = await cancel(world, accepted.operation.id)
    assert again.operation.status == "CANCELLED"
    assert await world.counts() == before


async def test_a_delete_can_not_be_cancelled(world: World):
    instance_id = await ready(world)
    operation_id = await world.delete(instance_id)

    with pytest.raises(NotCancellable):
        await cancel(world, operation_id)

    assert await status_of(world, instance_id) == "DELETING"


async def test_another_projects_operation_is_not_found(world: World):
    accepted = await world.create("mine")
    stranger = await world.new_caller("other")

    with pytest.raises(NotFound):
        await cancel_operation(world.database, accepted.operation.id, by=stranger)

    assert (await world.operation(accepted.operation.id))["status"] == "QUEUED"


async def test_a_create_not_yet_sent_to_the_provider_is_deleted_at_once(world: World):
    accepted = await world.create("early")

    cancelled = await cancel(world, accepted.operation.id)

    assert (cancelled.operation.status, cancelled.instance.status, cancelled.clean_up) == ("CANCELLED", "DELETED", None)
    assert await transitions_of(world, accepted.instance.id) == [
        "instance.created",
        "operation.started",
        "operation.finished",
        "instance.deleting",
        "instance.deleted",
    ]
    await work_off(world)
    assert world.made() == 0
    await world.create("early")  # its name is free again


async def test_a_create_whose_machine_is_starting_becomes_a_delete(world: World):
    accepted = await world.create("made")
    await world.work_once()
    assert world.made() == 1

    cancelled = await cancel(world, accepted.operation.id)

    assert cancelled.operation.status == "CANCELLED"
    assert cancelled.clean_up is not None
    assert cancelled.clean_up.kind == "DELETE"
    assert (await world.work_until_over(cancelled.clean_up.id))["status"] == "SUCCEEDED"
    assert await status_of(world, accepted.instance.id) == "DELETED"
    assert world.machines() == []
    await work_off(world)


async def test_a_create_that_is_being_checked_is_cancelled_too(world: World):
    accepted = await world.create("checked", ports=(Port(80, "http"),))
    await world.work_until_status(accepted.instance.id, InstanceStatus.HEALTH_CHECKING)

    cancelled = await cancel(world, accepted.operation.id)

    assert cancelled.clean_up is not None
    await world.work_until_over(cancelled.clean_up.id)
    await work_off(world)
    assert await status_of(world, accepted.instance.id) == "DELETED"
    assert world.machines() == []


@pytest.mark.parametrize("spoiled", [FaultKind.LOST_ANSWER, FaultKind.ERROR_AFTER])
async def test_a_create_without_a_response_is_searched_for_and_removed(world: World, spoiled: FaultKind):
    accepted = await world.create("unsure")
    world.faults(Fault(spoiled, (CREATE,), times=1))
    await world.work_once()
    assert world.made() == 1

    cancelled = await cancel(world, accepted.operation.id)

    assert cancelled.clean_up is not None
    assert (await world.work_until_over(cancelled.clean_up.id))["status"] == "SUCCEEDED"
    assert world.machines() == []
    await work_off(world)


async def test_a_create_that_is_cancelled_while_the_provider_answers_leaves_no_machine(world: World):
    await world.configure(request_timeout=timedelta(seconds=5))
    accepted = await world.create("crossing")
    world.faults(Fault(FaultKind.LATENCY, (CREATE,), seconds=0.3))
    working = asyncio.create_task(world.work_once())
    await until(lambda: world.calls(CREATE) == 1)

    cancelled = await cancel(world, accepted.operation.id)
    await working

    assert cancelled.clean_up is not None
    assert (await world.work_until_over(cancelled.clean_up.id))["status"] == "SUCCEEDED"
    assert world.made() == 1
    assert world.machines() == []


@pytest.mark.parametrize("how", ["cancel", "delete"])
async def test_a_create_that_is_called_off_while_it_is_placed_makes_nothing(world: World, how: str):
    """Between choosing a region and sending the create: a machine made now would be orphaned."""
    accepted = await world.create("placing")
    await world.catalog.forget_product("as-sgp-2", "spot", "26", gpu_count=1)
    world.faults(Fault(FaultKind.LATENCY, ("GET /products",), seconds=0.3))
    before = world.calls("GET /products")
    working = asyncio.create_task(world.work_once())
    await until(lambda: world.calls("GET /products") > before)

    if how == "cancel":
        await cancel(world, accepted.operation.id)
    else:
        await world.delete(accepted.instance.id)
    await working
    await work_off(world)

    assert world.made() == 0
    assert world.calls(CREATE) == 0
    assert await status_of(world, accepted.instance.id) == "DELETED"


async def test_of_a_cancel_and_a_worker_that_race_one_wins(world: World):
    instance_id = await exited(world)
    accepted = await ask(world, OperationKind.START, instance_id)

    _, answer = await asyncio.gather(world.work_once(), cancel(world, accepted.operation.id), return_exceptions=True)

    if isinstance(answer, NotCancellable):
        assert (await world.work_until_over(accepted.operation.id))["status"] == "SUCCEEDED"
        assert machine(world).starts == 2
    else:
        await work_off(world)
        assert (await world.operation(accepted.operation.id))["status"] == "CANCELLED"
        assert await status_of(world, instance_id) == "EXITED"
        assert machine(world).starts == 1


async def test_a_machine_made_under_an_earlier_name_is_found_and_removed(world: World):
    """A create that failed without an answer may have made one, and the instance may be called otherwise by now."""
    accepted = await world.create("old")
    world.faults(Fault(FaultKind.LOST_ANSWER, (CREATE,), times=1))
    await world.work_once()
    await world.execute("UPDATE instance SET name = 'new' WHERE id = $1", accepted.instance.id)

    operation = await world.work_until_over(await world.delete(accepted.instance.id))

    assert operation["status"] == "SUCCEEDED"
    assert world.machines() == []
