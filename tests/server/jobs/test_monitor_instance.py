"""Monitoring a new instance: provider states, outages and timeouts."""

from datetime import timedelta
from uuid import UUID

from server.enums import InstanceStatus
from server.instances.drafts import Port
from server.simulator.faults import Fault, FaultKind
from tests.support.waiting import until
from tests.support.world import CREATE, GET, World


async def starting(world: World, **fields: object) -> tuple[UUID, UUID]:
    """An instance that the provider has accepted, and its operation."""
    accepted = await world.create("watched", **fields)
    await world.work_until_status(accepted.instance.id, InstanceStatus.STARTING)
    return accepted.instance.id, accepted.operation.id


async def test_an_image_that_cannot_be_pulled_fails_with_the_providers_reason(world: World):
    world.faults(Fault(FaultKind.PULL_FAILURE, (CREATE,)))
    accepted = await world.create("typo", image="ngnix:nope")

    operation = await world.work_until_over(accepted.operation.id)

    message = "failed to pull image ngnix:nope: manifest unknown"
    assert (operation["status"], operation["error_code"], operation["error_message"], operation["error_retryable"]) == (
        "FAILED",
        "IMAGE_PULL_FAILED",
        message,
        False,
    )
    row = await world.instance(accepted.instance.id)
    assert (row["status"], row["failure_code"], row["failure_message"]) == ("FAILED", "IMAGE_PULL_FAILED", message)
    assert row["running_at"] is None
    assert (await world.event_types(accepted.instance.id))[-2:] == ["operation.finished", "instance.failed"]


async def test_instance_that_never_runs_fails_after_the_maximum_wait(world: World):
    await world.configure(instance_max_wait=timedelta(milliseconds=1))
    world.simulator.world.set_speed(0.001)
    accepted = await world.create("slow")

    operation = await world.work_until_over(accepted.operation.id)

    assert (operation["error_code"], operation["error_retryable"]) == ("READY_TIMEOUT", True)
    row = await world.instance(accepted.instance.id)
    assert (row["status"], row["failure_code"]) == ("FAILED", "READY_TIMEOUT")
    assert len(world.machines()) == 1  # it is the caller's to delete, not ours to take away


async def test_the_requested_time_to_run_replaces_the_setting(world: World):
    await world.configure(instance_max_wait=timedelta(milliseconds=1))
    world.simulator.world.set_speed(0.001)
    instance_id, operation_id = await starting(world, ready_timeout=timedelta(minutes=2))
    for _ in range(3):
        await world.hurry()
        await world.work_once()
    assert (await world.operation(operation_id))["finished_at"] is None

    await world.execute("UPDATE instance SET status_since = status_since - interval '121 s'")
    operation = await world.work_until_over(operation_id)

    assert operation["error_code"] == "READY_TIMEOUT"
    assert (await world.instance(instance_id))["ready_timeout_seconds"] == 120


async def test_unreachable_provider_keeps_the_status_and_counts_no_attempt(world: World):
    instance_id, _ = await starting(world)
    before = await world.instance(instance_id)
    world.outage()
    for _ in range(5):
        await world.hurry()
        await world.work_once()

    job = await world.one("SELECT kind, status, attempts, run_at > now() AS is_later FROM job")
    assert tuple(job) == ("MONITOR_INSTANCE", "WAITING", 0, True)
    after = await world.instance(instance_id)
    assert (after["status"], after["version"]) == ("STARTING", before["version"])

    world.faults()
    await world.work_until_status(instance_id, InstanceStatus.READY)


async def test_unknown_provider_status_is_stored_and_polled_again(world: World):
    instance_id, _ = await starting(world)
    world.faults(Fault(FaultKind.UNKNOWN_STATUS, (GET,), word="hibernating"))
    await world.hurry()
    await world.work_once()

    row = await world.instance(instance_id)
    assert (row["status"], row["novita_status"]) == ("STARTING", "hibernating")
    assert await world.value("SELECT attempts FROM job WHERE kind = 'MONITOR_INSTANCE'") == 0

    world.faults()
    await world.work_until_status(instance_id, InstanceStatus.READY)


async def test_poll_without_a_change_writes_no_event(world: World):
    world.simulator.world.set_speed(0.001)
    instance_id, _ = await starting(world)
    await world.hurry()
    await world.work_once()
    before = await world.instance(instance_id)
    events = await world.event_types(instance_id)

    await world.hurry()
    await world.work_once()

    async def is_noted() -> bool:
        return (await world.instance(instance_id))["observed_at"] > before["observed_at"]

    await until(is_noted)  # written a moment later, for many at once
    after = await world.instance(instance_id)
    assert after["version"] == before["version"]
    assert await world.event_types(instance_id) == events


async def test_machine_not_listed_yet_is_waited_for_and_a_gone_one_fails(world: World):
    instance_id, operation_id = await starting(world)
    (machine,) = world.machines()
    world.simulator.world.forget_instance(machine)
    await world.hurry()
    await world.work_once()
    assert (await world.instance(instance_id))["status"] == "STARTING"

    await world.execute("UPDATE instance SET status_since = status_since - interval '2 minutes'")
    operation = await world.work_until_over(operation_id)

    assert operation["error_code"] == "GONE_AT_PROVIDER"
    assert (await world.instance(instance_id))["status"] == "FAILED"


async def test_instance_that_exits_before_it_ran_has_failed(world: World):
    world.simulator.world.set_speed(0.001)
    instance_id, operation_id = await starting(world)
    (machine,) = world.machines()
    world.simulator.world.set_status(machine, "exited")
    world.simulator.world.mark_changed(machine)

    operation = await world.work_until_over(operation_id)

    assert (operation["error_code"], operation["error_retryable"]) == ("EXITED_EARLY", True)
    assert (await world.instance(instance_id))["failure_message"] == "The instance became exited before it was ready."


async def test_endpoints_that_never_answer_fail_the_health_check_and_say_which(world: World):
    await world.configure(health_check_max_wait=timedelta(milliseconds=1))
    instance_id, operation_id = await starting(world, ports=(Port(80, "http"), Port(8080, "http"), Port(22, "tcp")))
    (machine,) = world.machines()
    world.simulator.world.endpoint_modes[machine.id, 8080] = "503"

    operation = await world.work_until_over(operation_id)

    assert (operation["status"], operation["error_code"], operation["error_retryable"]) == (
        "FAILED",
        "HEALTH_CHECK_FAILED",
        True,
    )
    row = await world.instance(instance_id)
    assert (row["status"], row["failure_code"]) == ("FAILED", "HEALTH_CHECK_FAILED")
    assert row["running_at"] is not None
    assert row["ready_at"] is None
    assert machine.endpoints["8080"] in row["failure_message"]


async def test_an_endpoint_that_refuses_at_first_is_probed_until_it_answers(world: World):
    instance_id, _ = await starting(world, ports=(Port(80, "http"),))
    (machine,) = world.machines()
    world.simulator.world.endpoint_modes[machine.id, 80] = "badGateway"
    await world.work_until_status(instance_id, InstanceStatus.HEALTH_CHECKING)
    for _ in range(3):
        await world.hurry()
        await world.work_once()

    job = await world.one("SELECT kind, status, attempts FROM job")
    assert tuple(job) == ("HEALTH_CHECK", "WAITING", 0)
    assert (await world.instance(instance_id))["status"] == "HEALTH_CHECKING"

    world.simulator.world.endpoint_modes[machine.id, 80] = "ok"
    await world.work_until_status(instance_id, InstanceStatus.READY)
