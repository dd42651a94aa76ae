"""Errors, wrong responses, outages and kills during a provider call: it is done once, or not at all."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from server.enums import OperationKind
from server.instances.commands.lifecycle import Target
from server.instances.commands.update import UpdateDraft, update_instance
from server.instances.drafts import Port
from server.instances.provider.reconcile import reconcile
from server.instances.status import VERBS
from server.novita.client import NovitaClient
from server.simulator.faults import Fault, FaultKind
from tests.support.lifecycle import (
    EDIT,
    ROUTES,
    START,
    STOP,
    Dying,
    age,
    ask,
    changes,
    done,
    exited,
    fit_for,
    machine,
    ready,
    rescue,
    status_of,
)
from tests.support.world import GET, World

ASKED = list(ROUTES)
AFTERWARDS = {
    OperationKind.START: "READY",
    OperationKind.STOP: "EXITED",
    OperationKind.RESTART: "READY",
    OperationKind.MIGRATE: "READY",
    OperationKind.UPDATE: "READY",
}
RUNS = {OperationKind.STOP: 1, OperationKind.UPDATE: 1}


@pytest.mark.parametrize("kind", ASKED)
@pytest.mark.parametrize(
    "spoiled", [FaultKind.LOST_ANSWER, FaultKind.ERROR_AFTER, FaultKind.INVALID_STATE_AFTER, FaultKind.CUT_CONNECTION]
)
async def test_accepted_call_with_an_error_response_is_done_once(world: World, kind: OperationKind, spoiled: FaultKind):
    instance_id = await fit_for(world, kind)
    world.faults(Fault(spoiled, (ROUTES[kind],), times=1))

    operation = await done(world, kind, instance_id)

    assert (operation["status"], operation["error_code"]) == ("SUCCEEDED", None)
    assert await status_of(world, instance_id) == AFTERWARDS[kind]
    assert changes(world) == {ROUTES[kind]: 1}
    assert machine(world).starts == RUNS.get(kind, 2)


@pytest.mark.parametrize("kind", ASKED)
async def test_a_worker_that_dies_right_after_the_provider_accepted_is_taken_over(world: World, kind: OperationKind):
    instance_id = await fit_for(world, kind)
    accepted = await ask(world, kind, instance_id)
    world.novita.__class__ = Dying
    with pytest.raises(asyncio.CancelledError):
        await world.work_once()
    world.novita.__class__ = NovitaClient
    assert (await world.operation(accepted.operation.id))["asked_at"] is not None

    await rescue(world)
    operation = await world.work_until_over(accepted.operation.id)

    assert operation["status"] == "SUCCEEDED"
    assert await status_of(world, instance_id) == AFTERWARDS[kind]
    assert changes(world) == {ROUTES[kind]: 1}
    assert machine(world).starts == RUNS.get(kind, 2)


@pytest.mark.parametrize("kind", ASKED)
async def test_provider_outage_is_waited_for(world: World, kind: OperationKind):
    instance_id = await fit_for(world, kind)
    accepted = await ask(world, kind, instance_id)
    world.outage()
    for _ in range(5):
        await world.hurry()
        await world.work_once()
    waiting = await world.operation(accepted.operation.id)
    assert (waiting["status"], waiting["asked_at"]) == ("RUNNING", None)

    world.faults()
    operation = await world.work_until_over(accepted.operation.id)

    assert operation["status"] == "SUCCEEDED"
    assert await status_of(world, instance_id) == AFTERWARDS[kind]
    assert await world.value("SELECT coalesce(max(attempts), 0) FROM job_history WHERE kind LIKE '%INSTANCE'") == 0


@pytest.mark.parametrize("kind", ASKED)
async def test_provider_outage_right_after_the_call_is_waited_for(world: World, kind: OperationKind):
    instance_id = await fit_for(world, kind)
    accepted = await ask(world, kind, instance_id)
    await world.work_once()
    world.outage()
    for _ in range(5):
        await world.hurry()
        await world.work_once()
    assert (await world.operation(accepted.operation.id))["status"] == "RUNNING"

    world.faults()
    operation = await world.work_until_over(accepted.operation.id)

    assert operation["status"] == "SUCCEEDED"
    assert await status_of(world, instance_id) == AFTERWARDS[kind]
    assert changes(world) == {ROUTES[kind]: 1}


@pytest.mark.parametrize("kind", ASKED)
async def test_long_provider_outage_fails_the_operation_and_reverts_the_instance(world: World, kind: OperationKind):
    instance_id = await fit_for(world, kind)
    before = await status_of(world, instance_id)
    await world.configure(provider_max_wait=timedelta(milliseconds=1))
    world.outage()

    operation = await done(world, kind, instance_id)

    assert (operation["status"], operation["error_code"], operation["error_retryable"]) == (
        "FAILED",
        "NETWORK_ERROR",
        True,
    )
    assert await status_of(world, instance_id) == before
    assert changes(world) == {}


@pytest.mark.parametrize("kind", ASKED)
async def test_unanswered_call_fails_once_it_had_no_visible_effect(world: World, kind: OperationKind):
    instance_id = await fit_for(world, kind)
    before = await status_of(world, instance_id)
    world.faults(Fault(FaultKind.ERROR, (ROUTES[kind],)))
    accepted = await ask(world, kind, instance_id)
    await world.work_once()

    await age(world, accepted.operation.id, 3601)
    operation = await world.work_until_over(accepted.operation.id)

    assert (operation["error_code"], operation["error_retryable"]) == ("NETWORK_ERROR", True)
    assert await status_of(world, instance_id) == before
    assert world.calls(ROUTES[kind]) == 1


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (OperationKind.START, "EXITED"),  # may be started again: a start reads the machine first
        (OperationKind.STOP, "FAILED"),
        (OperationKind.RESTART, "FAILED"),
        (OperationKind.MIGRATE, "FAILED"),
    ],
)
async def test_unresolved_call_during_an_outage_ends_in_a_status_that_allows_a_retry(
    world: World, kind: OperationKind, status: str
):
    instance_id = await fit_for(world, kind)
    world.faults(Fault(FaultKind.ERROR_AFTER, (ROUTES[kind],)))
    accepted = await ask(world, kind, instance_id)
    await world.work_once()
    world.outage()

    await age(world, accepted.operation.id, 3601)
    operation = await world.work_until_over(accepted.operation.id)

    assert (operation["status"], operation["error_code"]) == ("FAILED", "NETWORK_ERROR")
    assert await status_of(world, instance_id) == status
    world.faults()
    assert (await done(world, kind, instance_id))["status"] == "SUCCEEDED"
    assert await status_of(world, instance_id) == AFTERWARDS[kind]


@pytest.mark.parametrize("kind", ASKED)
async def test_invalid_state_change_counts_only_after_no_change_was_visible(world: World, kind: OperationKind):
    instance_id = await fit_for(world, kind)
    before = await status_of(world, instance_id)
    world.faults(
        Fault(
            FaultKind.ERROR, (ROUTES[kind],), status=400, reason="INVALID_STATE_CHANGE", message="invalid state change"
        )
    )
    accepted = await ask(world, kind, instance_id)
    for _ in range(4):
        await world.hurry()
        await world.work_once()
    assert (await world.operation(accepted.operation.id))["status"] == "RUNNING"
    assert world.calls(ROUTES[kind]) == 1
    assert world.calls(GET) > 1

    await age(world, accepted.operation.id, 11)
    operation = await world.work_until_over(accepted.operation.id)

    assert (operation["error_code"], operation["error_retryable"]) == ("INVALID_STATE_CHANGE", True)
    assert await status_of(world, instance_id) == before
    assert world.calls(ROUTES[kind]) == 1


@pytest.mark.parametrize("kind", [OperationKind.RESTART, OperationKind.MIGRATE])
async def test_unrepeatable_call_is_sent_again_only_when_the_first_can_not_arrive(world: World, kind: OperationKind):
    instance_id = await fit_for(world, kind)
    world.faults(Fault(FaultKind.ERROR, (ROUTES[kind],), times=1))
    accepted = await ask(world, kind, instance_id)
    for _ in range(4):
        await world.hurry()
        await world.work_once()
    assert world.calls(ROUTES[kind]) == 1

    await age(world, accepted.operation.id, 600)
    operation = await world.work_until_over(accepted.operation.id)

    assert operation["status"] == "SUCCEEDED"
    assert world.calls(ROUTES[kind]) == 2
    assert machine(world).starts == 2


@pytest.mark.parametrize("kind", [OperationKind.RESTART, OperationKind.MIGRATE])
async def test_unrepeatable_call_that_may_still_arrive_is_not_sent_again(world: World, kind: OperationKind):
    """A change is visible within seconds; a call without a response may wait at the provider for longer."""
    instance_id = await fit_for(world, kind)
    world.faults(Fault(FaultKind.DROP, (ROUTES[kind],), times=1))
    accepted = await ask(world, kind, instance_id)
    await world.work_once()
    limits = (world.settings.request_deadline, world.settings.request_timeout, world.settings.create_grace)

    await age(world, accepted.operation.id, int(sum(each.total_seconds() for each in limits)) - 5)
    for _ in range(3):
        await world.hurry()
        await world.work_once()

    assert (await world.operation(accepted.operation.id))["finished_at"] is None
    assert world.calls(ROUTES[kind]) == 1


async def test_disk_grows_once_however_often_the_response_is_lost(world: World):
    instance_id = await ready(world)
    world.faults(Fault(FaultKind.ERROR_AFTER, (EDIT,), times=1))

    accepted = await update_instance(
        world.database, Target(instance_id), UpdateDraft(rootfs_size_gb=100), by=world.caller
    )
    operation = await world.work_until_over(accepted.operation.id)

    assert operation["status"] == "SUCCEEDED"
    assert machine(world).rootfs_size == 100
    assert world.calls(EDIT) == 1


async def test_rate_limit_of_the_provider_is_waited_out(world: World):
    instance_id = await exited(world)
    world.faults(Fault(FaultKind.RATE_LIMIT, (START,), times=3))

    operation = await done(world, OperationKind.START, instance_id)

    assert operation["status"] == "SUCCEEDED"
    assert world.calls(START) == 4


async def test_machine_started_outside_pilotlight_is_monitored(world: World):
    instance_id = await exited(world)
    await world.novita.start_instance(machine(world).id)

    operation = await done(world, OperationKind.START, instance_id)

    assert operation["status"] == "SUCCEEDED"
    assert world.calls(START) == 1


async def test_a_machine_that_is_still_stopping_is_started_when_it_is_down(world: World):
    instance_id = await ready(world)
    await world.novita.stop_instance(machine(world).id)
    await world.execute("UPDATE instance SET status = 'EXITED'")

    operation = await done(world, OperationKind.START, instance_id)

    assert operation["status"] == "SUCCEEDED"
    assert changes(world) == {STOP: 1, START: 1}


async def test_a_machine_that_never_comes_up_fails_in_time(world: World):
    instance_id = await exited(world)
    world.simulator.world.set_speed(0.01)
    accepted = await ask(world, OperationKind.START, instance_id)
    await world.work_once()

    await age(world, accepted.operation.id, 601)
    operation = await world.work_until_over(accepted.operation.id)

    assert (operation["status"], operation["error_code"], operation["error_retryable"]) == (
        "FAILED",
        "READY_TIMEOUT",
        True,
    )
    assert await status_of(world, instance_id) == "FAILED"


@pytest.mark.parametrize("kind", [OperationKind.START, OperationKind.STOP, OperationKind.RESTART])
async def test_a_delete_supersedes_a_running_operation(world: World, kind: OperationKind):
    instance_id = await fit_for(world, kind)
    accepted = await ask(world, kind, instance_id)
    await world.work_once()

    deleting = await world.delete(instance_id)
    assert await world.delete(instance_id) == deleting
    operation = await world.work_until_over(deleting)

    assert operation["status"] == "SUCCEEDED"
    assert (await world.operation(accepted.operation.id))["status"] == "SUPERSEDED"
    assert await status_of(world, instance_id) == "DELETED"
    assert world.machines() == []
    await world.hurry()
    await world.work_once()
    assert await world.value("SELECT count(*) FROM job") == 0
    assert await status_of(world, instance_id) == "DELETED"


async def test_update_waits_until_a_new_port_has_an_address(world: World):
    instance_id = await ready(world, ports=(Port(80, "http"),))
    world.simulator.world.set_speed(1)
    draft = UpdateDraft(ports=(Port(80, "http"), Port(81, "http")))
    accepted = await update_instance(world.database, Target(instance_id), draft, by=world.caller)
    for _ in range(3):
        await world.hurry()
        await world.work_once()
    assert (await world.operation(accepted.operation.id))["status"] == "RUNNING"

    world.simulator.world.set_speed(100)
    assert (await world.work_until_over(accepted.operation.id))["status"] == "SUCCEEDED"


@pytest.mark.parametrize("kind", [OperationKind.START, OperationKind.RESTART, OperationKind.MIGRATE])
async def test_run_repeated_after_a_later_phase_does_nothing(world: World, kind: OperationKind):
    """Killed between its last commit and the end of its job: the next run finds the monitor enqueued."""
    instance_id = await fit_for(world, kind)
    accepted = await ask(world, kind, instance_id)
    await world.work_once()
    before = await world.operation(accepted.operation.id)
    events = await world.event_types(instance_id)
    work = VERBS[kind].work
    assert work is not None

    await world.execute("DELETE FROM job")
    await world.enqueue(work(instance_id, accepted.operation.id))
    await world.work_once()

    assert await world.operation(accepted.operation.id) == before
    assert before["phase"] == "PROVISIONING"
    assert await world.event_types(instance_id) == events
    assert changes(world) == {ROUTES[kind]: 1}


@pytest.mark.parametrize("draft", [UpdateDraft(rootfs_size_gb=70), UpdateDraft(ports=(Port(80, "http"),))])
async def test_an_accepted_edit_that_is_visible_late_is_sent_once(world: World, draft: UpdateDraft):
    """A disk grew by 40 GB instead of 10, because every look that did not show the growth asked for it again."""
    instance_id = await ready(world)
    world.simulator.world.dialect = replace(world.simulator.world.dialect, edit_delay=100_000)
    accepted = await update_instance(world.database, Target(instance_id), draft, by=world.caller)
    for _ in range(3):
        await world.hurry()
        await world.work_once()
        await age(world, accepted.operation.id, 29)
    assert (await world.operation(accepted.operation.id))["status"] == "RUNNING"
    await age(world, accepted.operation.id, 10)

    operation = await world.work_until_over(accepted.operation.id)

    assert (operation["status"], world.calls(EDIT)) == ("SUCCEEDED", 1)
    row = await world.instance(instance_id)
    assert row["status_reason"] == "UPDATE_NOT_VISIBLE_YET"
    assert row["rootfs_size_gb"] == (draft.rootfs_size_gb or 60)

    await reconcile(world.database, world.novita)
    assert (await world.instance(instance_id))["status_reason"] == "UPDATE_NOT_VISIBLE_YET"
    made = machine(world)
    made.rootfs_size, made.ports = draft.rootfs_size_gb or 60, [(each.port, each.type) for each in draft.ports or ()]
    world.simulator.world.mark_changed(made)
    await reconcile(world.database, world.novita)
    assert (await world.instance(instance_id))["status_reason"] is None


async def test_a_second_growth_adds_to_an_accepted_one_that_is_not_visible_yet(world: World):
    instance_id = await ready(world)
    await world.execute("UPDATE instance SET rootfs_size_gb = 70")  # accepted; the provider still shows 60
    accepted = await update_instance(
        world.database, Target(instance_id), UpdateDraft(rootfs_size_gb=80), by=world.caller
    )
    await world.work_once()

    assert machine(world).rootfs_size == 70  # 10 more than what is shown
    await age(world, accepted.operation.id, 100)
    assert (await world.work_until_over(accepted.operation.id))["status"] == "SUCCEEDED"
    assert world.calls(EDIT) == 1


async def test_ports_that_the_provider_adds_do_not_count(world: World):
    instance_id = await ready(world)
    world.simulator.world.dialect = replace(world.simulator.world.dialect, extra_ports="2375/tcp")
    draft = UpdateDraft(ports=(Port(80, "http"),))
    accepted = await update_instance(world.database, Target(instance_id), draft, by=world.caller)

    operation = await world.work_until_over(accepted.operation.id)

    assert (operation["status"], world.calls(EDIT)) == ("SUCCEEDED", 1)
    assert (await world.instance(instance_id))["status_reason"] is None
