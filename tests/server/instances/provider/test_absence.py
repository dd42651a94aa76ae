"""A machine that the provider does not show is gone only when that is confirmed, and comes back by itself."""

from uuid import UUID

import pytest

from server.enums import InstanceStatus, OperationKind
from server.errors import NotFound
from server.instances.commands.adopt import AdoptDraft, adopt_instance
from server.instances.provider.absence import MassDisappearance, is_mass
from server.instances.provider.reconcile import reconcile
from server.queue.kinds import Reconcile
from server.simulator.faults import Fault, FaultKind
from tests.support.lifecycle import ask, ready, status_of
from tests.support.machines import make_running, missing_for, stop_outside
from tests.support.world import GET, LIST, World

S = InstanceStatus
DELETE = "POST /gpu/instance/delete"
NOT_FOUND = Fault(FaultKind.ERROR, (GET,), status=404, reason="NOT_FOUNT", message="instance not fount")
EMPTY_LIST = Fault(FaultKind.GARBAGE, (LIST,), body='{"instances":[],"total":0}')
GATEWAY_PAGE = Fault(FaultKind.BAD_GATEWAY, (GET,), status=404)


async def test_empty_lists_for_a_while_change_nothing_and_raise_an_alarm(world: World):
    instances = [await ready(world, f"n-{number}") for number in range(4)]
    world.faults(NOT_FOUND, EMPTY_LIST)

    for _ in range(3):
        with pytest.raises(MassDisappearance, match="shows 0 of 4 machines"):
            await reconcile(world.database, world.novita)
        await missing_for(world, 61)
    await world.enqueue(Reconcile())
    await world.work_once()  # the job waits for the next time

    assert [await status_of(world, each) for each in instances] == [S.READY] * 4
    assert await world.value("SELECT count(*) FROM outbox") == 0
    assert await world.value("SELECT count(missing_since) FROM instance") == 0


def test_a_mass_is_more_than_a_fifth_and_at_least_three():
    assert [is_mass(missing, known) for missing, known in ((2, 2), (3, 3), (3, 15), (3, 14), (21, 100), (20, 100))] == [
        False,
        True,
        False,
        True,
        True,
        False,
    ]


async def test_gone_needs_two_looks_and_one_that_is_seen_again_recovers(world: World):
    instance_id = await ready(world)
    world.faults(NOT_FOUND, EMPTY_LIST)
    await reconcile(world.database, world.novita)
    await reconcile(world.database, world.novita)
    assert await status_of(world, instance_id) == S.READY

    await missing_for(world, 61)
    await reconcile(world.database, world.novita)
    row = await world.instance(instance_id)
    assert (row["status"], row["failure_code"]) == (S.FAILED, "GONE_AT_PROVIDER")

    world.faults()
    await reconcile(world.database, world.novita)
    row = await world.instance(instance_id)
    assert (row["status"], row["status_reason"], row["missing_since"]) == (S.STARTING, "SEEN_AGAIN", None)
    await world.work_until_status(instance_id, S.READY)


async def test_one_that_is_seen_again_as_stopped_is_exited(world: World):
    instance_id = await ready(world)
    await stop_outside(world, (await world.instance(instance_id))["novita_id"])
    world.faults(NOT_FOUND, EMPTY_LIST)
    await reconcile(world.database, world.novita)
    await missing_for(world, 61)
    await reconcile(world.database, world.novita)
    assert await status_of(world, instance_id) == S.FAILED

    world.faults()
    await reconcile(world.database, world.novita)

    row = await world.instance(instance_id)
    assert (row["status"], row["status_reason"]) == (S.EXITED, "SEEN_AGAIN")


async def test_a_look_that_finds_it_starts_the_count_again(world: World):
    instance_id = await ready(world)
    world.faults(NOT_FOUND, EMPTY_LIST)
    await reconcile(world.database, world.novita)
    await missing_for(world, 61)
    world.faults()
    await reconcile(world.database, world.novita)
    world.faults(NOT_FOUND, EMPTY_LIST)

    await reconcile(world.database, world.novita)

    assert await status_of(world, instance_id) == S.READY


@pytest.mark.parametrize("kind", [OperationKind.STOP, OperationKind.RESTART])
@pytest.mark.parametrize("route", [GET, "POST /gpu/instance/*"])
async def test_a_404_to_a_verb_is_checked_before_it_is_believed(world: World, kind: OperationKind, route: str):
    instance_id = await ready(world)
    accepted = await ask(world, kind, instance_id)
    world.faults(Fault(FaultKind.ERROR, (route,), times=3, status=404, reason="NOT_FOUNT", message="not fount"))
    await missing_for(world, 61)

    operation = await world.work_until_over(accepted.operation.id)

    assert operation["status"] == "SUCCEEDED"  # the list shows it


async def test_a_verb_fails_once_the_absence_is_confirmed(world: World):
    instance_id = await ready(world)
    accepted = await ask(world, OperationKind.STOP, instance_id)
    world.faults(NOT_FOUND, EMPTY_LIST)

    operation = await world.work_until_over(accepted.operation.id)

    assert (operation["status"], operation["error_code"]) == ("FAILED", "GONE_AT_PROVIDER")
    world.faults()
    await reconcile(world.database, world.novita)
    await world.work_until_status(instance_id, S.READY)


async def test_a_delete_is_sent_although_the_machine_is_not_shown(world: World):
    operation_id = await world.delete(await ready(world))
    world.faults(NOT_FOUND)

    assert (await world.work_until_over(operation_id))["status"] == "SUCCEEDED"
    assert world.machines() == []


async def test_a_gateways_404_after_an_accepted_delete_has_to_be_confirmed(world: World):
    world.simulator.world.set_speed(0.001)
    instance_id = await ready(world)
    operation_id = await world.delete(instance_id)
    world.faults(GATEWAY_PAGE)
    for _ in range(4):
        await missing_for(world, 61)
        await world.hurry()
        await world.work_once()
    assert (await status_of(world, instance_id), len(world.machines())) == (S.DELETING, 1)

    world.faults(GATEWAY_PAGE, EMPTY_LIST, Fault(FaultKind.BAD_GATEWAY, (DELETE,), status=404))
    await world.configure()  # without the list that was read a moment ago

    assert (await world.work_until_over(operation_id))["status"] == "SUCCEEDED"


async def test_deleted_is_not_said_while_the_list_shows_the_machine(world: World):
    instance_id = await ready(world)
    operation_id = await world.delete(instance_id)
    missing = Fault(FaultKind.ERROR, (GET, DELETE), status=404, reason="NOT_FOUNT", message="instance not fount")
    world.faults(missing)
    await _work(world, instance_id)
    assert await status_of(world, instance_id) == S.DELETING
    assert (await world.operation(operation_id))["last_error_code"] == "PROVIDER_NOT_FOUND"

    world.faults(missing, EMPTY_LIST)
    await world.configure()  # without the list that was read a moment ago

    assert (await world.work_until_over(operation_id))["status"] == "SUCCEEDED"


async def _work(world: World, instance_id: UUID) -> None:
    for _ in range(5):
        await missing_for(world, 61)
        await world.hurry()
        await world.work_once()


async def test_a_machine_whose_row_is_deleted_is_shown_and_can_be_adopted(world: World):
    (machine,) = await make_running(world, 1)
    first = await adopt_instance(world.database, world.reader, AdoptDraft(machine, "first"), by=world.caller)
    with pytest.raises(NotFound):
        await adopt_instance(world.database, world.reader, AdoptDraft(machine, "second"), by=world.caller)
    await world.execute("UPDATE instance SET status = 'DELETED', deleted_at = now() WHERE id = $1", first.id)

    second = await adopt_instance(world.database, world.reader, AdoptDraft(machine, "second"), by=world.caller)

    await world.work_until_status(second.id, S.READY)
    assert (await world.instance(second.id))["novita_id"] == machine


async def test_a_machine_that_comes_up_after_its_instance_has_failed_is_monitored_to_ready(world: World):
    instance_id = await ready(world)
    await world.execute("UPDATE instance SET status = 'FAILED', failure_code = 'READY_TIMEOUT'")

    await reconcile(world.database, world.novita)

    row = await world.instance(instance_id)
    assert (row["status"], row["status_reason"]) == (S.STARTING, "CAME_UP_LATE")
    await world.work_until_status(instance_id, S.READY)


async def test_a_machine_that_failed_for_a_reason_of_its_own_stays_failed(world: World):
    instance_id = await ready(world)
    await world.execute("UPDATE instance SET status = 'FAILED', failure_code = 'IMAGE_PULL_FAILED'")

    await reconcile(world.database, world.novita)

    assert await status_of(world, instance_id) == S.FAILED
