"""Background jobs of instances: saving an image, migrating."""

import orjson

from server.simulator import lifecycle, validation
from server.simulator.models import Instance
from server.simulator.requests import ApiRequest, JsonObject, ProviderRefusal, invalid_state, not_found
from server.simulator.world import World

# Simulated seconds until a job runs, and until it ends.
JOB_PULL_SECONDS = 1.5
JOB_SECONDS = 5.0


def new_job(world: World, instance: Instance, kind: str) -> str:
    """Insert a job; the caller plans its end for the instance."""
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
        "runs_at_sim": now + JOB_PULL_SECONDS,
        "ends_at_sim": now + JOB_SECONDS,
        "broken": False,
    }
    world.put("job", key, record)
    return key


def jobs(world: World, request: ApiRequest) -> bytes:
    start, size = world.page(request)
    since, until = request.query_int("startTime"), request.query_int("endTime", 2**53)
    job_id, kind, state = request.query("jobId"), request.query("type"), request.query("state")
    creators = request.query_set("creators")
    rows = [
        _job_to_json(world, record)
        for record in reversed(world.table("job").values())
        if job_id in ("", record["Id"])
        and kind in ("", record["type"])
        and state in ("", _state(world, record))
        and since <= int(str(record["createdAt"])) <= until
        and (not creators or record["user"] in creators)
    ]
    return orjson.dumps({"jobs": rows[start : start + size], "total": len(rows)})


def save_image(world: World, request: ApiRequest) -> bytes:
    """The instance must be stopped, and is busy until the image is saved."""
    body = request.body()
    instance = world.instance(validation.text(body, "instanceId", least=1))
    validation.text(body, "image", least=1, most=4095)
    auth = validation.text(body, "registryAuthId")
    world.check_image_auth(auth)
    lifecycle.refuse_while_busy(instance)
    if instance.status != "exited":
        raise invalid_state()
    key = new_job(world, instance, "saveImage")
    instance.jobs.append(key)
    world.plan(instance, [*instance.steps, (world.clock.now() + JOB_SECONDS, "", f"job:{key}")])
    return orjson.dumps({"jobId": key})


def break_job(world: World, request: ApiRequest) -> bytes:
    key = validation.text(request.body(), "jobId", least=1)
    record = world.table("job").get(key)
    if record is None:
        raise not_found("job")
    if record["type"] != "saveImage":
        raise ProviderRefusal(400, "MIGRATION_JOB_NOT_BREAKABLE", "a migration cannot be interrupted")
    _end(world, record, {"broken": True})
    return orjson.dumps({"jobId": key})


def fail_job(world: World, key: str, message: str) -> JsonObject:
    """For tests: a job that fails."""
    record = world.table("job").get(key)
    if record is None:
        raise not_found("job")
    _end(world, record, {"failure": message})
    return _job_to_json(world, world.table("job")[key])


def _end(world: World, record: JsonObject, how: JsonObject) -> None:
    if _state(world, record) not in ("pulling", "running"):
        raise invalid_state()
    key = str(record["Id"])
    world.put("job", key, {**record, **how})
    instance = world.instances.get(str(record["instanceId"]))
    if instance is not None and key in instance.jobs:
        instance.jobs.remove(key)
        world.mark_changed(instance)


def _state(world: World, record: JsonObject) -> str:
    now = world.clock.now()
    if record["broken"]:
        return "break"
    if record.get("failure"):
        return "fail"
    if now >= float(str(record["ends_at_sim"])):
        return "success"
    return "running" if now >= float(str(record["runs_at_sim"])) else "pulling"


def _job_to_json(world: World, record: JsonObject) -> JsonObject:
    shown = {name: record[name] for name in ("Id", "user", "type", "envs", "logAddress", "createdAt", "instanceId")}
    message = record.get("failure", "")
    # The error text has two names.
    return {
        **shown,
        "state": {"state": _state(world, record), "error": "", "errorMessage": message, "message": message},
    }
