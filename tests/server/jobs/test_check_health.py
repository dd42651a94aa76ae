"""Health checks take an instance from RUNNING to READY or FAILED."""

import socket
from datetime import timedelta
from typing import Any
from uuid import UUID

import orjson
import pytest

from server.enums import InstanceStatus
from server.instances import transitions
from server.instances.drafts import Port
from server.probes.plan import HealthCheckDraft
from server.queue.kinds import CheckHealth
from server.simulator import lifecycle
from tests.support.lifecycle import hasten
from tests.support.waiting import until
from tests.support.world import World

S = InstanceStatus
BOTH = (Port(80, "http"), Port(8080, "http"))


async def checking(world: World, *, ports: tuple[Port, ...] = BOTH, **check: Any) -> tuple[UUID, UUID, str]:
    """An instance that is about to be probed: its id, its operation's, and its machine's."""
    settings = HealthCheckDraft(**{"delay": 0.1, **check})
    accepted = await world.create("web", ports=ports, health_check=settings)
    await world.work_until_status(accepted.instance.id, S.HEALTH_CHECKING)
    (machine,) = world.machines()
    for port in machine.loopback.values():
        await until(lambda port=port: listens(port))
    return accepted.instance.id, accepted.operation.id, machine.id


def listens(port: int) -> bool:
    """A machine's ports refuse for a moment before they open."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def mode(world: World, machine: str, port: int, how: str) -> None:
    world.simulator.world.endpoint_modes[machine, port] = how


async def seen(world: World, instance_id: UUID, status: str) -> bool:
    return (await world.instance(instance_id))["novita_status"] == status


async def rounds(world: World, many: int) -> None:
    for _ in range(many):
        await world.hurry()
        await world.work_once()


async def results(world: World, instance_id: UUID) -> list[tuple[int, bool, int | None, str | None, int]]:
    found = await world.rows(
        "SELECT port, is_healthy, http_status, error_kind, attempts FROM probe_result"
        " WHERE instance_id = $1 ORDER BY port",
        instance_id,
    )
    return [tuple(each) for each in found]


async def health_events(world: World, instance_id: UUID) -> list[str]:
    events = await world.events(instance_id)
    return [each.data["health"]["status"] for each in events if each.type == "health.checked"]


async def test_ready_needs_every_endpoint(world: World):
    instance_id, operation_id, machine = await checking(world, retries=0)
    mode(world, machine, 80, "ok")
    mode(world, machine, 8080, "503")

    await rounds(world, 2)
    assert (await world.instance(instance_id))["status"] == S.HEALTH_CHECKING
    assert await results(world, instance_id) == [
        (80, True, 200, None, 1),
        (8080, False, 503, "SERVICE_UNAVAILABLE", 1),
    ]

    mode(world, machine, 8080, "ok")
    await world.work_until_over(operation_id)

    assert (await world.instance(instance_id))["status"] == S.READY
    assert await health_events(world, instance_id) == ["PARTIAL", "HEALTHY"]


async def test_within_a_check_only_what_was_unhealthy_is_probed_again(world: World):
    instance_id, _, machine = await checking(world, retries=3)
    mode(world, machine, 80, "ok")
    mode(world, machine, 8080, "badGateway")

    await rounds(world, 3)

    assert [(row[0], row[4]) for row in await results(world, instance_id)] == [(80, 1), (8080, 3)]
    assert await health_events(world, instance_id) == []  # the check is not over


async def test_health_event_is_written_when_the_verdict_changes_not_per_probe(world: World):
    instance_id, _, machine = await checking(world, retries=1)
    mode(world, machine, 80, "503")
    mode(world, machine, 8080, "503")

    await rounds(world, 8)

    assert await health_events(world, instance_id) == ["UNHEALTHY"]


async def test_permanent_probe_failure_is_not_probed_again_in_the_same_check(world: World):
    instance_id, _, machine = await checking(world, ports=(Port(80, "http"),), retries=5, expected_statuses=(418,))
    mode(world, machine, 80, "ok")

    await rounds(world, 2)

    assert await results(world, instance_id) == [(80, False, 200, "CLIENT_ERROR", 1)]
    assert await health_events(world, instance_id) == ["UNHEALTHY"]


async def test_check_past_its_deadline_fails_with_the_last_results(world: World):
    instance_id, operation_id, machine = await checking(world, max_wait=30.0)
    mode(world, machine, 80, "ok")
    mode(world, machine, 8080, "503")
    await rounds(world, 1)
    await world.execute("UPDATE instance SET status_since = status_since - interval '31 s'")

    operation = await world.work_until_over(operation_id)

    assert (operation["error_code"], operation["error_retryable"]) == ("HEALTH_CHECK_FAILED", True)
    row = await world.instance(instance_id)
    assert (row["status"], row["failure_code"]) == (S.FAILED, "HEALTH_CHECK_FAILED")
    assert row["failure_message"].endswith(": HTTP status 503 (SERVICE_UNAVAILABLE)")
    assert [each[:3] for each in await results(world, instance_id)] == [(80, True, 200), (8080, False, 503)]
    assert await health_events(world, instance_id) == ["PARTIAL"]
    assert await world.value("SELECT count(*) FROM job") == 0


async def test_only_the_target_port_counts(world: World):
    instance_id, operation_id, machine = await checking(world, target_port=8080)
    mode(world, machine, 80, "503")
    mode(world, machine, 8080, "ok")

    await world.work_until_over(operation_id)

    assert (await world.instance(instance_id))["status"] == S.READY
    assert [row[0] for row in await results(world, instance_id)] == [8080]


async def test_a_tcp_port_can_be_the_target(world: World):
    instance_id, operation_id, _ = await checking(world, ports=(Port(22, "tcp"),), target_port=22)

    await world.work_until_over(operation_id)

    assert (await world.instance(instance_id))["status"] == S.READY
    assert (await results(world, instance_id))[0][:4] == (22, True, None, None)


async def test_a_target_port_that_is_no_longer_exposed_is_a_clear_failure(world: World):
    instance_id, operation_id, _ = await checking(world)
    await world.execute("""UPDATE instance SET health_check = '{"target_port": 9000}'""")

    operation = await world.work_until_over(operation_id)

    assert (operation["error_code"], operation["error_retryable"]) == ("TARGET_PORT_NOT_EXPOSED", False)
    assert (await world.instance(instance_id))["failure_code"] == "TARGET_PORT_NOT_EXPOSED"


async def test_http_and_tcp_endpoints_are_probed_side_by_side(world: World):
    instance_id, operation_id, _ = await checking(world, ports=(Port(80, "http"), Port(22, "tcp")))

    await world.work_until_over(operation_id)

    assert [row[:3] for row in await results(world, instance_id)] == [(22, True, None), (80, True, 200)]


async def test_check_waits_for_a_late_address(world: World):
    instance_id, operation_id, _ = await checking(world)
    await world.execute("UPDATE instance SET endpoints = '[]', observed_at = NULL")

    await world.work_until_over(operation_id)

    row = await world.instance(instance_id)
    assert row["status"] == S.READY
    assert len(orjson.loads(row["endpoints"])) == 2


async def test_new_run_starts_without_results(world: World):
    instance_id, operation_id, _ = await checking(world)
    await world.work_until_over(operation_id)
    assert (await world.instance(instance_id))["health"] == "HEALTHY"

    async with world.database.write() as session:
        await transitions.transition(session, instance_id, S.RESTARTING, cause=transitions.Cause())

    assert (await world.instance(instance_id))["health"] is None
    assert await results(world, instance_id) == []


async def test_failed_check_on_demand_changes_no_status(world: World):
    instance_id, operation_id, machine = await checking(world, retries=0)
    await world.work_until_over(operation_id)
    version = (await world.instance(instance_id))["version"]
    mode(world, machine, 80, "503")
    mode(world, machine, 8080, "503")

    await world.enqueue(CheckHealth(instance_id, asked_at=9e9))
    await rounds(world, 1)

    row = await world.instance(instance_id)
    assert (row["status"], row["health"], row["version"]) == (S.READY, "UNHEALTHY", version + 1)
    assert await world.value("SELECT count(*) FROM job") == 0


async def test_container_that_ends_during_its_checks_is_noticed_in_the_next_round(world: World):
    instance_id, operation_id, machine = await checking(world)
    mode(world, machine, 80, "503")
    await rounds(world, 1)
    lifecycle.exit_by_itself(world.simulator.world, world.simulator.world.instance(machine), code=3)

    operation = await world.work_until_over(operation_id)

    message = "container exited with code 3"
    assert (operation["error_code"], operation["error_message"], operation["exit_code"]) == (
        "CONTAINER_EXITED",
        message,
        3,
    )
    row = await world.instance(instance_id)
    assert (row["status"], row["failure_code"], row["exit_code"], row["exit_message"], row["novita_status"]) == (
        S.FAILED,
        "CONTAINER_EXITED",
        3,
        message,
        "exited",
    )
    finished, failed = (await world.events(instance_id))[-2:]
    assert (finished.type, finished.data["operation"]["exit_code"]) == ("operation.finished", 3)
    assert (failed.type, failed.data["instance"]["exit_code"]) == ("instance.failed", 3)


async def test_machine_that_is_frozen_during_its_checks_says_so(world: World):
    instance_id, operation_id, machine = await checking(world)
    mode(world, machine, 80, "503")
    await rounds(world, 1)
    world.simulator.world.set_speed(0.001)
    lifecycle.freeze(world.simulator.world, world.simulator.world.instance(machine))
    await world.work_until(lambda: seen(world, instance_id, "freezing"))
    hasten(world)

    operation = await world.work_until_over(operation_id)

    assert operation["error_code"] == "FROZEN"
    assert (await world.instance(instance_id))["failure_code"] == "FROZEN"


async def test_provider_that_does_not_answer_keeps_no_endpoint_from_being_probed(world: World):
    instance_id, _, machine = await checking(world)
    mode(world, machine, 80, "503")
    await rounds(world, 1)
    world.outage()
    mode(world, machine, 80, "")

    await rounds(world, 1)

    assert (await world.instance(instance_id))["status"] == S.READY


async def test_successful_check_on_demand_makes_an_unhealthy_instance_ready(world: World):
    instance_id, operation_id, machine = await checking(world, retries=0, max_wait=30.0)
    mode(world, machine, 80, "503")
    mode(world, machine, 8080, "503")
    await rounds(world, 1)
    await world.execute("UPDATE instance SET status_since = status_since - interval '31 s'")
    await world.work_until_over(operation_id)
    assert (await world.instance(instance_id))["failure_code"] == "HEALTH_CHECK_FAILED"

    await world.enqueue(CheckHealth(instance_id, asked_at=9e9))
    await rounds(world, 1)
    assert (await world.instance(instance_id))["status"] == S.FAILED

    mode(world, machine, 80, "")
    mode(world, machine, 8080, "")
    await world.enqueue(CheckHealth(instance_id, asked_at=9e9))
    await rounds(world, 1)

    row = await world.instance(instance_id)
    assert (row["status"], row["health"], row["failure_code"]) == (S.READY, "HEALTHY", None)


async def test_successful_check_on_demand_ends_the_degradation_and_its_count(world: World):
    instance_id, operation_id, _ = await checking(world, retries=0)
    await world.work_until_over(operation_id)
    await world.execute("UPDATE instance SET degraded_since = now(), health = 'UNHEALTHY'")
    await world.execute(
        "INSERT INTO health_watch (instance_id, since, due_at, failures)"
        " SELECT id, status_since, now() + interval '1 h', 3 FROM instance"
    )

    await world.enqueue(CheckHealth(instance_id, asked_at=9e9))
    await rounds(world, 1)

    row = await world.instance(instance_id)
    assert (row["status"], row["health"], row["degraded_since"]) == (S.READY, "HEALTHY", None)
    assert (await world.event_types(instance_id))[-1] == "health.changed"
    assert await world.value("SELECT failures FROM health_watch") == 0


@pytest.mark.parametrize("status", [S.EXITED, S.DELETED, S.STOPPING])
async def test_instance_in_another_status_is_not_probed(world: World, status: InstanceStatus):
    instance = await world.put(status, ports=[{"port": 80, "type": "http"}])
    await world.enqueue(CheckHealth(instance.id, asked_at=0.0))

    await world.work_once()

    assert await results(world, instance.id) == []


async def test_pauses_grow_and_never_reach_beyond_the_deadline(world: World):
    _, _, machine = await checking(world, delay=10.0, max_wait=30.0)
    mode(world, machine, 80, "503")
    mode(world, machine, 8080, "503")

    pauses: list[float] = []
    for _ in range(3):
        await rounds(world, 1)
        pause = "SELECT extract(epoch FROM run_at - now())::float8 FROM job WHERE kind = 'HEALTH_CHECK'"
        pauses.append(await world.value(pause))

    assert 7 < pauses[0] < 13
    assert pauses[1] > pauses[0]
    assert max(pauses) <= timedelta(seconds=30).total_seconds()
