"""No end is early with wrong clocks, every step has its job, and a killed worker neither loses nor repeats an end."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from server.clock import now
from server.enums import InstanceStatus, LifetimeAction, OperationKind
from server.instances import transitions
from server.instances.commands.lifecycle import Target, accept
from server.instances.limits.spec import Idle, Schedule
from server.lifetimes.repair import repair_lifetimes
from server.queue.kinds import EndLifetime, Reconcile
from tests.server.lifetimes.conftest import Ready, age, jobs, run_step
from tests.support.lifecycle import rescue
from tests.support.machines import stop_outside
from tests.support.world import World
from tests.support.wrong_clock import wrong_clock

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


@pytest.fixture(params=[timedelta(days=1), timedelta(days=-1)], ids=["a day ahead", "a day behind"])
async def wrong(request: pytest.FixtureRequest, world: World, database_url: str) -> AsyncIterator[None]:
    async with wrong_clock(world, database_url, request.param):
        yield


@pytest.mark.usefixtures("wrong")
async def test_no_end_is_early_or_late_with_a_wrong_clock(world: World, ready: Ready):
    instance_id = await ready(max_duration=HOUR)
    await age(world, instance_id, HOUR - 2 * MINUTE)
    await run_step(world, instance_id)
    assert (await world.instance(instance_id))["status"] == "READY"

    await age(world, instance_id, 2 * MINUTE)
    await run_step(world, instance_id)
    assert (await world.instance(instance_id))["status"] == "STOPPING"


async def test_reconcile_counts_and_makes_missing_jobs(world: World, ready: Ready):
    instance_id = await ready(max_duration=HOUR)
    assert await repair_lifetimes(world.database) == 0
    await world.execute("DELETE FROM job WHERE kind = 'END_LIFETIME'")
    assert await repair_lifetimes(world.database) == 1
    assert await jobs(world, instance_id) == 1
    assert await repair_lifetimes(world.database) == 0


async def test_reconcile_makes_missing_jobs_also_while_the_provider_is_away(world: World, ready: Ready):
    instance_id = await ready(max_duration=HOUR)
    await world.execute("DELETE FROM job")
    world.outage()
    await world.enqueue(Reconcile())

    with capture_logs() as logs:
        await world.work_once()

    assert await jobs(world, instance_id) == 1
    assert [each["count"] for each in logs if each["event"] == "lifetimes.jobs_missing"] == [1]


async def test_row_whose_limits_can_not_be_read_holds_up_no_other_and_no_comparison(world: World, ready: Ready):
    broken, other = await ready("broken", max_duration=HOUR), await ready("other", max_duration=HOUR)
    await world.execute("DELETE FROM job")
    await world.execute('UPDATE instance SET lifetime = \'{"max_duration": "soon"}\' WHERE id = $1', broken)
    await stop_outside(world, (await world.instance(other))["novita_id"])
    await world.enqueue(Reconcile())

    with capture_logs() as logs:
        await world.work_once()

    assert [each["instance_id"] for each in logs if each["event"] == "lifetimes.row_failed"] == [broken]
    assert [each["count"] for each in logs if each["event"] == "lifetimes.jobs_missing"] == [1]
    assert [(await world.instance(id))["status"] for id in (broken, other)] == ["READY", "EXITED"]


async def test_instance_that_an_older_process_has_changed_is_armed_again(world: World, ready: Ready):
    instance_id = await ready(max_duration=HOUR)
    # As an older process leaves it: it knows none of the columns.
    await world.execute("DELETE FROM job WHERE kind = 'END_LIFETIME'")
    await world.execute("UPDATE instance SET lifetime_due_at = NULL, run_accepted_at = NULL WHERE id = $1", instance_id)
    assert await repair_lifetimes(world.database) == 1
    row = await world.instance(instance_id)
    assert row["lifetime_due_at"] == row["running_at"] + HOUR


async def test_reconcile_gives_a_stopped_instance_no_run_that_would_end_its_next_start(world: World, ready: Ready):
    instance_id = await ready(max_duration=HOUR, on_end=LifetimeAction.DELETE)
    await accept(world.database, OperationKind.STOP, Target(instance_id), by=world.caller)
    await world.work_until_status(instance_id, InstanceStatus.EXITED)
    await repair_lifetimes(world.database)
    assert (await world.instance(instance_id))["run_accepted_at"] is None

    await accept(world.database, OperationKind.START, Target(instance_id), by=world.caller)
    row = await world.instance(instance_id)
    assert (row["status"], row["lifetime_due_at"], await jobs(world, instance_id)) == ("STARTING", None, 0)


@pytest.mark.parametrize(
    ("limits", "is_missing", "is_locked"),
    [
        ({"max_duration": HOUR, "idle": Idle()}, False, False),
        ({"deadline": "later"}, False, False),
        ({"deadline": "later", "on_end": LifetimeAction.DELETE}, True, True),
        ({"delete_after_stopped": HOUR}, True, True),
        ({"schedule": Schedule(start=("* * * * *",))}, True, True),
        ({"schedule": Schedule(stop=("* * * * *",))}, False, True),
    ],
)
async def test_reconcile_makes_the_job_of_a_stopped_instance_only_if_something_comes(
    world: World, ready: Ready, limits: dict[str, Any], is_missing: bool, is_locked: bool
):
    given = {name: now() + HOUR if each == "later" else each for name, each in limits.items()}
    instance_id = await ready(**given)
    await accept(world.database, OperationKind.STOP, Target(instance_id), by=world.caller)
    await world.work_until_status(instance_id, InstanceStatus.EXITED)
    # As an older process leaves it.
    await world.execute("DELETE FROM job WHERE kind = 'END_LIFETIME'")
    await world.execute("UPDATE instance SET lifetime_due_at = NULL, run_accepted_at = NULL WHERE id = $1", instance_id)
    last_lock = "SELECT xmax::text FROM instance WHERE id = $1"
    before = await world.value(last_lock, instance_id)

    assert await repair_lifetimes(world.database) == is_missing

    assert await jobs(world, instance_id) == is_missing
    assert (await world.value(last_lock, instance_id) != before) is is_locked


async def test_every_change_of_status_keeps_one_job_or_none(world: World, ready: Ready):
    instance_id = await ready(max_duration=HOUR, delete_after_stopped=HOUR)
    for kind, status in (
        (OperationKind.RESTART, InstanceStatus.READY),
        (OperationKind.STOP, InstanceStatus.EXITED),
        (OperationKind.START, InstanceStatus.READY),
    ):
        await accept(world.database, kind, Target(instance_id), by=world.caller)
        await world.work_until_status(instance_id, status)
        row = await world.instance(instance_id)
        assert (row["lifetime_due_at"] is not None, await jobs(world, instance_id)) == (True, 1)
    await world.delete(instance_id)
    assert ((await world.instance(instance_id))["lifetime_due_at"], await jobs(world, instance_id)) == (None, 0)


async def test_end_of_a_worker_that_died_before_its_commit_is_taken_by_the_next(world: World, ready: Ready):
    instance_id = await ready(max_duration=HOUR)
    await age(world, instance_id, HOUR)
    # Claimed by a worker whose lease is over.
    await world.execute(
        "UPDATE job SET status = 'RUNNING', claim = 1, worker_id = gen_random_uuid(), claimed_at = now()"
        " WHERE kind = 'END_LIFETIME'"
    )
    await rescue(world)
    await world.work_until_status(instance_id, InstanceStatus.EXITED)
    assert await world.value("SELECT count(*) FROM operation WHERE kind = 'STOP'") == 1


async def test_run_of_a_worker_that_died_after_its_commit_changes_nothing(world: World, ready: Ready):
    instance_id = await ready(max_duration=HOUR)
    await age(world, instance_id, HOUR)
    await run_step(world, instance_id)
    # The job as it is between the commit of its step and its own end: without its key.
    await world.enqueue(EndLifetime(instance_id))
    before = await world.counts()
    await world.execute("UPDATE job SET run_at = 'infinity', due_at = 'infinity' WHERE kind <> 'END_LIFETIME'")
    await world.work_once()
    assert await world.counts() == {**before, "job": before["job"] - 1}


async def test_earlier_time_that_is_set_while_the_job_runs_is_not_lost(world: World, ready: Ready):
    """The job has read its row and is about to wait for the old time; the new one must win."""
    instance_id = await ready(max_duration=10 * HOUR)
    await world.execute(
        "UPDATE job SET status = 'RUNNING', claim = 1, worker_id = gen_random_uuid(), claimed_at = now()"
        " WHERE kind = 'END_LIFETIME'"
    )
    async with world.database.write() as session:
        instance = await transitions.lock(session, instance_id)
        sooner = {**(instance.lifetime or {}), "max_duration": "PT1H"}
        await transitions.update(session, instance_id, cause=transitions.Cause(), lifetime=sooner)
    assert await jobs(world, instance_id) == 1  # the running one, which reads the row under its lock
    await world.execute(
        "UPDATE job SET status = 'WAITING', claim = NULL, worker_id = NULL, claimed_at = NULL, run_at = now(),"
        " due_at = now() WHERE kind = 'END_LIFETIME'"
    )
    await world.work_once()
    wait = await world.value("SELECT run_at - now() FROM job WHERE unique_key = $1", f"lifetime {instance_id}")
    assert wait < HOUR
