"""Background jobs of instances: saving an image, migrating."""

import orjson

from server.novita.simulator import fields, lifecycle
from server.novita.simulator.instances import Instance
from server.novita.simulator.wire import Call, JsonObject, Refusal, invalid_state, not_found
from server.novita.simulator.world import World

TYPES = ("saveImage", "instanceMigrate", "autoInstanceMigrate")
# Simulated seconds until a job runs, and until it is over.
JOB_PULLS = 1.5
JOB_TAKES = 5.0


def new_job(world: World, instance: Instance, kind: str) -> str:
    """Write a job down; the caller plans when the instance is rid of it."""
    key = world.new_id("job")
    now = world.clock.now()
    record: JsonObject = {
        "Id": key,
        "user": "9141320498493177",
        "type": kind,
        "envs": [],
        "logAddress": f"{world.public_url}/control/instances/{instance.id}/log/system",
        "createdAt": str(int(world.clock.wall())),
        "instanceId": instance.id,
        "runs_at_sim": now + JOB_PULLS,
        "ends_at_sim": now + JOB_TAKES,
        "broken": False,
    }
    world.put("job", key, record)
    return key


def jobs(world: World, call: Call) -> bytes:
    start, size = call.page()
    since, until = call.query_int("startTime"), call.query_int("endTime", 2**53)
    wanted, kind, state = call.query("jobId"), call.query("type"), call.query("state")
    creators = {part for value in call.query_all("creators") for part in value.split(",") if part}
    rows = [
        _shown(world, record)
        for record in reversed(world.table("job").values())
        if wanted in ("", record["Id"])
        and kind in ("", record["type"])
        and state in ("", _state(world, record))
        and since <= int(str(record["createdAt"])) <= until
        and (not creators or record["user"] in creators)
    ]
    return orjson.dumps({"jobs": rows[start : start + size], "total": len(rows)})


def save_image(world: World, call: Call) -> bytes:
    """The instance must be stopped, and can do little else until it is saved."""
    body = call.body()
    instance = world.instance(fields.text(body, "instanceId", least=1))
    fields.text(body, "image", least=1, most=4095)
    auth = fields.text(body, "registryAuthId")
    if auth and auth not in world.table("auth"):
        raise Refusal(400, "IMAGE_URL_OR_AUTH_ERROR", "image auth not found")
    lifecycle.refuse_while_busy(instance)
    if instance.status != "exited":
        raise invalid_state()
    key = new_job(world, instance, "saveImage")
    instance.jobs.append(key)
    world.plan(instance, [*instance.steps, (world.clock.now() + JOB_TAKES, "", f"job:{key}")])
    return orjson.dumps({"jobId": key})


def break_job(world: World, call: Call) -> bytes:
    key = fields.text(call.body(), "jobId", least=1)
    record = world.table("job").get(key)
    if record is None:
        raise not_found("job")
    if record["type"] != "saveImage":
        raise Refusal(400, "MIGRATION_JOB_NOT_BREAKABLE", "a migration cannot be interrupted")
    if _state(world, record) not in ("pulling", "running"):
        raise invalid_state()
    world.put("job", key, {**record, "broken": True})
    instance = world.instances.get(str(record["instanceId"]))
    if instance is not None and key in instance.jobs:
        instance.jobs.remove(key)
        world.changed(instance)
    return orjson.dumps({"jobId": key})


def _state(world: World, record: JsonObject) -> str:
    now = world.clock.now()
    if record["broken"]:
        return "break"
    if now >= float(str(record["ends_at_sim"])):
        return "success"
    return "running" if now >= float(str(record["runs_at_sim"])) else "pulling"


def _shown(world: World, record: JsonObject) -> JsonObject:
    shown = {name: record[name] for name in ("Id", "user", "type", "envs", "logAddress", "createdAt", "instanceId")}
    # Two names for the same text are in use.
    return {**shown, "state": {"state": _state(world, record), "error": "", "errorMessage": "", "message": ""}}
