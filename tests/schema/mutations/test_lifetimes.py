"""Lifetimes through the API: every field is read back, and every refusal has its code and path."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from schema import ids
from server.enums import InstanceStatus, Role
from tests.support.api import Api

LIFETIME = """
    lifetime { maxDuration deadline heartbeat onEnd deleteAfterStopped warnBefore lastHeartbeatAt idleSince
      idleKnownUntil idle { gpuBelowPercent window grace action } schedule { timezone start stop }
      next { at action reason } }
"""
ERRORS = "errors { __typename code path ... on LifetimeAbovePolicy { atMost } }"


def mutation(name: str, input: str) -> str:
    return (
        f"mutation ($input: {input}!) {{ {name}(input: $input) {{ instance {{ id version {LIFETIME} }} {ERRORS} }} }}"
    )


CREATE = mutation("createInstance", "CreateInstanceInput")
START = mutation("startInstance", "StartInstanceInput")
UPDATE = mutation("updateInstance", "UpdateInstanceInput")
EXTEND = mutation("extendLifetime", "ExtendLifetimeInput")
BEAT = f"mutation ($input: HeartbeatInput!) {{ heartbeat(input: $input) {{ nextAt {ERRORS} }} }}"
POLICY = f"""
    mutation ($input: SetLifetimePolicyInput!) {{
      setLifetimePolicy(input: $input) {{
        policy {{ required maxDurationAtMost defaultMaxDuration defaultIdle {{ window }} }} {ERRORS}
      }}
    }}
"""
WISH = {"productName": "RTX 4090 24GB", "image": "nginx"}


async def ask(api: Api, document: str, *, token: str | None = None, **given: Any) -> dict[str, Any]:
    (payload,) = (await api.ask(document, token=token, input=given)).data.values()
    return payload


async def create(api: Api, name: str = "one", **limits: Any) -> dict[str, Any]:
    return await ask(api, CREATE, name=name, **WISH, lifetime=limits)


async def ready(api: Api, name: str = "one", **limits: Any) -> str:
    payload = await create(api, name, **limits)
    assert payload["errors"] == []
    instance_id = payload["instance"]["id"]
    await api.world.work_until_status(ids.parse(ids.INSTANCE, instance_id), InstanceStatus.READY)
    return instance_id


async def test_every_limit_is_read_back_with_its_next_action(api: Api):
    deadline = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    given = {
        "maxDuration": 3600,
        "deadline": deadline,
        "heartbeat": 600,
        "onEnd": "DELETE",
        "idle": {"gpuBelowPercent": 10, "window": 600, "grace": 60, "action": "DELETE"},
        "deleteAfterStopped": 7200,
        "schedule": {"timezone": "Europe/Berlin", "start": ["0 8 * * 1-5"], "stop": ["0 18 * * *"]},
        "warnBefore": 120,
    }
    payload = await create(api, **given)
    assert payload["errors"] == []
    shown = payload["instance"]["lifetime"]
    assert {name: shown[name] for name in given if name != "deadline"} == {
        name: value for name, value in given.items() if name != "deadline"
    }
    assert datetime.fromisoformat(shown["deadline"]) == datetime.fromisoformat(deadline)
    assert shown["next"]["reason"] in ("DEADLINE", "SCHEDULE")  # the provider has not accepted it yet

    instance_id = payload["instance"]["id"]
    await api.world.work_until_status(ids.parse(ids.INSTANCE, instance_id), InstanceStatus.READY)
    read = (await api.ask(f"query ($id: ID!) {{ instance(id: $id) {{ {LIFETIME} }} }}", id=instance_id)).data[
        "instance"
    ]
    assert (read["lifetime"]["next"]["action"], read["lifetime"]["next"]["reason"]) == ("DELETE", "HEARTBEAT")
    payload = await ask(api, UPDATE, id=instance_id, lifetime={"remove": True})
    assert (payload["errors"], payload["instance"]["lifetime"]) == ([], None)


async def test_start_replaces_the_stored_limits(api: Api):
    instance_id = await ready(api, maxDuration=3600)
    row_id = ids.parse(ids.INSTANCE, instance_id)
    stop = "mutation ($id: ID!) { stopInstance(input: {id: $id}) { errors { code } } }"
    await api.ask(stop, id=instance_id)
    await api.world.work_until_status(row_id, InstanceStatus.EXITED)
    payload = await ask(api, START, id=instance_id, lifetime={"heartbeat": 900})
    assert (payload["errors"], payload["instance"]["lifetime"]["maxDuration"]) == ([], None)
    await api.world.work_until_status(row_id, InstanceStatus.READY)
    assert (await api.world.instance(row_id))["lifetime_reason"] == "HEARTBEAT"


@pytest.mark.parametrize(
    ("limits", "path"),
    [
        ({}, []),
        ({"maxDuration": 299}, ["maxDuration"]),
        ({"maxDuration": 90 * 86400 + 1}, ["maxDuration"]),
        ({"deadline": "2026-01-01T00:00:00Z"}, ["deadline"]),
        ({"heartbeat": 59}, ["heartbeat"]),
        ({"deleteAfterStopped": 599}, ["deleteAfterStopped"]),
        ({"maxDuration": 300, "warnBefore": 86401}, ["warnBefore"]),
        ({"maxDuration": 300, "onEnd": "OTHER"}, ["onEnd"]),
        ({"idle": {"gpuBelowPercent": 0}}, ["idle", "gpuBelowPercent"]),
        ({"idle": {"window": 299}}, ["idle", "window"]),
        ({"idle": {"grace": 86401}}, ["idle", "grace"]),
        ({"schedule": {"timezone": "Mars/One", "stop": ["0 18 * * *"]}}, ["schedule", "timezone"]),
        ({"schedule": {}}, ["schedule"]),
        ({"schedule": {"stop": ["0 0 30 2 *"]}}, ["schedule", "stop", "0"]),
        ({"schedule": {"start": ["0 8 * * *"] * 11}}, ["schedule", "start"]),
    ],
)
async def test_invalid_limits_are_refused_with_their_path(api: Api, limits: dict[str, Any], path: list[str]):
    before = await api.world.counts()
    payload = await create(api, **limits)
    assert [(error["code"], error["path"]) for error in payload["errors"]] == [
        ("INVALID_LIFETIME", ["input", "lifetime", *path])
    ]
    assert await api.world.counts() == before


async def test_idle_needs_a_gpu(api: Api):
    payload = await ask(api, CREATE, name="cpu", kind="CPU", productName="x", image="nginx", lifetime={"idle": {}})
    assert payload["errors"][0]["code"] == "INVALID_LIFETIME"
    assert payload["errors"][0]["path"] == ["input", "lifetime", "idle"]


async def test_extend_and_heartbeat(api: Api):
    instance_id = await ready(api, maxDuration=3600, heartbeat=600)
    payload = await ask(api, EXTEND, id=instance_id, by=3600)
    assert payload["errors"] == []
    assert payload["instance"]["lifetime"]["lastHeartbeatAt"] is not None
    payload = await ask(api, BEAT, id=instance_id)
    assert payload["errors"] == []
    wait = datetime.fromisoformat(payload["nextAt"]) - datetime.now(UTC)
    assert timedelta(seconds=500) < wait <= timedelta(seconds=600)
    dry = await ask(api, EXTEND, id=instance_id, by=3600, validateOnly=True)
    assert dry == {"instance": None, "errors": []}
    assert (await ask(api, BEAT, id="inst_0"))["errors"][0]["code"] == "INSTANCE_NOT_FOUND"
    refused = await ask(api, EXTEND, id=instance_id)
    assert refused["errors"][0]["code"] == "INVALID_LIFETIME"
    conflict = await ask(api, EXTEND, id=instance_id, by=60, expectedVersion=1)
    assert conflict["errors"][0]["code"] == "VERSION_CONFLICT"


async def test_policy_requires_bounds_and_gives_defaults(api: Api):
    admin, _ = await api.world.new_token(role=Role.ADMIN)
    rules = {"required": True, "maxDurationAtMost": 7200}
    payload = await ask(api, POLICY, token=admin, **rules)
    assert payload["policy"] == {**rules, "defaultMaxDuration": None, "defaultIdle": None}
    codes = [
        (await ask(api, CREATE, name="none", **WISH))["errors"][0]["code"],
        (await create(api, heartbeat=600))["errors"][0]["code"],
    ]
    assert codes == ["LIFETIME_REQUIRED", "LIFETIME_REQUIRED"]
    above = (await create(api, maxDuration=7201))["errors"][0]
    assert (above["__typename"], above["code"], above["atMost"]) == (
        "LifetimeAbovePolicy",
        "LIFETIME_ABOVE_POLICY",
        7200,
    )
    later = (datetime.now(UTC) + timedelta(hours=3)).isoformat()
    assert (await create(api, deadline=later))["errors"][0]["path"] == ["input", "lifetime", "deadline"]

    instance_id = await ready(api, maxDuration=3600)
    for field, value in (("by", 7200), ("until", later)):
        (error,) = (await ask(api, EXTEND, id=instance_id, **{field: value}))["errors"]
        assert (error["code"], error["path"], error["atMost"]) == ("LIFETIME_ABOVE_POLICY", ["input", field], 7200)
    removed = await ask(api, UPDATE, id=instance_id, lifetime={"remove": True})
    assert removed["errors"][0]["code"] == "LIFETIME_REQUIRED"

    await ask(api, POLICY, token=admin, required=True, defaultMaxDuration=600, defaultIdle={"window": 300})
    given = (await ask(api, CREATE, name="default", **WISH))["instance"]["lifetime"]
    assert (given["maxDuration"], given["idle"]["window"]) == (600, 300)
    bad = await ask(api, POLICY, token=admin, maxDurationAtMost=300, defaultMaxDuration=600)
    assert bad["errors"][0]["path"] == ["input", "defaultMaxDuration"]
    project = (await api.ask("{ viewer { project { lifetimePolicy { required defaultMaxDuration } } } }")).data
    assert project["viewer"]["project"]["lifetimePolicy"] == {"required": True, "defaultMaxDuration": 600}


async def test_pages_by_end_have_instances_without_one_last(api: Api):
    for name, limits in (("late", {"maxDuration": 7200}), ("soon", {"maxDuration": 3600})):
        await ready(api, name, **limits)
    await api.create(name="never")
    page = """
        query ($direction: OrderDirection!, $after: String) {
          instances(orderBy: {field: ENDS_AT, direction: $direction}, first: 1, after: $after) {
            nodes { name } pageInfo { endCursor hasNextPage }
          }
        }
    """
    for direction, expected in (("ASC", ["soon", "late", "never"]), ("DESC", ["late", "soon", "never"])):
        names, after = [], None
        while True:
            found = (await api.ask(page, direction=direction, after=after)).data["instances"]
            names += [node["name"] for node in found["nodes"]]
            after = found["pageInfo"]["endCursor"]
            if not found["pageInfo"]["hasNextPage"]:
                break
        assert names == expected
    before = (datetime.now(UTC) + timedelta(minutes=90)).isoformat()
    soon = await api.ask("query ($t: DateTime!) { instances(filter: {endsBefore: $t}) { nodes { name } } }", t=before)
    assert soon.data["instances"]["nodes"] == [{"name": "soon"}]


async def test_job_of_a_lifetime_can_not_be_cancelled(api: Api):
    instance_id = await ready(api, maxDuration=3600)
    found = (
        "query ($id: ID!) { jobs(filter: {instanceId: $id, kind: END_LIFETIME, statuses: [WAITING]}) { nodes { id } } }"
    )
    (job,) = (await api.ask(found, id=instance_id)).data["jobs"]["nodes"]
    cancel = "mutation ($id: ID!) { cancelJob(input: {id: $id}) { errors { code } } }"
    refused = (await api.ask(cancel, id=job["id"])).data["cancelJob"]
    assert refused["errors"] == [{"code": "JOB_NOT_CANCELLABLE"}]


async def test_operation_and_events_say_why(api: Api):
    instance_id = await ready(api, maxDuration=3600)
    row_id = ids.parse(ids.INSTANCE, instance_id)
    await api.world.execute("UPDATE instance SET run_accepted_at = now() - interval '1 hour' WHERE id = $1", row_id)
    await api.world.work_until_status(row_id, InstanceStatus.EXITED)
    shown = """
        query ($id: ID!) {
          operations(filter: {instanceId: $id, kinds: [STOP]}) { nodes { reason requestedBy { id } } }
        }
    """
    data = (await api.ask(shown, id=instance_id)).data
    assert data["operations"]["nodes"] == [{"reason": "LIFETIME", "requestedBy": None}]
    (ended,) = [each for each in await api.world.events(row_id) if each.type == "lifetime.ended"]
    assert ended.data["values"]["reason"] == "MAX_DURATION"


async def test_metrics_are_read_live_and_shared_for_a_moment(api: Api):
    instance_id = await ready(api, maxDuration=3600)
    document = """
        query ($id: ID!, $since: DateTime, $interval: Duration! = 60) {
          instanceMetrics(instanceId: $id, since: $since, interval: $interval) {
            gpu { gpuId points { at percent } } gpuMemory { gpuId } cpu { percent } memory { at } disk { at }
          }
        }
    """
    since = (datetime.now(UTC) - timedelta(minutes=30)).isoformat()
    machine = (await api.world.instance(ids.parse(ids.INSTANCE, instance_id)))["novita_id"]
    at = datetime.now(UTC).timestamp()
    api.world.simulator.world.loads[machine] = [(at - 1800, at, 7.0)]
    metrics = (await api.ask(document, id=instance_id, since=since)).data["instanceMetrics"]
    assert {point["percent"] for point in metrics["gpu"][0]["points"]} == {7.0}
    assert len(metrics["gpu"][0]["points"]) >= 25
    unknown = await api.ask(document, id="inst_" + "0" * 32)
    assert unknown.data["instanceMetrics"] is None
    refused = await api.ask(document, id=instance_id, interval=5)
    assert refused.error["code"] == "INVALID_METRICS_RANGE"
