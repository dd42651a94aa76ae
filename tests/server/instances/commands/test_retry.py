"""A failed create, start or delete is tried again under the same instance, and at most one machine is made."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from server.enums import InstanceStatus, OperationKind
from server.errors import NotFound, Refused, VersionConflict
from server.instances.commands.retry import retry_operation
from server.instances.drafts import Port
from server.instances.idempotency import Accepted
from server.simulator.faults import Fault, FaultKind
from tests.support.lifecycle import START, ask, changes, exited, forget, hasten, machine, ready
from tests.support.world import CREATE, World

S = InstanceStatus


async def retry(world: World, operation_id: UUID, **options: Any) -> Accepted:
    return await retry_operation(world.database, operation_id, by=world.caller, **options)


async def failed_create(world: World) -> Accepted:
    """No region has stock, so no machine was made."""
    accepted = await world.create("one")
    world.faults(Fault(FaultKind.ERROR, (CREATE,), status=400, reason="INSUFFICIENT_RESOURCE"))
    operation = await world.work_until_over(accepted.operation.id)
    assert (operation["status"], operation["error_code"]) == ("FAILED", "NO_OPTIMAL_PRODUCT_ANY_REGION")
    world.faults()
    return accepted


async def test_a_create_that_made_nothing_makes_one_machine_when_it_is_tried_again(world: World):
    failed = await failed_create(world)

    again = await retry(world, failed.operation.id)

    assert (again.instance.id, again.instance.status, again.instance.failure_code) == (
        failed.instance.id,
        S.CREATING,
        None,
    )
    assert again.operation.kind == OperationKind.CREATE
    assert again.operation.id != failed.operation.id
    await world.work_until_status(failed.instance.id, S.READY)
    assert len(world.machines()) == 1
    assert await world.value("SELECT count(*) FROM attempt WHERE operation_id = $1", again.operation.id) == 1


async def test_concurrent_retries_with_one_key_are_one_operation_others_are_refused(world: World):
    failed = await failed_create(world)

    twice = await asyncio.gather(*(retry(world, failed.operation.id, key="again") for _ in range(4)))
    assert len({each.operation.id for each in twice}) == 1
    assert sorted(each.replayed for each in twice) == [False, True, True, True]
    with pytest.raises(Refused) as refused:
        await retry(world, failed.operation.id)
    assert refused.value.code == "OPERATION_IN_PROGRESS"

    await world.work_until_status(failed.instance.id, S.READY)
    assert len(world.machines()) == 1


async def test_a_create_whose_machine_failed_to_start_starts_that_machine(world: World):
    world.faults(Fault(FaultKind.PULL_FAILURE, (CREATE,)))
    accepted = await world.create("one")
    await world.work_until_over(accepted.operation.id)
    made = machine(world)
    world.faults()

    again = await retry(world, accepted.operation.id)

    assert (again.operation.kind, again.instance.status) == (OperationKind.START, S.STARTING)
    await world.work_until_status(accepted.instance.id, S.READY)
    assert machine(world).id == made.id
    assert (await world.instance(accepted.instance.id))["novita_id"] == made.id


async def test_a_create_whose_machine_is_gone_makes_another(world: World):
    failed = await failed_create(world)
    await world.execute(
        "UPDATE instance SET failure_code = 'GONE_AT_PROVIDER', novita_id = 'gone', novita_status = 'running',"
        " region = 'x', running_at = now() WHERE id = $1",
        failed.instance.id,
    )

    again = await retry(world, failed.operation.id)

    assert (again.instance.novita_id, again.instance.region, again.instance.running_at) == (None, None, None)
    await world.work_until_status(failed.instance.id, S.READY)
    assert (await world.instance(failed.instance.id))["novita_id"] == machine(world).id


async def test_a_create_in_doubt_is_refused_until_it_is_known_whether_a_machine_exists(world: World):
    failed = await failed_create(world)
    await world.execute(
        "UPDATE attempt SET status = 'UNKNOWN', finished_at = NULL WHERE operation_id = $1 AND number ="
        " (SELECT max(number) FROM attempt WHERE operation_id = $1 AND marker IS NOT NULL)",
        failed.operation.id,
    )
    before = await world.counts()

    with pytest.raises(Refused) as refused:
        await retry(world, failed.operation.id)

    assert refused.value.code == "MACHINE_MAY_EXIST"
    assert await world.counts() == before


async def test_a_start_without_capacity_is_tried_again(world: World):
    instance_id = await exited(world)
    world.faults(Fault(FaultKind.ERROR, (START,), status=400, reason="INSUFFICIENT_RESOURCE"))
    accepted = await ask(world, OperationKind.START, instance_id)
    assert (await world.work_until_over(accepted.operation.id))["status"] == "FAILED"
    world.faults()
    await forget(world)

    again = await retry(world, accepted.operation.id)

    assert again.operation.kind == OperationKind.START
    await world.work_until_status(instance_id, S.READY)
    assert changes(world) == {START: 1}


async def test_a_start_that_took_too_long_is_monitored_again_and_not_sent_again(world: World):
    instance_id = await exited(world)
    await world.configure(instance_max_wait=timedelta(milliseconds=1))
    world.simulator.world.set_speed(0.001)
    accepted = await ask(world, OperationKind.START, instance_id)
    assert (await world.work_until_over(accepted.operation.id))["error_code"] == "READY_TIMEOUT"
    await forget(world)
    world.simulator.world.set_speed(1000)
    hasten(world)

    await retry(world, accepted.operation.id)

    await world.work_until_status(instance_id, S.READY)
    assert changes(world) == {}


async def test_a_delete_that_failed_in_an_older_release_is_tried_again(world: World):
    instance_id = await ready(world)
    operation_id = await world.delete(instance_id)
    await world.execute("DELETE FROM job")
    await world.execute(
        "UPDATE operation SET status = 'FAILED', phase = 'OVER', error_code = 'PROVIDER_ERROR', finished_at = now()"
        " WHERE id = $1",
        operation_id,
    )
    await world.execute("UPDATE instance SET status = 'FAILED', failure_code = 'PROVIDER_ERROR'")

    again = await retry(world, operation_id)

    assert (again.operation.kind, again.instance.status) == (OperationKind.DELETE, S.DELETING)
    await world.work_until_status(instance_id, S.DELETED)
    assert [each for each in world.machines() if each.status != "removed"] == []


async def test_what_can_not_be_tried_again_is_refused_and_changes_nothing(world: World):
    failed = await failed_create(world)
    other = await world.new_caller("other")
    instance_id = await ready(world, "two", (Port(80, "http"),))
    stopped = await ask(world, OperationKind.STOP, instance_id)
    await world.work_until_over(stopped.operation.id)
    before = await world.counts()

    with pytest.raises(NotFound):
        await retry_operation(world.database, failed.operation.id, by=other)
    with pytest.raises(VersionConflict):
        await retry(world, failed.operation.id, expected_version=1)
    with pytest.raises(Refused) as succeeded:
        await retry(world, stopped.operation.id)
    assert (succeeded.value.code, str(succeeded.value)) == (
        "OPERATION_NOT_RETRYABLE",
        "It is SUCCEEDED; only a failed operation can be tried again.",
    )
    await world.execute(
        "UPDATE operation SET status = 'FAILED', error_code = 'PROVIDER_ERROR' WHERE id = $1", stopped.operation.id
    )
    with pytest.raises(Refused) as another_kind:
        await retry(world, stopped.operation.id)
    assert another_kind.value.code == "OPERATION_NOT_RETRYABLE"
    assert await world.counts() == before

    await world.delete(failed.instance.id)
    await world.work_until_status(failed.instance.id, S.DELETED)
    with pytest.raises(Refused) as followed:
        await retry(world, failed.operation.id)
    assert followed.value.code == "OPERATION_NOT_RETRYABLE"
