"""A spot machine that is reclaimed during its health check, while the provider can't be read for a while."""

from datetime import timedelta
from uuid import UUID

import pytest

from server.enums import Billing, InstanceStatus
from server.instances.drafts import Port
from server.instances.recovery.spec import Recovery
from server.probes.plan import HealthCheckDraft
from server.simulator import lifecycle
from tests.server.jobs.test_check_health import health_events, mode, rounds
from tests.server.recovery.test_recovery import SAME_ONLY, reclaim, recovered, see
from tests.support.aging import age_all
from tests.support.world import World

S = InstanceStatus
PAST_ITS_DEADLINE = timedelta(seconds=31)
WAITING_JOB = "SELECT status, attempts FROM job WHERE kind = $1"


async def checking(world: World, recovery: Recovery | None) -> tuple[UUID, UUID, str]:
    """A spot instance whose endpoint has failed once: its id, its operation's, and its machine's."""
    check = HealthCheckDraft(delay=0.1, retries=10, max_wait=30.0)
    accepted = await world.create(
        "one", billing=Billing.SPOT, recovery=recovery, ports=(Port(80, "http"),), health_check=check
    )
    await world.work_until_status(accepted.instance.id, S.HEALTH_CHECKING)
    (machine,) = world.machines()
    mode(world, machine.id, 80, "503")
    await rounds(world, 1)
    return accepted.instance.id, accepted.operation.id, machine.id


@pytest.mark.parametrize("is_word_known", [True, False])
@pytest.mark.parametrize("recovery", [None, SAME_ONLY])
async def test_reclaim_is_not_taken_for_a_failed_check(world: World, recovery: Recovery | None, is_word_known: bool):
    instance_id, operation_id, machine = await checking(world, recovery)
    reclaim(world, machine)
    if is_word_known:
        await see(world)
        row = await world.instance(instance_id)
        assert (row["status"], row["novita_status"], row["endpoints"]) == (S.HEALTH_CHECKING, "exited", "[]")
    world.outage()
    await rounds(world, 1)
    await age_all(world, PAST_ITS_DEADLINE)
    await rounds(world, 6)

    assert (await world.instance(instance_id))["status"] == S.HEALTH_CHECKING
    assert await health_events(world, instance_id) == []
    assert tuple(await world.one(WAITING_JOB, "HEALTH_CHECK")) == ("WAITING", 0)

    world.faults()
    mode(world, machine, 80, "ok")
    operation = await world.work_until_over(operation_id)

    assert (operation["error_code"], operation["error_retryable"]) == ("SPOT_RECLAIMED", True)
    row = await world.instance(instance_id)
    if recovery is None:
        assert (row["status"], row["status_reason"], row["failure_code"]) == (S.EXITED, "SPOT_RECLAIMED", None)
        return
    await recovered(world, instance_id)
    assert "instance.failed" not in await world.event_types(instance_id)


async def test_check_past_its_deadline_waits_until_the_machine_is_seen(world: World):
    instance_id, operation_id, machine = await checking(world, None)
    world.outage()
    await age_all(world, PAST_ITS_DEADLINE)
    await rounds(world, 3)
    assert (await world.instance(instance_id))["status"] == S.HEALTH_CHECKING

    world.faults()
    operation = await world.work_until_over(operation_id)

    assert operation["error_code"] == "HEALTH_CHECK_FAILED"
    assert (await world.instance(instance_id))["failure_message"].endswith(": HTTP status 503 (SERVICE_UNAVAILABLE)")
    assert [each.id for each in world.machines()] == [machine]


async def test_check_waits_for_the_provider_no_longer_than_other_jobs(world: World):
    instance_id, operation_id, machine = await checking(world, None)
    reclaim(world, machine)
    await see(world)
    world.outage()
    await age_all(world, PAST_ITS_DEADLINE + world.settings.provider_max_wait)

    operation = await world.work_until_over(operation_id)

    assert (operation["error_code"], (await world.instance(instance_id))["status"]) == ("NETWORK_ERROR", S.FAILED)


async def test_machine_that_runs_after_all_is_checked_again(world: World):
    instance_id, _, machine = await checking(world, None)
    await world.execute("UPDATE instance SET novita_status = 'exited', endpoints = '[]', missing_since = now()")
    mode(world, machine, 80, "")

    await rounds(world, 1)

    row = await world.instance(instance_id)
    assert (row["status"], row["novita_status"], row["missing_since"]) == (S.READY, "running", None)


async def test_watch_of_a_reclaim_waits_as_long_as_the_provider_can_not_be_read(world: World):
    await world.configure(provider_max_wait=timedelta(milliseconds=1))
    accepted = await world.create("one", billing=Billing.SPOT)
    await world.work_until_status(accepted.instance.id, S.READY)
    (machine,) = world.machines()
    lifecycle.reclaim(world.simulator.world, machine, notice=3600)
    await see(world)
    reclaimed_at = (await world.instance(accepted.instance.id))["spot_reclaim_at"]
    assert reclaimed_at is not None
    world.simulator.world.clock.set_now(world.simulator.world.clock.now() + 3700)
    world.outage()
    await world.execute("UPDATE instance SET spot_reclaim_at = now() - interval '2 min'")

    await rounds(world, 6)

    assert tuple(await world.one(WAITING_JOB, "WATCH_RECLAIM")) == ("WAITING", 0)
    world.faults()
    await world.work_until_status(accepted.instance.id, S.EXITED)
