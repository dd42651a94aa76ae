"""An end that the provider refuses is repeated, and how long it is overdue is shown until it is over."""

import re
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import orjson
from ruamel.yaml import YAML
from starlette.requests import Request

from schema import ids
from server.clock import now
from server.enums import InstanceStatus, LifetimeAction
from server.http.metrics import MetricsEndpoint
from server.instances.commands.lifecycle import Target
from server.lifetimes.extend import Extension, extend_lifetime
from server.lifetimes.heartbeat import Heartbeats
from server.simulator.faults import Fault, FaultKind
from tests.server.lifetimes.conftest import Ready, age, last_operation, lifetime_events, run_step
from tests.support.api import Api
from tests.support.lifecycle import STOP
from tests.support.waiting import until
from tests.support.world import World

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
DELETE = "POST /gpu/instance/delete"
ROOT = Path(__file__).parents[3]


def refuse(world: World, route: str) -> None:
    world.faults(Fault(FaultKind.ERROR, (route,), status=400, reason="INVALID", message="no"))


async def end_fails(world: World, instance_id: UUID) -> None:
    """The end is due, and its stop is refused."""
    await run_step(world, instance_id)
    operation = await world.value("SELECT id FROM operation WHERE kind = 'STOP' ORDER BY created_at DESC LIMIT 1")
    assert (await world.work_until_over(operation))["status"] == "FAILED"


async def overdue(api: Api) -> float:
    """What a scrape shows, of an endpoint that has shown nothing before."""
    response = await MetricsEndpoint(api.server.runtime).answer(Request({"type": "http", "headers": []}))
    (shown,) = re.findall(r"^pilotlight_lifetimes_overdue_seconds (\S+)$", bytes(response.body).decode(), re.MULTILINE)
    return float(shown)


async def test_gauge_and_alert_show_an_end_that_fails_until_it_is_over(api: Api):
    world = api.world
    created = await api.create(lifetime={"maxDuration": 3600})
    instance_id = ids.parse(ids.INSTANCE, created["instance"]["id"])
    await world.work_until_status(instance_id, InstanceStatus.READY)
    assert await overdue(api) == 0
    refuse(world, STOP)
    await age(world, instance_id, HOUR)
    await end_fails(world, instance_id)
    await age(world, instance_id, 16 * MINUTE)

    shown = await overdue(api)
    groups = YAML(typ="safe").load(ROOT / "deploy" / "alerts.yml")["groups"]
    (rule,) = [each for group in groups for each in group["rules"] if each["alert"] == "PilotlightLifetimesOverdue"]
    threshold = re.fullmatch(r"max\(pilotlight_lifetimes_overdue_seconds\) > (\d+)", rule["expr"])
    assert threshold is not None
    assert 16 * 60 <= shown < 20 * 60
    assert shown > float(threshold[1]) > 2 * world.settings.lifetime_retry.total_seconds()

    world.faults()
    await run_step(world, instance_id)
    await world.work_until_status(instance_id, InstanceStatus.EXITED)
    assert await overdue(api) == 0
    assert await world.value("SELECT count(*) FROM operation WHERE kind = 'DELETE'") == 0  # a stop stays one


async def test_gauge_shows_an_idle_end_only_once_it_has_failed(api: Api):
    world = api.world
    created = await api.create(lifetime={"idle": {"window": 600, "grace": 0}})
    instance_id = ids.parse(ids.INSTANCE, created["instance"]["id"])
    await world.work_until_status(instance_id, InstanceStatus.READY)
    await age(world, instance_id, 20 * MINUTE)
    assert await overdue(api) == 0  # whether it is idle is not known yet
    machine = (await world.instance(instance_id))["novita_id"]
    world.simulator.world.loads[machine] = [(now().timestamp() - 3600, now().timestamp(), 0.0)]
    refuse(world, STOP)
    await end_fails(world, instance_id)
    await age(world, instance_id, 16 * MINUTE)

    assert await overdue(api) >= 16 * 60


async def test_overdue_is_told_again_after_an_hour(world: World, ready: Ready):
    instance_id = await ready(max_duration=HOUR)
    refuse(world, STOP)
    await age(world, instance_id, HOUR)
    for _ in range(4):
        await end_fails(world, instance_id)
        await age(world, instance_id, 40 * MINUTE)
    told = await lifetime_events(world, instance_id)
    assert [type for type, _ in told] == ["lifetime.ended", "lifetime.overdue", "lifetime.overdue"]
    assert len({tuple(values.items()) for _, values in told[1:]}) == 2  # the age of the rows moves their `at`
    assert {(values["action"], values["reason"]) for _, values in told} == {("STOP", "MAX_DURATION")}


async def test_the_repetition_of_an_end_is_not_announced(world: World, ready: Ready):
    instance_id = await ready(max_duration=HOUR)
    await age(world, instance_id, HOUR - MINUTE)
    await run_step(world, instance_id)
    refuse(world, STOP)
    await age(world, instance_id, MINUTE)
    await end_fails(world, instance_id)

    row = await world.instance(instance_id)
    again = "SELECT run_at FROM job WHERE unique_key = $1"
    assert await world.value(again, f"lifetime {instance_id}") == row["lifetime_due_at"] > now()
    await run_step(world, instance_id)  # as after a restart: nothing is due yet
    told = [type for type, _ in await lifetime_events(world, instance_id)]
    assert told == ["lifetime.ending", "lifetime.ended"]


async def test_delete_that_is_refused_is_repeated_until_the_machine_is_gone(world: World, ready: Ready):
    instance_id = await ready(max_duration=HOUR, on_end=LifetimeAction.DELETE)
    refuse(world, DELETE)
    await age(world, instance_id, HOUR)
    await run_step(world, instance_id)
    asked = world.calls(DELETE)
    for _ in range(3):
        await world.hurry()
        await world.work_once()
    assert world.calls(DELETE) >= asked + 2
    assert (await world.instance(instance_id))["status"] == "DELETING"
    assert len(world.machines()) == 1

    world.faults()
    await world.work_until_status(instance_id, InstanceStatus.DELETED)
    assert await world.value("SELECT count(*) FROM operation WHERE kind = 'DELETE'") == 1
    assert world.machines() == []


async def test_machine_that_is_not_billed_any_more_ends_the_repetition(world: World, ready: Ready):
    instance_id = await ready(max_duration=HOUR)
    refuse(world, STOP)
    await age(world, instance_id, HOUR)
    await end_fails(world, instance_id)
    world.faults()
    novita_id = (await world.instance(instance_id))["novita_id"]
    await world.novita.stop_instance(novita_id)  # by the user, in the provider's console
    await until(lambda: world.machines()[0].status == "exited")
    await world.reader.sync(by=world.caller)
    row = await world.instance(instance_id)
    assert (row["status"], row["lifetime_due_at"]) == ("EXITED", None)
    assert await world.value("SELECT count(*) FROM operation WHERE kind = 'STOP'") == 1


async def test_heartbeat_after_a_failed_end_takes_it_back(world: World, ready: Ready):
    instance_id = await ready(heartbeat=HOUR)
    refuse(world, STOP)
    await age(world, instance_id, HOUR)
    await end_fails(world, instance_id)
    await Heartbeats(world.database).beat(instance_id, by=world.caller)
    await run_step(world, instance_id)  # at the time at which the end would be repeated
    row = await world.instance(instance_id)
    assert row["lifetime_due_at"] == row["heartbeat_at"] + HOUR
    assert not {"due", "retry_at"} & set(orjson.loads(row["lifetime_state"]))

    # So the next end is a new one, with an event of its own.
    world.faults()
    await age(world, instance_id, HOUR)
    await run_step(world, instance_id)
    assert await last_operation(world, instance_id) == ("STOP", "LIFETIME", None)
    told = [type for type, _ in await lifetime_events(world, instance_id)]
    assert [type for type in told if type != "lifetime.ending"] == ["lifetime.ended", "lifetime.ended"]


async def test_extension_after_a_failed_end_takes_it_back(world: World, ready: Ready):
    instance_id = await ready(max_duration=HOUR)
    refuse(world, STOP)
    await age(world, instance_id, HOUR)
    await end_fails(world, instance_id)
    extended = (await extend_lifetime(world.database, Target(instance_id), Extension(by=HOUR), by=world.caller)).row
    assert extended is not None
    assert extended.lifetime_due_at is not None
    assert extended.lifetime_due_at > now() + 59 * MINUTE
    assert not {"due", "retry_at"} & set(extended.lifetime_state or {})
