"""An instance ends as idle only if its metrics show it; what is missing counts as busy."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from server.clock import now
from server.enums import InstanceStatus, LifetimeAction
from server.instances import transitions
from server.instances.limits.spec import Idle
from server.instances.limits.steps import METRICS_LAG
from server.lifetimes.end import take_step
from server.lifetimes.idle import UNKNOWN, judge
from server.lifetimes.share import take_reading
from server.novita.client import NovitaClient
from server.novita.models import GpuSeries, InstanceMetrics, Sample
from server.simulator.faults import Fault, FaultKind
from tests.server.lifetimes.conftest import Ready, age, jobs, last_operation, lifetime_events, run_step
from tests.support.world import World

MINUTE = timedelta(minutes=1)
WINDOW, GRACE = 10 * MINUTE, 5 * MINUTE
IDLE = Idle(window=WINDOW, grace=GRACE)
METRICS = "GET /openapi/v1/metrics/gpu/instance"
START = datetime(2026, 11, 18, tzinfo=UTC)


def metrics(*gpus: list[float | None]) -> InstanceMetrics:
    """A sample a minute for each GPU; None: missing."""
    by_gpu = {
        str(gpu): tuple(
            Sample(START + timedelta(minutes=minute), percent)
            for minute, percent in enumerate(percents)
            if percent is not None
        )
        for gpu, percents in enumerate(gpus)
    }
    return InstanceMetrics((), (), (), GpuSeries((), by_gpu), GpuSeries((), {}))


def verdict(*gpus: list[float | None]):
    return judge(metrics(*gpus), IDLE, gpu_count=len(gpus), since=START, until=START + WINDOW)


def test_idle_is_every_sample_of_every_gpu_below_the_limit():
    assert verdict([0.0] * 11).is_idle
    assert verdict([4.9] * 11, [0.0] * 11).is_idle
    assert not verdict([0.0] * 11, [0.0] * 5 + [5.0] + [0.0] * 5).is_idle


def test_last_busy_sample_is_where_the_next_window_begins():
    found = verdict([90.0] * 4 + [0.0] * 7)
    assert found.busy_at == START + timedelta(minutes=3)
    assert found.idle_since == found.busy_at


def test_too_few_samples_are_no_verdict():
    assert verdict([0.0] * 8 + [None] * 3).is_idle
    assert verdict([0.0] * 7 + [None] * 4) == UNKNOWN
    assert verdict([0.0] * 11, [None] * 11) == UNKNOWN
    assert judge(metrics([0.0] * 11), IDLE, gpu_count=2, since=START, until=START + WINDOW) == UNKNOWN
    assert judge(metrics(), IDLE, gpu_count=1, since=START, until=START + WINDOW) == UNKNOWN


async def load(world: World, instance_id: UUID, percent: float | None, *, minutes: int = 60) -> None:
    machine = (await world.instance(instance_id))["novita_id"]
    at = now().timestamp()
    world.simulator.world.loads.setdefault(machine, []).append((at - 60 * minutes, at, percent))


async def idle_and_due(world: World, ready: Ready, **limits: object) -> UUID:
    instance_id = await ready(idle=IDLE, **limits)
    row = await world.instance(instance_id)
    assert row["lifetime_due_at"] == row["run_accepted_at"] + GRACE + WINDOW + METRICS_LAG
    assert (row["lifetime_action"], row["lifetime_reason"]) == ("STOP", "IDLE")
    await age(world, instance_id, GRACE + WINDOW + METRICS_LAG)
    return instance_id


async def test_idle_instance_is_stopped_with_one_call(world: World, ready: Ready):
    instance_id = await idle_and_due(world, ready)
    await load(world, instance_id, 0)
    calls = world.calls()
    await run_step(world, instance_id)
    assert world.calls() == calls + 1
    row = await world.instance(instance_id)
    assert (row["status"], row["status_reason"]) == ("STOPPING", "IDLE")
    assert await last_operation(world, instance_id) == ("STOP", "IDLE", None)


async def test_idle_instance_can_be_deleted(world: World, ready: Ready):
    instance_id = await ready(idle=replace(IDLE, action=LifetimeAction.DELETE))
    await age(world, instance_id, GRACE + WINDOW + METRICS_LAG)
    await load(world, instance_id, 0)
    await run_step(world, instance_id)
    assert await last_operation(world, instance_id) == ("DELETE", "IDLE", None)
    await world.work_until_status(instance_id, InstanceStatus.DELETED)


async def test_heartbeat_that_comes_while_metrics_are_read_keeps_the_instance(
    world: World, ready: Ready, monkeypatch: pytest.MonkeyPatch
):
    instance_id = await idle_and_due(world, ready)
    await load(world, instance_id, 0)
    read = NovitaClient.metrics

    async def beaten_meanwhile(self: NovitaClient, *args: Any, **options: Any) -> InstanceMetrics:
        metrics = await read(self, *args, **options)
        await world.execute("UPDATE instance SET heartbeat_at = now() WHERE id = $1", instance_id)
        return metrics

    monkeypatch.setattr(NovitaClient, "metrics", beaten_meanwhile)
    calls = world.calls(METRICS)
    await run_step(world, instance_id)
    assert world.calls(METRICS) == calls + 1
    row = await world.instance(instance_id)
    assert (row["status"], row["lifetime_due_at"]) == ("READY", row["heartbeat_at"] + WINDOW + METRICS_LAG)
    assert await jobs(world, instance_id) == 1


async def test_busy_instance_is_read_again_a_window_after_its_last_busy_sample(world: World, ready: Ready):
    instance_id = await idle_and_due(world, ready)
    await load(world, instance_id, 0)
    await load(world, instance_id, 80, minutes=8)
    await run_step(world, instance_id)
    row = await world.instance(instance_id)
    assert row["status"] == "READY"
    assert timedelta(minutes=7) < row["lifetime_due_at"] - now() <= WINDOW + METRICS_LAG
    assert await jobs(world, instance_id) == 1


@pytest.mark.parametrize("how", ["missing", "unreadable"])
async def test_nothing_ends_without_metrics_and_the_second_window_is_told(world: World, ready: Ready, how: str):
    instance_id = await idle_and_due(world, ready)
    if how == "missing":
        await load(world, instance_id, None)
    else:
        world.faults(Fault(FaultKind.ERROR, (METRICS,), status=500))
    for _ in range(3):
        await run_step(world, instance_id)
        assert (await world.instance(instance_id))["status"] == "READY"
        await age(world, instance_id, WINDOW + METRICS_LAG)
    assert [type for type, _ in await lifetime_events(world, instance_id)] == ["lifetime.idle_unknown"]
    assert await world.value("SELECT count(*) FROM operation WHERE kind = 'STOP'") == 0


async def test_heartbeat_counts_as_busy(world: World, ready: Ready):
    instance_id = await idle_and_due(world, ready)
    await load(world, instance_id, 0)
    await world.execute("UPDATE instance SET heartbeat_at = now() WHERE id = $1", instance_id)
    calls = world.calls()
    await run_step(world, instance_id)
    assert world.calls() == calls
    row = await world.instance(instance_id)
    assert row["lifetime_due_at"] == row["heartbeat_at"] + WINDOW + METRICS_LAG


async def test_reading_waits_for_its_share_of_the_calls(world: World, ready: Ready):
    await world.configure(novita_rate_limit=4, metrics_share=0.5)
    await world.execute("DELETE FROM metrics_reading")
    first, second = [await idle_and_due(world, ready) for _ in range(1)] + [await _another(world, ready)]
    for each in (first, second):
        await load(world, each, 50)
        await run_step(world, each)
    rows = [await world.instance(each) for each in (first, second)]
    assert rows[0]["lifetime_due_at"] > now()  # read
    assert rows[1]["lifetime_due_at"] < now()  # waits for half a minute: two calls a minute
    again = await world.value("SELECT run_at FROM job WHERE unique_key = $1", f"lifetime {second}")
    assert again == await world.value("SELECT next_at FROM metrics_reading")
    assert timedelta(seconds=20) < again - now() <= timedelta(seconds=30.5)


async def test_readings_that_are_late_together_are_made_one_after_the_other(world: World, ready: Ready):
    await world.configure(novita_rate_limit=4, metrics_share=0.5)
    waiting = [await ready(name, idle=IDLE) for name in ("one", "two", "three")]
    late = {"read_at": (now() - timedelta(seconds=30)).isoformat()}
    for each in waiting:
        await age(world, each, GRACE + WINDOW + METRICS_LAG)
        await load(world, each, 50)
        add = "UPDATE instance SET lifetime_state = lifetime_state || $2::jsonb WHERE id = $1"
        await world.execute(add, each, json.dumps(late))
    await world.execute("DELETE FROM metrics_reading")
    await world.execute("INSERT INTO metrics_reading (only_row, next_at) VALUES (true, now() - interval '1 h')")
    calls = world.calls(METRICS)

    for each in waiting:
        await run_step(world, each)

    assert world.calls(METRICS) == calls + 1
    free_at = await world.value("SELECT next_at FROM metrics_reading")
    again = "SELECT run_at FROM job WHERE kind = 'END_LIFETIME' AND run_at < now() + interval '2 min' ORDER BY run_at"
    assert [row["run_at"] for row in await world.rows(again)] == [free_at, free_at + timedelta(seconds=30.5)]


async def _another(world: World, ready: Ready) -> UUID:
    instance_id = await ready("two", idle=IDLE)
    await age(world, instance_id, GRACE + WINDOW + METRICS_LAG)
    return instance_id


async def test_readings_go_on_after_the_databases_clock_was_set_back(world: World, ready: Ready):
    await world.configure(novita_rate_limit=4, metrics_share=0.5)
    instance_id = await idle_and_due(world, ready)
    await load(world, instance_id, 0)
    await world.execute("DELETE FROM metrics_reading")
    await world.execute("INSERT INTO metrics_reading (only_row, next_at) VALUES (true, now() + interval '1 d')")

    await run_step(world, instance_id)

    assert (await world.instance(instance_id))["status_reason"] == "IDLE"
    next_at = await world.value("SELECT next_at FROM metrics_reading")
    assert next_at - now() <= timedelta(seconds=30.5)


async def test_a_reading_that_waits_for_its_share_delays_no_other_end(world: World, ready: Ready):
    await world.configure(novita_rate_limit=4, metrics_share=0.5)
    used_up = "INSERT INTO metrics_reading (only_row, next_at) VALUES (true, now() + interval '10 min')"
    await world.execute("DELETE FROM metrics_reading")
    await world.execute(used_up)
    idle_at = GRACE + WINDOW + METRICS_LAG
    instance_id = await ready(idle=IDLE, max_duration=idle_at + 5 * MINUTE)
    run_at = "SELECT run_at FROM job WHERE unique_key = $1"

    # The end is announced before the idle end is due, and on time.
    row = await world.instance(instance_id)
    end = row["run_accepted_at"] + idle_at + 5 * MINUTE
    assert await world.value(run_at, f"lifetime {instance_id}") == end - 10 * MINUTE
    await age(world, instance_id, idle_at - MINUTE)
    await run_step(world, instance_id)
    assert [values["reason"] for _, values in await lifetime_events(world, instance_id)] == ["MAX_DURATION"]

    await age(world, instance_id, MINUTE)
    await run_step(world, instance_id)
    row = await world.instance(instance_id)
    end = row["run_accepted_at"] + idle_at + 5 * MINUTE
    assert row["lifetime_due_at"] < now()  # its metrics are read in ten minutes
    assert await world.value(run_at, f"lifetime {instance_id}") == end - MINUTE

    await age(world, instance_id, 5 * MINUTE)
    await run_step(world, instance_id)
    row = await world.instance(instance_id)
    assert (row["status"], row["status_reason"]) == ("STOPPING", "MAX_DURATION")
    assert world.calls(METRICS) == 0


async def test_metrics_are_not_read_twice_when_something_else_comes_meanwhile(
    world: World, ready: Ready, monkeypatch: pytest.MonkeyPatch
):
    instance_id = await idle_and_due(world, ready, max_duration=GRACE + WINDOW + METRICS_LAG + 11 * MINUTE)
    await load(world, instance_id, 0)
    read = NovitaClient.metrics

    async def slow(self: NovitaClient, *args: Any, **options: Any) -> InstanceMetrics:
        await age(world, instance_id, 2 * MINUTE - timedelta(seconds=10))  # the other end is announced now
        async with world.database.write() as session:
            assert await take_step(session, instance_id, retry=MINUTE, calls_per_minute=0) is None
        return await read(self, *args, **options)

    monkeypatch.setattr(NovitaClient, "metrics", slow)
    await run_step(world, instance_id)

    assert [values["reason"] for _, values in await lifetime_events(world, instance_id)] == ["MAX_DURATION", "IDLE"]
    assert await last_operation(world, instance_id) == ("STOP", "IDLE", None)


async def test_no_window_of_a_minute_has_more_readings_than_the_share(world: World, ready: Ready):
    """Twenty of these pauses are a minute and a second, by the database's clock, however late a reading is."""
    instance_id = await idle_and_due(world, ready)
    for late in ("0 s", "2 s", "1 h"):
        await world.execute("DELETE FROM metrics_reading")
        await world.execute("INSERT INTO metrics_reading SELECT true, now() - $1::text::interval", late)
        before = await world.value("SELECT clock_timestamp()")
        async with world.database.write() as session:
            instance = await transitions.lock(session, instance_id)
            assert await take_reading(session, instance, calls_per_minute=20) is None
            wait = await take_reading(session, instance, calls_per_minute=20)
        assert wait is not None
        assert wait - timedelta(seconds=3.05) > before
