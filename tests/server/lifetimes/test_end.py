"""Each limit ends its instance at its time, never before, once, and as an ordinary operation."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from server.clock import now
from server.enums import InstanceStatus, LifetimeAction, OperationKind
from server.instances.commands.lifecycle import Target, accept
from server.instances.limits.spec import Lifetime
from server.lifetimes.extend import Extension, extend_lifetime
from server.simulator.faults import Fault, FaultKind
from tests.server.lifetimes.conftest import Ready, age, jobs, last_operation, lifetime_events, run_step
from tests.support.world import World

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
STOP_ROUTE = "POST /gpu/instance/stop"


async def due(world: World, instance_id: UUID) -> tuple[datetime | None, str | None, str | None]:
    row = await world.instance(instance_id)
    return row["lifetime_due_at"], row["lifetime_action"], row["lifetime_reason"]


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"max_duration": HOUR}, "MAX_DURATION"),
        ({"heartbeat": HOUR}, "HEARTBEAT"),
        ({"max_duration": 2 * HOUR, "deadline": None}, "DEADLINE"),
    ],
)
async def test_limit_stops_the_instance_at_its_time_and_not_before(
    world: World, ready: Ready, limits: dict[str, Any], reason: str
):
    if "deadline" in limits:
        limits = {**limits, "deadline": now() + HOUR}
    instance_id = await ready(**limits)
    at, action, shown = await due(world, instance_id)
    assert (action, shown) == ("STOP", reason)
    assert at is not None
    assert timedelta(0) < at - now() <= HOUR

    await age(world, instance_id, HOUR - 5 * MINUTE)
    await run_step(world, instance_id)
    assert (await world.instance(instance_id))["status"] == "READY"
    assert await jobs(world, instance_id) == 1

    await age(world, instance_id, 5 * MINUTE)
    await run_step(world, instance_id)
    row = await world.instance(instance_id)
    assert (row["status"], row["status_reason"], row["lifetime_due_at"]) == ("STOPPING", reason, None)
    assert await last_operation(world, instance_id) == ("STOP", "LIFETIME", None)
    await world.work_until_status(instance_id, InstanceStatus.EXITED)
    assert await jobs(world, instance_id) == 0
    assert await world.value("SELECT count(*) FROM operation WHERE kind = 'STOP'") == 1


async def test_end_can_be_a_delete(world: World, ready: Ready):
    instance_id = await ready(max_duration=HOUR, on_end=LifetimeAction.DELETE)
    await age(world, instance_id, HOUR)
    await run_step(world, instance_id)
    assert await last_operation(world, instance_id) == ("DELETE", "LIFETIME", None)
    await world.work_until_status(instance_id, InstanceStatus.DELETED)
    assert (await lifetime_events(world, instance_id))[-1][0] == "lifetime.ended"
    assert await jobs(world, instance_id) == 0


@pytest.mark.parametrize("reason", ["STOPPED", "DEADLINE"])
async def test_stopped_instance_is_deleted_at_its_time_and_keeps_no_other_limit(
    world: World, ready: Ready, reason: str
):
    limits: dict[str, Any] = {"delete_after_stopped": HOUR}
    if reason == "DEADLINE":
        limits = {"deadline": now() + HOUR, "on_end": LifetimeAction.DELETE, "delete_after_stopped": 2 * HOUR}
    instance_id = await ready(max_duration=HOUR / 2, heartbeat=HOUR / 2, **limits)
    await accept(world.database, OperationKind.STOP, Target(instance_id), by=world.caller)
    await world.work_until_status(instance_id, InstanceStatus.EXITED)
    _, *step = await due(world, instance_id)
    assert step == ["DELETE", reason]

    await age(world, instance_id, HOUR - 5 * MINUTE)
    await run_step(world, instance_id)
    assert (await world.instance(instance_id))["status"] == "EXITED"

    await age(world, instance_id, 5 * MINUTE)
    await run_step(world, instance_id)
    assert await last_operation(world, instance_id) == ("DELETE", "LIFETIME", None)
    assert (await world.instance(instance_id))["status_reason"] == reason


async def test_start_begins_the_duration_anew_and_the_deadline_stays(world: World, ready: Ready):
    deadline = now() + 2 * HOUR
    instance_id = await ready(max_duration=HOUR, deadline=deadline)
    await accept(world.database, OperationKind.STOP, Target(instance_id), by=world.caller)
    await world.work_until_status(instance_id, InstanceStatus.EXITED)
    assert (await due(world, instance_id))[0] is None

    await accept(world.database, OperationKind.START, Target(instance_id), by=world.caller)
    await world.work_until_status(instance_id, InstanceStatus.READY)
    row = await world.instance(instance_id)
    assert row["lifetime_due_at"] == row["run_accepted_at"] + HOUR
    assert row["run_accepted_at"] <= row["running_at"]
    await world.execute("UPDATE instance SET run_accepted_at = $2 WHERE id = $1", instance_id, deadline)
    await run_step(world, instance_id)  # the duration would end after the deadline
    assert await due(world, instance_id) == (deadline, "STOP", "DEADLINE")


@pytest.mark.parametrize("kind", [OperationKind.RESTART, OperationKind.MIGRATE])
async def test_restart_and_migration_go_on_with_the_run(world: World, ready: Ready, kind: OperationKind):
    instance_id = await ready(max_duration=HOUR, heartbeat=2 * HOUR)
    before = await world.instance(instance_id)
    operation = await accept(world.database, kind, Target(instance_id), by=world.caller)
    assert (await world.work_until_over(operation.operation.id))["status"] == "SUCCEEDED"
    after = await world.instance(instance_id)
    assert after["running_at"] > before["running_at"]  # it came up anew
    assert (after["run_accepted_at"], after["lifetime_due_at"]) == (
        before["run_accepted_at"],
        before["lifetime_due_at"],
    )
    assert await jobs(world, instance_id) == 1


async def test_heartbeat_that_came_later_moves_the_end(world: World, ready: Ready):
    instance_id = await ready(heartbeat=HOUR)
    await age(world, instance_id, HOUR)
    await world.execute("UPDATE instance SET heartbeat_at = now() WHERE id = $1", instance_id)
    await run_step(world, instance_id)
    row = await world.instance(instance_id)
    assert row["status"] == "READY"
    assert row["lifetime_due_at"] == row["heartbeat_at"] + HOUR


async def test_create_that_is_open_at_the_deadline_is_cancelled(world: World):
    accepted = await world.create("late", lifetime=Lifetime(deadline=now() + HOUR))
    assert await jobs(world, accepted.instance.id) == 1
    await age(world, accepted.instance.id, HOUR)
    await world.execute("UPDATE job SET run_at = 'infinity', due_at = 'infinity' WHERE kind = 'CREATE_INSTANCE'")
    await run_step(world, accepted.instance.id)

    row = await world.instance(accepted.instance.id)
    assert (row["status"], row["status_reason"]) == ("DELETED", "DEADLINE")
    assert (await world.operation(accepted.operation.id))["status"] == "CANCELLED"
    assert world.made() == 0


@pytest.mark.parametrize("reason", ["DEADLINE", "MAX_DURATION", "HEARTBEAT"])
async def test_machine_of_a_create_that_is_open_at_its_end_is_removed(world: World, reason: str):
    limits = {
        "DEADLINE": Lifetime(deadline=now() + HOUR),
        "MAX_DURATION": Lifetime(max_duration=HOUR),
        "HEARTBEAT": Lifetime(heartbeat=HOUR),
    }
    accepted = await world.create("late", lifetime=limits[reason])
    world.simulator.world.set_speed(0.01)
    await world.work_once()
    row = await world.instance(accepted.instance.id)
    assert (row["novita_id"] is not None, (await world.operation(accepted.operation.id))["finished_at"]) == (True, None)
    # After an hour it would fail the create, if it were due by now.
    await world.execute("UPDATE job SET run_at = 'infinity', due_at = 'infinity' WHERE kind = 'MONITOR_INSTANCE'")
    await age(world, accepted.instance.id, HOUR)
    await run_step(world, accepted.instance.id)
    world.simulator.world.set_speed(10_000)

    await world.work_until_status(accepted.instance.id, InstanceStatus.DELETED)
    assert (await world.operation(accepted.operation.id))["status"] == "CANCELLED"
    assert (world.made(), world.machines()) == (1, [])
    *_, (type, values) = await lifetime_events(world, accepted.instance.id)
    assert (type, values["reason"]) == ("lifetime.ended", reason)


async def test_open_operation_is_waited_for_and_a_delete_supersedes_it_after_two_minutes(world: World, ready: Ready):
    instance_id = await ready(max_duration=HOUR, on_end=LifetimeAction.DELETE)
    restart = await accept(world.database, OperationKind.RESTART, Target(instance_id), by=world.caller)
    await world.execute("UPDATE job SET run_at = 'infinity', due_at = 'infinity' WHERE kind = 'RESTART_INSTANCE'")
    await age(world, instance_id, HOUR + MINUTE)
    await run_step(world, instance_id)
    assert (await world.operation(restart.operation.id))["status"] in ("QUEUED", "RUNNING")
    assert await jobs(world, instance_id) == 1

    await age(world, instance_id, MINUTE)
    await run_step(world, instance_id)
    assert (await world.operation(restart.operation.id))["status"] == "SUPERSEDED"
    assert await last_operation(world, instance_id) == ("DELETE", "LIFETIME", None)


async def test_open_operation_delays_a_stop_until_it_is_legal(world: World, ready: Ready):
    instance_id = await ready(max_duration=HOUR)
    restart = await accept(world.database, OperationKind.RESTART, Target(instance_id), by=world.caller)
    await age(world, instance_id, 2 * HOUR)
    await run_step(world, instance_id)
    assert (await world.operation(restart.operation.id))["finished_at"] is None

    await world.work_until_status(instance_id, InstanceStatus.EXITED)
    assert (await world.operation(restart.operation.id))["status"] == "SUCCEEDED"
    assert await last_operation(world, instance_id) == ("STOP", "LIFETIME", None)


async def test_failed_stop_is_repeated_and_told_once_an_hour(world: World, ready: Ready):
    instance_id = await ready(max_duration=HOUR)
    world.faults(Fault(FaultKind.ERROR, (STOP_ROUTE,), status=400, reason="INVALID", message="no"))
    await age(world, instance_id, HOUR)
    for _ in range(3):
        await run_step(world, instance_id)
        operation = await world.value("SELECT id FROM operation WHERE kind = 'STOP' ORDER BY created_at DESC LIMIT 1")
        assert (await world.work_until_over(operation))["status"] == "FAILED"
        row = await world.instance(instance_id)
        assert row["status"] in ("READY", "FAILED")
        assert timedelta(0) < row["lifetime_due_at"] - now() <= world.settings.lifetime_retry
        await age(world, instance_id, world.settings.lifetime_retry)
    told = [type for type, _ in await lifetime_events(world, instance_id)]
    assert told == ["lifetime.ended", "lifetime.overdue"]

    world.faults()
    await run_step(world, instance_id)
    await world.work_until_status(instance_id, InstanceStatus.EXITED)
    assert (await world.instance(instance_id))["lifetime_due_at"] is None


async def test_end_is_announced_once_at_each_warning(world: World, ready: Ready):
    instance_id = await ready(max_duration=HOUR)
    for earlier in (timedelta(0), 50 * MINUTE, MINUTE, 8 * MINUTE, timedelta(seconds=1)):
        await age(world, instance_id, earlier)
        await run_step(world, instance_id)
    told = await lifetime_events(world, instance_id)
    assert [type for type, _ in told] == ["lifetime.ending", "lifetime.ending"]
    assert [told[0][1]["action"], told[0][1]["reason"]] == ["STOP", "MAX_DURATION"]

    # An end that was moved is another one.
    extended = (await extend_lifetime(world.database, Target(instance_id), Extension(by=HOUR), by=world.caller)).row
    assert extended is not None
    await age(world, instance_id, HOUR - 5 * MINUTE)
    await run_step(world, instance_id)
    *_, (type, values) = await lifetime_events(world, instance_id)
    end = (await due(world, instance_id))[0]
    assert extended.lifetime_due_at is not None
    assert end == extended.lifetime_due_at - (HOUR - 5 * MINUTE)
    assert (type, values["at"]) == ("lifetime.ending", end.isoformat())
