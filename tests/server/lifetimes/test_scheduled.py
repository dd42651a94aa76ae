"""Scheduled starts and stops: taken at their time, made up for within an hour, and a failed stop is repeated."""

from datetime import datetime, timedelta
from uuid import UUID

import orjson
import pytest

from server.clock import now
from server.enums import InstanceStatus, OperationKind
from server.instances.commands.lifecycle import Target, accept
from server.instances.limits.spec import Lifetime, Schedule
from server.lifetimes.repair import repair_lifetimes
from server.simulator.faults import Fault, FaultKind
from tests.server.lifetimes.conftest import Ready, age, jobs, last_operation, lifetime_events, run_step
from tests.server.spend.test_budgets import budget
from tests.server.spend.test_quotas import quota
from tests.support.lifecycle import START, STOP
from tests.support.world import World

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


def at(moment: datetime) -> tuple[str]:
    """The expression that fires at this minute, once a year."""
    return (f"{moment.minute} {moment.hour} {moment.day} {moment.month} *",)


async def stopped(world: World, ready: Ready, schedule: Schedule, **limits: object) -> UUID:
    instance_id = await ready(schedule=schedule, **limits)
    await accept(world.database, OperationKind.STOP, Target(instance_id), by=world.caller)
    await world.work_until_status(instance_id, InstanceStatus.EXITED)
    return instance_id


async def test_scheduled_start_starts_the_instance_as_an_ordinary_operation(world: World, ready: Ready):
    instance_id = await stopped(world, ready, Schedule(start=("* * * * *",)))
    row = await world.instance(instance_id)
    assert (row["lifetime_action"], row["lifetime_reason"]) == ("START", "SCHEDULE")
    assert timedelta(0) < row["lifetime_due_at"] - row["status_since"] <= MINUTE

    await age(world, instance_id, 2 * MINUTE)
    await run_step(world, instance_id)
    row = await world.instance(instance_id)
    assert (row["status"], row["status_reason"]) == ("STARTING", "SCHEDULE")
    assert await last_operation(world, instance_id) == ("START", "SCHEDULE", None)
    ((type, values),) = await lifetime_events(world, instance_id)
    assert (type, values["action"], values["outcome"]) == ("lifetime.ended", "START", "ACCEPTED")
    await world.work_until_status(instance_id, InstanceStatus.READY)
    assert (await jobs(world, instance_id), (await world.instance(instance_id))["lifetime_due_at"]) == (0, None)


@pytest.mark.parametrize("kind", [OperationKind.START, OperationKind.STOP])
@pytest.mark.parametrize(("late", "is_taken"), [(59 * MINUTE, True), (61 * MINUTE, False)], ids=["59 min", "61 min"])
async def test_time_without_a_worker_is_made_up_for_within_an_hour(
    world: World, ready: Ready, kind: OperationKind, late: timedelta, is_taken: bool
):
    fired = at(now() - late)
    if kind is OperationKind.START:
        instance_id = await stopped(world, ready, Schedule(start=fired))
    else:
        instance_id = await ready(schedule=Schedule(stop=fired))
    before = (await world.instance(instance_id))["status"]
    await age(world, instance_id, DAY)  # no worker has run since then
    await run_step(world, instance_id)

    row = await world.instance(instance_id)
    expected = {OperationKind.START: "STARTING", OperationKind.STOP: "STOPPING"}[kind]
    assert row["status"] == (expected if is_taken else before)
    ((type, values),) = await lifetime_events(world, instance_id)
    outcome = "ACCEPTED" if is_taken else "MISSED"
    assert (type, values["action"], values["outcome"]) == ("lifetime.ended", kind, outcome)
    assert is_taken or row["lifetime_due_at"] > now() + 300 * DAY


async def test_only_the_latest_of_several_missed_times_is_taken(world: World, ready: Ready):
    schedule = Schedule(start=at(now() - 20 * MINUTE), stop=at(now() - 40 * MINUTE))
    instance_id = await ready(schedule=schedule)
    await age(world, instance_id, DAY)
    await run_step(world, instance_id)

    assert (await world.instance(instance_id))["status"] == "READY"  # as the latest time says
    ((_, values),) = await lifetime_events(world, instance_id)
    assert (values["action"], values["outcome"]) == ("STOP", "MISSED")


async def test_start_that_its_deadline_would_end_at_once_is_missed(world: World, ready: Ready):
    schedule = Schedule(start=at(now() - 30 * MINUTE))
    instance_id = await stopped(world, ready, schedule, deadline=now() + DAY - 10 * MINUTE)
    await age(world, instance_id, DAY)  # the start came before the deadline; now both have passed
    await repair_lifetimes(world.database)  # before, the expression fired only after the deadline, so there was no job
    await run_step(world, instance_id)

    assert (await world.instance(instance_id))["status"] == "EXITED"
    ((_, values),) = await lifetime_events(world, instance_id)
    assert (values["action"], values["outcome"]) == ("START", "MISSED")


async def test_start_that_the_provider_refuses_fails_and_waits_for_the_next_time(world: World, ready: Ready):
    instance_id = await stopped(world, ready, Schedule(start=("* * * * *",)))
    world.faults(Fault(FaultKind.ERROR, (START,), status=400, reason="NO_STOCK", message="no stock"))
    await age(world, instance_id, 2 * MINUTE)
    await run_step(world, instance_id)
    operation = await world.value("SELECT id FROM operation WHERE kind = 'START'")
    assert (await world.work_until_over(operation))["status"] == "FAILED"

    row = await world.instance(instance_id)
    assert (row["status"], row["lifetime_action"]) == ("EXITED", "START")
    assert row["lifetime_due_at"] > row["status_since"]
    assert await world.value("SELECT count(*) FROM operation WHERE kind = 'START'") == 1


@pytest.mark.parametrize("code", ["BUDGET_EXCEEDED", "PROJECT_QUOTA_EXCEEDED"])
async def test_start_that_a_budget_or_a_quota_blocks_is_left_out_and_said(world: World, ready: Ready, code: str):
    instance_id = await stopped(world, ready, Schedule(start=("* * * * *",)), max_duration=HOUR)
    if code == "BUDGET_EXCEEDED":
        await budget(world, 1)
    else:
        await quota(world, max_gpus=0)
    await age(world, instance_id, 2 * MINUTE)
    await run_step(world, instance_id)

    row = await world.instance(instance_id)
    assert (row["status"], row["lifetime_action"]) == ("EXITED", "START")
    assert row["lifetime_due_at"] > row["status_since"] + MINUTE
    ((type, values),) = await lifetime_events(world, instance_id)
    assert (type, values["action"], values["outcome"]) == ("lifetime.ended", "START", code)
    assert await world.value("SELECT count(*) FROM operation WHERE kind = 'START'") == 0
    assert await jobs(world, instance_id) == 1


async def test_scheduled_stop_that_fails_is_repeated_until_a_scheduled_start_comes(world: World, ready: Ready):
    instance_id = await ready(schedule=Schedule(stop=at(now() - 2 * MINUTE)))
    world.faults(Fault(FaultKind.ERROR, (STOP,), status=400, reason="INVALID", message="no"))
    await age(world, instance_id, DAY)
    for count in (1, 2):
        await run_step(world, instance_id)
        assert await world.value("SELECT count(*) FROM operation WHERE kind = 'STOP'") == count
        operation = await world.value("SELECT id FROM operation ORDER BY created_at DESC LIMIT 1")
        assert (await world.work_until_over(operation))["status"] == "FAILED"
        row = await world.instance(instance_id)
        assert timedelta(0) < row["lifetime_due_at"] - now() <= world.settings.lifetime_retry
        await age(world, instance_id, world.settings.lifetime_retry)

    started = Schedule(stop=at(now() - 2 * MINUTE), start=at(now() - MINUTE))
    limits = orjson.dumps(Lifetime(schedule=started).to_json()).decode()
    await world.execute("UPDATE instance SET lifetime = $2 WHERE id = $1", instance_id, limits)
    await run_step(world, instance_id)
    row = await world.instance(instance_id)
    assert row["status"] == "READY"
    assert row["lifetime_due_at"] > now() + 300 * DAY
    assert await world.value("SELECT count(*) FROM operation WHERE kind = 'STOP'") == 2
