"""What updateInstance, startInstance, extendLifetime and the project's policy refuse, and what callers get to know."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from schema import ids
from server.clock import now
from server.db.tables import Instance
from server.enums import InstanceStatus, LifetimeAction, Role
from server.instances import transitions
from server.instances.limits import arming, spec
from server.instances.limits.spec import Idle, Lifetime
from server.simulator.faults import Fault, FaultKind
from tests.schema.mutations.test_lifetimes import BEAT, CREATE, EXTEND, POLICY, START, UPDATE, WISH, ask, create, ready
from tests.server.lifetimes.conftest import age, run_step
from tests.server.lifetimes.test_idle import METRICS
from tests.support.api import Api
from tests.support.api_server import serving
from tests.support.lifecycle import STOP
from tests.support.receiver import Receiver
from tests.support.waiting import until

HOUR = timedelta(hours=1)


def shown(instance: Instance) -> str:
    return ids.format_id(ids.INSTANCE, instance.id)


def problems(payload: dict[str, Any]) -> list[tuple[str, str]]:
    return [(error["code"], ".".join(error["path"])) for error in payload["errors"]]


async def put(api: Api, status: InstanceStatus, **fields: Any) -> Instance:
    return await api.world.put(status, project_id=api.caller.project_id, **{"novita_id": "m-1", **fields})


@pytest.mark.parametrize(
    ("limits", "path"),
    [
        ({"deadline": 299}, "deadline"),
        ({"heartbeat": 7 * 86400 + 1}, "heartbeat"),
        ({"deleteAfterStopped": 90 * 86400 + 1}, "deleteAfterStopped"),
        ({"idle": {"gpuBelowPercent": 101}}, "idle.gpuBelowPercent"),
        ({"idle": {"window": 86401}}, "idle.window"),
        ({"idle": {"action": "OTHER"}}, "idle.action"),
        ({"schedule": {"stop": ["0 18 * * *", "at six"]}}, "schedule.stop.1"),
        ({"schedule": {"stop": ["0 18 * * *"] * 11}}, "schedule.stop"),
        ({"schedule": {"timezone": "", "stop": ["0 18 * * *"]}}, "schedule.timezone"),
    ],
)
async def test_update_refuses_invalid_limits_with_their_path(api: Api, limits: dict[str, Any], path: str):
    instance = await put(api, InstanceStatus.READY)
    if "deadline" in limits:
        limits = {"deadline": (now() + timedelta(seconds=limits["deadline"])).isoformat()}
    before = await api.world.counts()
    payload = await ask(api, UPDATE, id=shown(instance), lifetime={"set": limits})
    assert problems(payload) == [("INVALID_LIFETIME", f"input.lifetime.set.{path}")]
    assert await api.world.counts() == before


async def test_limits_at_the_ends_of_their_ranges_are_accepted(api: Api):
    instance = await put(api, InstanceStatus.READY, run_accepted_at=now())
    day = 86400
    for limits in (
        {"maxDuration": 300, "heartbeat": 60, "deleteAfterStopped": 600, "warnBefore": 0},
        {"maxDuration": 90 * day, "heartbeat": 7 * day, "deleteAfterStopped": 90 * day, "warnBefore": day},
        {"idle": {"gpuBelowPercent": 1, "window": 300, "grace": 0}},
        {"idle": {"gpuBelowPercent": 100, "window": day, "grace": day}},
        {"schedule": {"start": ["0 8 * * *"] * 10, "stop": ["0 18 * * *"] * 10}},
        {"deadline": (now() + timedelta(seconds=330)).isoformat()},
    ):
        payload = await ask(api, UPDATE, id=shown(instance), lifetime={"set": limits})
        assert payload["errors"] == []
        lifetime = payload["instance"]["lifetime"]
        if "deadline" not in limits:
            assert (
                limits.items()
                <= {
                    **lifetime,
                    "idle": {name: value for name, value in (lifetime["idle"] or {}).items() if name != "action"},
                    "schedule": {
                        name: each for name, each in (lifetime["schedule"] or {}).items() if name != "timezone"
                    },
                }.items()
            )
        assert lifetime["next"] is not None


async def test_update_sets_limits_at_once_and_must_say_what(api: Api):
    instance = await put(api, InstanceStatus.READY, run_accepted_at=now(), lifetime={"heartbeat": "PT1H"})
    payload = await ask(api, UPDATE, id=shown(instance), lifetime={"set": {"maxDuration": 3600}})
    assert payload["errors"] == []
    lifetime = payload["instance"]["lifetime"]
    assert (lifetime["maxDuration"], lifetime["heartbeat"], lifetime["next"]["reason"]) == (3600, None, "MAX_DURATION")
    job = await api.world.one("SELECT run_at, unique_key FROM job WHERE kind = 'END_LIFETIME'")
    assert job["unique_key"] == f"lifetime {instance.id}"
    assert timedelta(0) < datetime.fromisoformat(lifetime["next"]["at"]) - job["run_at"] <= timedelta(minutes=10)

    kept = await ask(api, UPDATE, id=shown(instance), lifetime={"remove": False})
    assert problems(kept) == [("INVALID_LIFETIME", "input.lifetime.remove")]
    for given in ({}, {"set": {"maxDuration": 3600}, "remove": True}):
        answer = await api.ask(UPDATE, input={"id": shown(instance), "lifetime": given})
        assert "errors" in answer.body  # one of two, by the type of the input


async def test_idle_needs_a_gpu_also_at_a_start_and_an_update(api: Api):
    idle = {"idle": {}}
    for status, document, lifetime, path in (
        (InstanceStatus.EXITED, START, idle, "input.lifetime.idle"),
        (InstanceStatus.READY, UPDATE, {"set": idle}, "input.lifetime.set.idle"),
    ):
        instance = await put(api, status, gpu_count=0)
        before = await api.world.counts()
        payload = await ask(api, document, id=shown(instance), lifetime=lifetime)
        assert problems(payload) == [("INVALID_LIFETIME", path)]
        assert await api.world.counts() == before
        await api.world.execute("UPDATE instance SET novita_id = NULL WHERE id = $1", instance.id)


async def test_extension_is_refused_with_the_path_of_what_is_wrong(api: Api):
    instance = await put(
        api, InstanceStatus.READY, run_accepted_at=now(), lifetime=Lifetime(max_duration=HOUR).to_json()
    )
    later, past = [(now() + wait).isoformat() for wait in (HOUR, -HOUR)]
    for given, path in (
        ({}, "input.by"),
        ({"by": 60, "until": later}, "input.by"),
        ({"by": 0}, "input.by"),
        ({"until": past}, "input.until"),
    ):
        assert problems(await ask(api, EXTEND, id=shown(instance), **given)) == [("INVALID_LIFETIME", path)]
    assert problems(await ask(api, EXTEND, id="inst_0", by=60)) == [("INSTANCE_NOT_FOUND", "input.id")]
    # A scheduled stop has no end that moves.
    schedule = {"schedule": {"stop": ["0 18 * * *"]}}
    assert (await ask(api, UPDATE, id=shown(instance), lifetime={"set": schedule}))["errors"] == []
    assert problems(await ask(api, EXTEND, id=shown(instance), by=60)) == [("INVALID_LIFETIME", "input.id")]


async def test_what_comes_after_the_end_is_refused_with_its_path(api: Api):
    stopped = await put(api, InstanceStatus.EXITED, lifetime=Lifetime(deadline=now() - HOUR).to_json())
    assert problems(await ask(api, START, id=shown(stopped))) == [("LIFETIME_OVER", "input.lifetime")]
    assert (await ask(api, START, id=shown(stopped), lifetime={"maxDuration": 600}, validateOnly=True))["errors"] == []
    assert (await ask(api, EXTEND, id=shown(stopped), by=3600))["errors"] == []
    assert (await ask(api, START, id=shown(stopped)))["errors"] == []
    await api.world.execute("UPDATE instance SET novita_id = NULL WHERE id = $1", stopped.id)

    limits = Lifetime(max_duration=HOUR).to_json()
    ending = await put(api, InstanceStatus.READY, run_accepted_at=now() - HOUR, lifetime=limits, lifetime_due_at=now())
    async with api.world.database.write() as session:
        await arming.keep(session, await transitions.lock(session, ending.id))
    await run_step(api.world, ending.id)
    assert problems(await ask(api, EXTEND, id=shown(ending), by=3600)) == [("LIFETIME_OVER", "input.id")]
    assert (await ask(api, BEAT, id=shown(ending)))["errors"] == []  # says no more than that the caller is there
    deleting = await put(api, InstanceStatus.DELETING, name="deleting", novita_id="m-2", lifetime=limits)
    assert problems(await ask(api, EXTEND, id=shown(deleting), by=3600)) == [("LIFETIME_OVER", "input.id")]


async def test_policy_binds_starts_and_updates_and_only_an_admin_sets_it(api: Api):
    admin, _ = await api.world.new_token(role=Role.ADMIN)
    await ask(api, POLICY, token=admin, required=True, maxDurationAtMost=7200)
    stopped = await put(api, InstanceStatus.EXITED)
    assert problems(await ask(api, START, id=shown(stopped))) == [("LIFETIME_REQUIRED", "input.lifetime")]
    above = await ask(api, START, id=shown(stopped), lifetime={"maxDuration": 7201})
    assert problems(above) == [("LIFETIME_ABOVE_POLICY", "input.lifetime.maxDuration")]
    assert above["errors"][0]["atMost"] == 7200
    later = (now() + 3 * HOUR).isoformat()
    above = await ask(api, START, id=shown(stopped), lifetime={"deadline": later})
    assert problems(above) == [("LIFETIME_ABOVE_POLICY", "input.lifetime.deadline")]
    assert await api.world.value("SELECT count(*) FROM operation") == 0
    accepted = await ask(api, START, id=shown(stopped), lifetime={"maxDuration": 7200})
    assert (accepted["errors"], accepted["instance"]["lifetime"]["maxDuration"]) == ([], 7200)
    await api.world.execute("UPDATE instance SET novita_id = NULL WHERE id = $1", stopped.id)

    running = await put(api, InstanceStatus.READY, run_accepted_at=now())
    for limits, code in (({"heartbeat": 600}, "LIFETIME_REQUIRED"), ({"maxDuration": 7201}, "LIFETIME_ABOVE_POLICY")):
        refused = await ask(api, UPDATE, id=shown(running), lifetime={"set": limits})
        assert refused["errors"][0]["code"] == code
    answer = await api.ask(POLICY, input={"required": False})
    assert answer.error["code"] == "FORBIDDEN"
    rules = "{ viewer { project { lifetimePolicy { required maxDurationAtMost } } } }"
    read = (await api.ask(rules)).data["viewer"]["project"]["lifetimePolicy"]
    assert read == {"required": True, "maxDurationAtMost": 7200}


@pytest.mark.parametrize(
    ("rules", "path"),
    [
        ({"maxDurationAtMost": 299}, "maxDurationAtMost"),
        ({"defaultMaxDuration": 90 * 86400 + 1}, "defaultMaxDuration"),
        ({"maxDurationAtMost": 600, "defaultMaxDuration": 601}, "defaultMaxDuration"),
        ({"defaultIdle": {"window": 1}}, "defaultIdle.window"),
    ],
)
async def test_policy_itself_is_checked(api: Api, rules: dict[str, Any], path: str):
    admin, _ = await api.world.new_token(role=Role.ADMIN)
    assert problems(await ask(api, POLICY, token=admin, **rules)) == [("INVALID_LIFETIME", f"input.{path}")]
    assert await api.world.value("SELECT count(*) FROM lifetime_policy") == 0


async def test_projects_default_wins_over_the_servers_and_idle_only_with_a_gpu(api: Api):
    admin, _ = await api.world.new_token(role=Role.ADMIN)
    async with serving(api.server.runtime.database_url, api.server.simulator, default_max_duration=2 * HOUR) as server:
        other = replace(api, server=server)
        for rules, expected in (({}, 7200), ({"defaultMaxDuration": 600, "defaultIdle": {"window": 300}}, 600)):
            await ask(other, POLICY, token=admin, **rules)
            instance = await put(other, InstanceStatus.EXITED, gpu_count=0)
            payload = await ask(other, START, id=shown(instance))
            lifetime = payload["instance"]["lifetime"]
            assert (payload["errors"], lifetime["maxDuration"], lifetime["idle"]) == ([], expected, None)
            created = (await ask(other, CREATE, name=f"new-{expected}", **WISH))["instance"]["lifetime"]
            idle = rules.get("defaultIdle", {}).get("window")
            assert (created["maxDuration"], created["idle"] and created["idle"]["window"]) == (expected, idle)
            await api.world.execute("UPDATE instance SET novita_id = NULL WHERE id = $1", instance.id)


async def test_started_only_by_its_schedule_is_no_end_in_pages(api: Api):
    await put(
        api,
        InstanceStatus.EXITED,
        name="sleeper",
        lifetime_due_at=now(),
        lifetime_action="START",
        lifetime_reason="SCHEDULE",
        lifetime={"schedule": {"start": ["* * * * *"]}},
    )
    await api.world.put(project_id=api.caller.project_id, name="ends", lifetime_due_at=now() + HOUR,
                        lifetime_action="STOP", lifetime_reason="DEADLINE", lifetime={"heartbeat": "PT1H"})  # fmt: skip
    names = (await api.ask("{ instances(orderBy: {field: ENDS_AT}) { nodes { name } } }")).data["instances"]["nodes"]
    assert [each["name"] for each in names] == ["ends", "sleeper"]
    filtered = "query ($t: DateTime!) { instances(filter: {endsBefore: $t}) { nodes { name } } }"
    found = (await api.ask(filtered, t=(now() + 2 * HOUR).isoformat())).data["instances"]["nodes"]
    assert found == [{"name": "ends"}]


async def test_events_of_a_lifetime_have_their_values_in_the_api_and_in_webhooks(api: Api, receiver: Receiver):
    created = await ask(api, CREATE, name="told", **WISH, lifetime={"maxDuration": 3600}, webhookUrl=receiver.url)
    assert created["errors"] == []
    id = created["instance"]["id"]
    row_id = ids.parse(ids.INSTANCE, id)
    await api.world.work_until_status(row_id, InstanceStatus.READY)
    assert (await ask(api, EXTEND, id=id, by=60))["errors"] == []
    for earlier in (52 * 60, 9 * 60):
        await age(api.world, row_id, timedelta(seconds=earlier))
        await run_step(api.world, row_id)
    await api.world.work_until_status(row_id, InstanceStatus.EXITED)
    expected = ["lifetime.extended", "lifetime.ending", "lifetime.ended"]

    async def arrived() -> bool:
        await api.world.work_once()
        return [type for type in receiver.types if type.startswith("lifetime.")] == expected

    await until(arrived)
    told = {each.type: each.message["data"]["data"] for each in receiver.got}
    events = "query ($id: ID!) { events(filter: {ids: [$id]}, first: 100) { nodes { type data { key value } } } }"

    async def are_numbered() -> list[dict[str, Any]]:
        nodes = (await api.ask(events, id=id)).data["events"]["nodes"]
        return nodes if any(each["type"] == "lifetime.ended" for each in nodes) else []

    await until(are_numbered)
    read = {
        each["type"]: {pair["key"]: pair["value"] for pair in each["data"]}
        for each in await are_numbered()
        if each["type"].startswith("lifetime.")
    }
    assert list(read) == expected
    assert {type: set(values) for type, values in read.items()} == {
        "lifetime.extended": {"at"},
        "lifetime.ending": {"at", "action", "reason"},
        "lifetime.ended": {"at", "action", "reason", "outcome"},
    }
    assert (read["lifetime.ended"]["action"], read["lifetime.ended"]["reason"]) == ("STOP", "MAX_DURATION")
    assert {type: told[type] for type in expected} == read


@pytest.mark.parametrize(
    ("type", "limits", "route"),
    [
        ("lifetime.overdue", {"maxDuration": 3600}, STOP),
        ("lifetime.idle_unknown", {"idle": {"window": 3600, "grace": 0}}, METRICS),
    ],
)
async def test_what_needs_attention_is_sent_to_the_webhook(
    api: Api, receiver: Receiver, type: str, limits: dict[str, Any], route: str
):
    created = await ask(api, CREATE, name="told", **WISH, lifetime=limits, webhookUrl=receiver.url)
    row_id = ids.parse(ids.INSTANCE, created["instance"]["id"])
    await api.world.work_until_status(row_id, InstanceStatus.READY)
    api.world.faults(Fault(FaultKind.ERROR, (route,), status=400, reason="INVALID", message="no"))
    for _ in range(2):
        await age(api.world, row_id, HOUR + timedelta(minutes=2))
        await run_step(api.world, row_id)

        async def is_over() -> bool:
            await api.world.work_once()
            return await api.world.value("SELECT count(*) FROM operation WHERE finished_at IS NULL") == 0

        await until(is_over)

    async def arrived() -> bool:
        await api.world.work_once()
        return receiver.types.count(type) == 1

    await until(arrived)
    (message,) = [each.message["data"]["data"] for each in receiver.got if each.type == type]
    assert set(message) == ({"at", "action", "reason"} if type == "lifetime.overdue" else {"since"})


async def test_reading_shows_until_when_metrics_are_known(api: Api):
    idle = Idle(window=timedelta(minutes=10), grace=timedelta(0), action=LifetimeAction.STOP)
    payload = await create(api, idle={"window": 600, "grace": 0})
    id = payload["instance"]["id"]
    row_id = ids.parse(ids.INSTANCE, id)
    await api.world.work_until_status(row_id, InstanceStatus.READY)
    machine = (await api.world.instance(row_id))["novita_id"]
    at = now().timestamp()
    api.world.simulator.world.loads[machine] = [(at - 3600, at, 0.0), (at - 3600, at - 300, 90.0)]
    await age(api.world, row_id, idle.window + timedelta(minutes=2))
    await run_step(api.world, row_id)
    document = "query ($id: ID!) { instance(id: $id) { lifetime { idleSince idleKnownUntil next { reason } } } }"
    lifetime = (await api.ask(document, id=id)).data["instance"]["lifetime"]
    since, known = [datetime.fromisoformat(lifetime[name]) for name in ("idleSince", "idleKnownUntil")]
    assert timedelta(minutes=4) < datetime.now(UTC) - since < timedelta(minutes=8)
    assert timedelta(seconds=80) < datetime.now(UTC) - known < timedelta(minutes=3)
    assert lifetime["next"]["reason"] == "IDLE"


async def test_heartbeat_of_a_stopped_instance_has_no_next_time(api: Api):
    stopped = await put(api, InstanceStatus.EXITED, lifetime={"heartbeat": "PT1H"})
    assert await ask(api, BEAT, id=shown(stopped)) == {"nextAt": None, "errors": []}
    assert await ready(api, "beaten", heartbeat=600)


@pytest.mark.parametrize("limits", [{"idle": {"window": 600, "grace": 0}}, {"heartbeat": 690}])
async def test_next_action_is_shown_as_the_last_heartbeat_has_moved_it(api: Api, limits: dict[str, Any]):
    id = await ready(api, **limits)
    await age(api.world, ids.parse(ids.INSTANCE, id), timedelta(minutes=5))
    assert (await ask(api, BEAT, id=id))["errors"] == []
    document = "query ($id: ID!) { instance(id: $id) { lifetime { lastHeartbeatAt next { at } } } }"
    lifetime = (await api.ask(document, id=id)).data["instance"]["lifetime"]
    beaten_at, at = [datetime.fromisoformat(each) for each in (lifetime["lastHeartbeatAt"], lifetime["next"]["at"])]
    assert at - beaten_at == timedelta(seconds=690)  # with the lag of metrics
    row = await api.world.instance(ids.parse(ids.INSTANCE, id))
    assert row["lifetime_due_at"] < at - timedelta(minutes=4)  # a heartbeat does not write it


async def test_request_sent_again_when_its_deadline_has_come_near_is_answered_as_before(
    api: Api, monkeypatch: pytest.MonkeyPatch
):
    stopped = await put(api, InstanceStatus.EXITED)
    running = await put(api, InstanceStatus.READY, name="other", novita_id="m-2")
    deadline = (now() + timedelta(seconds=330)).isoformat()
    requests: list[tuple[str, dict[str, Any]]] = [
        (CREATE, {"name": "new", **WISH, "lifetime": {"deadline": deadline}, "idempotencyKey": "create"}),
        (START, {"id": shown(stopped), "lifetime": {"deadline": deadline}, "idempotencyKey": "start"}),
        (UPDATE, {"id": shown(running), "lifetime": {"set": {"deadline": deadline}}, "idempotencyKey": "update"}),
    ]
    first = [await ask(api, document, **given) for document, given in requests]
    assert [problems(payload) for payload in first] == [[], [], []]
    before = await api.world.counts()

    monkeypatch.setattr(spec, "SHORTEST", timedelta(hours=1))  # as if an hour had passed
    again = [await ask(api, document, **given) for document, given in requests]
    assert [problems(payload) for payload in again] == [[], [], []]
    assert await api.world.counts() == before
    fresh = await ask(api, CREATE, name="late", **WISH, lifetime={"deadline": deadline})
    assert problems(fresh) == [("INVALID_LIFETIME", "input.lifetime.deadline")]
