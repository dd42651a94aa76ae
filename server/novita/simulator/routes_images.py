"""Image prewarming and instance metrics."""

import math

import orjson

from server.novita.simulator import fields
from server.novita.simulator.instances import fraction
from server.novita.simulator.wire import EMPTY, Call, JsonObject, Refusal, bad_param, not_found
from server.novita.simulator.world import World

MOST_PREWARMS = 100
PER_IMAGE_GB = 100
# Simulated seconds until a prewarm runs, and until it is over.
PREWARM_WAITS = 1.0
PREWARM_TAKES = 6.0
MOST_POINTS = 1000


def quota(world: World, call: Call) -> bytes:
    used = len(world.table("prewarm"))
    return orjson.dumps({"total": used, "limit": MOST_PREWARMS, "perImageSize": PER_IMAGE_GB})


def prewarms(world: World, call: Call) -> bytes:
    """This list alone calls its page parameter page."""
    start, size = call.page("page")
    state, cluster_id, needle = call.query("state"), call.query("clusterId"), call.query("name").lower()
    rows = [_shown(world, record) for record in reversed(world.table("prewarm").values())]
    rows = [
        row
        for row in rows
        if state in ("", row["state"])
        and cluster_id in ("", row["clusterId"])
        and needle in str(row["imageName"]).lower()
    ]
    return orjson.dumps({"data": rows[start : start + size], "total": len(rows)})


def create_prewarm(world: World, call: Call) -> bytes:
    body = call.body()
    image_url = fields.text(body, "imageUrl", least=1, most=500)
    cluster = world.catalog.clusters.get(fields.text(body, "clusterId", least=1))
    if cluster is None:
        raise bad_param("cluster not found", "clusterId")
    auth = fields.text(body, "repositoryAuth")
    if auth and auth not in world.table("auth"):
        raise Refusal(400, "IMAGE_URL_OR_AUTH_ERROR", "image auth not found")
    note = fields.text(body, "note", most=2047)
    products = [world.catalog.products.get(each) for each in fields.texts(body, "productIds", least=1, most=100)]
    if any(product is None or cluster.id not in product.stock for product in products):
        raise Refusal(400, "IMAGE_PREWARM_NO_NODES_AVAILABLE", "no node of this product is in the cluster")
    if len(world.table("prewarm")) >= MOST_PREWARMS:
        raise Refusal(400, "IMAGE_PREWARM_NUM_LIMIT", "too many prewarms", {"limit": str(MOST_PREWARMS)})
    key = world.new_id("prewarm")
    now = world.clock.now()
    record: JsonObject = {
        "id": key,
        "imageName": image_url.rpartition("/")[2].partition(":")[0],
        "imageUrl": image_url,
        "repositoryAuth": auth,
        "clusterId": cluster.id,
        "clusterName": cluster.name,
        "products": [{"productId": each.id, "productName": each.name} for each in products if each],
        "imageSize": "8589934592",
        "createTime": str(int(world.clock.wall())),
        "note": note,
        "reason": [],
        "runs_at_sim": now + PREWARM_WAITS,
        "ends_at_sim": now + PREWARM_TAKES,
    }
    world.put("prewarm", key, record)
    return orjson.dumps({"id": key})


def edit_prewarm(world: World, call: Call) -> bytes:
    body = call.body()
    key = fields.text(body, "id", least=1)
    record = world.table("prewarm").get(key)
    if record is None:
        raise not_found("prewarm task")
    changed = {**record, "note": fields.text(body, "note", most=2047)}
    world.put("prewarm", key, changed)
    return orjson.dumps(_shown(world, changed))


def delete_prewarms(world: World, call: Call) -> bytes:
    keys = fields.texts(call.body(), "ids", least=1, most=100)
    if any(key not in world.table("prewarm") for key in keys):
        raise not_found("prewarm task")
    for key in keys:
        world.drop("prewarm", key)
    return EMPTY


def metrics(world: World, call: Call) -> bytes:
    """Made-up load with a daily shape; only the time that the instance ran has points."""
    instance = world.instance(call.query("instanceId"))
    wall = int(world.clock.wall())
    interval = call.query_int("interval", 15, least=15)
    until = call.query_int("endTime", wall)
    since = call.query_int("startTime", until - 60)
    if since > until:
        raise bad_param("startTime must not be after endTime", "startTime")
    if (until - since) // interval > MOST_POINTS:
        raise bad_param(f"at most {MOST_POINTS} points", "interval")
    first = int(instance.last_started_at) if instance.starts else until + 1
    last = wall if instance.is_running else int(instance.last_stopped_at)
    times = [at for at in range(since - since % interval, until + 1, interval) if first <= at <= last and at >= since]

    def series(what: str, level: float) -> list[JsonObject]:
        phase = fraction(world.seed, instance.id, what) * 6.28
        return [
            {"timestamp": str(at), "value": round(level * (1 + 0.4 * math.sin(at / 97 + phase)), 2)} for at in times
        ]

    def per_gpu(what: str, level: float) -> JsonObject:
        gpus = [{"gpuId": str(each), "items": series(f"{what}{each}", level)} for each in range(instance.gpu_num)]
        return {"avg": series(what, level), "gpuIds": gpus if instance.kind == "gpu" else []}

    return orjson.dumps(
        {
            "cpuUtilization": series("cpu", 30),
            "memUtilization": series("memory", 45),
            "rootDiskUtilization": series("disk", 20),
            "gpuUtilization": per_gpu("gpu", 65),
            "gpuMemUtilization": per_gpu("vram", 55),
        }
    )


def _shown(world: World, record: JsonObject) -> JsonObject:
    now = world.clock.now()
    over = now >= float(str(record["ends_at_sim"]))
    running = now >= float(str(record["runs_at_sim"]))
    done_at = str(int(world.clock.wall_at(float(str(record["ends_at_sim"]))))) if over else "0"
    shown = {name: value for name, value in record.items() if not name.endswith("_sim")}
    return {
        **shown,
        "state": "Succeeded" if over else "Running" if running else "Pending",
        "completeTime": done_at,
    }
