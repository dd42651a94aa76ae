"""Start, stop, restart, migrate and update without errors: events, provider calls and final rows."""

from datetime import timedelta

import pytest

from server.clock import now
from server.enums import OperationKind
from server.instances.commands.lifecycle import Target, accept
from server.instances.commands.update import UpdateDraft, update_instance
from server.instances.drafts import Port
from server.instances.provider.poll_request import PageEntry
from server.novita.client import NovitaClient
from server.simulator import lifecycle
from tests.support.lifecycle import (
    EDIT,
    MIGRATE,
    RESTART,
    START,
    STOP,
    ask,
    changes,
    done,
    exited,
    fit_for,
    forget,
    hasten,
    machine,
    ready,
    row_of,
    status_of,
    transitions_of,
)
from tests.support.machines import stop_outside
from tests.support.world import GET, World

WEB = (Port(80, "http"),)
UP_AGAIN = ["instance.running", "instance.health_checking", "instance.ready", "operation.finished"]


async def test_start_brings_an_exited_instance_to_ready_and_says_every_step(world: World):
    instance_id = await exited(world, ports=WEB)

    accepted = await ask(world, OperationKind.START, instance_id)
    operation = await world.work_until_over(accepted.operation.id)

    assert (accepted.instance.status, accepted.operation.status) == ("STARTING", "QUEUED")
    assert (operation["status"], operation["phase"], operation["error_code"]) == ("SUCCEEDED", "OVER", None)
    assert await transitions_of(world, instance_id) == [
        "operation.started",
        "instance.starting",
        "operation.changed",
        "operation.changed",
        "operation.changed",
        *UP_AGAIN,
    ]
    assert changes(world) == {START: 1}
    assert machine(world).is_running
    assert await world.value("SELECT count(*) FROM job") == 0


async def test_stop_succeeds_once_the_provider_reports_it_exited(world: World):
    instance_id = await ready(world, ports=WEB)

    accepted = await ask(world, OperationKind.STOP, instance_id)
    operation = await world.work_until_over(accepted.operation.id)

    assert (accepted.instance.status, accepted.instance.estimated_ready_at) == ("STOPPING", None)
    assert operation["status"] == "SUCCEEDED"
    assert await transitions_of(world, instance_id) == [
        "operation.started",
        "instance.stopping",
        "operation.changed",
        "instance.exited",
        "operation.finished",
    ]
    assert changes(world) == {STOP: 1}
    assert machine(world).status == "exited"
    row = await row_of(world, instance_id)
    assert (row.status, row.novita_status, row.endpoints) == ("EXITED", "exited", [])


@pytest.mark.parametrize(
    ("kind", "event", "route"),
    [
        (OperationKind.RESTART, "instance.restarting", RESTART),
        (OperationKind.MIGRATE, "instance.migrating", MIGRATE),
    ],
)
async def test_restart_and_migrate_bring_a_ready_instance_to_ready(
    world: World, kind: OperationKind, event: str, route: str
):
    instance_id = await ready(world, ports=WEB)

    operation = await done(world, kind, instance_id)

    assert operation["status"] == "SUCCEEDED"
    assert await transitions_of(world, instance_id) == [
        "operation.started",
        event,
        "operation.changed",
        "operation.changed",
        "operation.changed",
        *UP_AGAIN,
    ]
    assert changes(world) == {route: 1}
    assert machine(world).starts == 2


async def test_an_exited_instance_may_be_migrated(world: World):
    instance_id = await exited(world)

    operation = await done(world, OperationKind.MIGRATE, instance_id)

    assert operation["status"] == "SUCCEEDED"
    assert await status_of(world, instance_id) == "READY"
    assert changes(world) == {MIGRATE: 1}


@pytest.mark.parametrize("kind", [OperationKind.START, OperationKind.RESTART, OperationKind.MIGRATE])
async def test_endpoints_and_times_are_those_of_the_new_run(world: World, kind: OperationKind):
    instance_id = await (exited if kind is OperationKind.START else ready)(world, ports=WEB)
    before = await world.instance(instance_id)

    accepted = await ask(world, kind, instance_id)

    migrated = await world.instance(instance_id)
    assert (migrated["running_at"], migrated["ready_at"]) == (None, None)
    operation = await world.work_until_over(accepted.operation.id)
    after = await row_of(world, instance_id)
    assert after.running_at is not None
    assert after.ready_at is not None
    assert after.ready_at > before["ready_at"]
    assert operation["created_at"] < after.running_at < after.ready_at
    assert [endpoint["address"] for endpoint in after.endpoints] == list(machine(world).endpoints.values())


async def test_start_by_name(world: World):
    instance_id = await exited(world, "by-name")

    accepted = await accept(world.database, OperationKind.START, Target(name="by-name"), by=world.caller)
    operation = await world.work_until_over(accepted.operation.id)

    assert (operation["status"], operation["instance_id"]) == ("SUCCEEDED", instance_id)


async def test_new_name_and_labels_are_stored_before_the_response(world: World):
    instance_id = await ready(world)

    draft = UpdateDraft(name="two", labels={"team": "vision"})
    accepted = await update_instance(world.database, Target(instance_id), draft, by=world.caller)

    assert (accepted.instance.name, accepted.instance.labels) == ("two", {"team": "vision"})
    assert (accepted.operation.kind, accepted.operation.status, accepted.operation.phase) == (
        "UPDATE",
        "SUCCEEDED",
        "OVER",
    )
    assert await world.event_types(instance_id) == ["operation.started", "instance.changed", "operation.finished"]
    assert world.calls() == 0
    assert await world.value("SELECT count(*) FROM job") == 0


@pytest.mark.parametrize("state", ["READY", "EXITED"])
async def test_new_ports_and_a_larger_disk_are_requested_from_the_provider(world: World, state: str):
    instance_id = await (ready if state == "READY" else exited)(world, ports=WEB)

    draft = UpdateDraft(ports=(Port(8080, "http"), Port(22, "tcp")), rootfs_size_gb=100)
    accepted = await update_instance(world.database, Target(instance_id), draft, by=world.caller)
    operation = await world.work_until_over(accepted.operation.id)

    assert operation["status"] == "SUCCEEDED"
    assert (machine(world).ports, machine(world).rootfs_size) == ([(8080, "http"), (22, "tcp")], 100)
    row = await row_of(world, instance_id)
    assert (row.status, row.rootfs_size_gb) == (state, 100)
    assert row.ports == [{"port": 8080, "type": "http"}, {"port": 22, "type": "tcp"}]
    assert [endpoint["port"] for endpoint in row.endpoints] == ([8080, 22] if state == "READY" else [])
    assert changes(world) == {EDIT: 1}


async def test_update_without_a_difference_makes_no_provider_call(world: World):
    instance_id = await ready(world, ports=WEB)

    draft = UpdateDraft(ports=WEB, rootfs_size_gb=60)
    accepted = await update_instance(world.database, Target(instance_id), draft, by=world.caller)

    assert accepted.operation.status == "SUCCEEDED"
    assert world.calls() == 0


async def test_a_failed_instance_whose_machine_runs_can_be_restarted_and_stopped(world: World):
    instance_id = await ready(world)
    await world.execute("UPDATE instance SET status = 'FAILED', failure_code = 'HEALTH_CHECK_FAILED'")

    assert (await done(world, OperationKind.RESTART, instance_id))["status"] == "SUCCEEDED"
    row = await world.instance(instance_id)
    assert (row["status"], row["failure_code"]) == ("READY", None)

    await world.execute("UPDATE instance SET status = 'FAILED', failure_code = 'HEALTH_CHECK_FAILED'")
    assert (await done(world, OperationKind.STOP, instance_id))["status"] == "SUCCEEDED"
    assert machine(world).status == "exited"


async def test_a_failed_instance_whose_machine_is_down_is_brought_up_by_a_restart(world: World):
    instance_id = await exited(world)
    await world.execute("UPDATE instance SET status = 'FAILED', failure_code = 'IMAGE_PULL_FAILED'")

    operation = await done(world, OperationKind.RESTART, instance_id)

    assert operation["status"] == "SUCCEEDED"
    assert await status_of(world, instance_id) == "READY"
    assert changes(world) == {START: 1}


@pytest.mark.parametrize(
    ("kind", "minutes"), [(OperationKind.START, 3), (OperationKind.RESTART, 3), (OperationKind.MIGRATE, 3)]
)
async def test_start_without_history_is_estimated_at_three_minutes(world: World, kind: OperationKind, minutes: int):
    instance_id = await fit_for(world, kind)

    accepted = await ask(world, kind, instance_id)

    assert accepted.operation.estimated_ready_at is not None
    takes = accepted.operation.estimated_ready_at - accepted.operation.created_at
    assert abs(takes - timedelta(minutes=minutes)) < timedelta(seconds=1)
    assert accepted.instance.estimated_ready_at == accepted.operation.estimated_ready_at


async def read_a_page(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The provider's list, as the poller reads it while a burst of creates uses up the rate limit."""
    monkeypatch.setattr(NovitaClient, "is_short_of_calls", True)
    services = world.services_with(world.novita)
    world.worker = world.worker_with(world.novita, services)
    for remote in (await world.novita.instances(page=1, page_size=100)).items:
        services.poller.pages.put(PageEntry(remote, now(), lacks_addresses=False))
    await forget(world)


async def test_while_calls_are_short_a_page_shows_that_a_machine_runs(world: World, monkeypatch: pytest.MonkeyPatch):
    instance_id = await ready(world)
    await read_a_page(world, monkeypatch)

    accepted = await ask(world, OperationKind.STOP, instance_id)
    await world.work_once()

    assert (world.calls(GET), changes(world)) == (0, {STOP: 1})
    assert (await world.work_until_over(accepted.operation.id))["status"] == "SUCCEEDED"
    assert (await row_of(world, instance_id)).status == "EXITED"
    assert changes(world) == {STOP: 1}


async def test_a_page_from_before_the_run_shows_nothing(world: World, monkeypatch: pytest.MonkeyPatch):
    instance_id = await ready(world)
    await read_a_page(world, monkeypatch)
    await world.execute("UPDATE instance SET running_at = now() + interval '1 s'")

    await ask(world, OperationKind.STOP, instance_id)
    await world.work_once()

    assert (world.calls(GET), changes(world)) == (1, {STOP: 1})


async def test_a_machine_that_has_exited_since_the_page_is_stopped(world: World, monkeypatch: pytest.MonkeyPatch):
    instance_id = await ready(world)
    await read_a_page(world, monkeypatch)
    await stop_outside(world, machine(world).id)

    operation = await done(world, OperationKind.STOP, instance_id)

    assert (operation["status"], changes(world)) == ("SUCCEEDED", {STOP: 1})  # refused, and then looked at
    assert (await row_of(world, instance_id)).status == "EXITED"


async def test_a_machine_that_restarts_since_the_page_is_stopped_once_it_runs(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """The refusal says nothing against the stop: the machine was not looked at before it."""
    instance_id = await ready(world)
    await read_a_page(world, monkeypatch)
    world.simulator.world.set_speed(0.0001)
    lifecycle.restart(world.simulator.world, world.simulator.world.instance(machine(world).id))
    accepted = await ask(world, OperationKind.STOP, instance_id)
    await world.work_once()
    assert changes(world) == {STOP: 1}
    hasten(world)
    world.simulator.world.set_speed(1000)

    operation = await world.work_until_over(accepted.operation.id)

    assert (operation["status"], operation["error_code"], changes(world)) == ("SUCCEEDED", None, {STOP: 2})
