"""Image prewarming and instance metrics."""

import math
from collections.abc import Callable

import orjson

from server.simulator import validation
from server.simulator.models import fraction
from server.simulator.requests import EMPTY, ApiRequest, JsonObject, ProviderRefusal, bad_param, not_found
from server.simulator.world import World

PREWARMS_MAX = 100
PER_IMAGE_GB = 100
# Simulated seconds until a prewarm runs, and until it ends.
PREWARM_PENDING_SECONDS = 1.0
PREWARM_SECONDS = 6.0
POINTS_MAX = 1000
METRICS_LAG = 60.0  # simulated seconds


def quota(world: World, request: ApiRequest) -> bytes:
    used = len(world.table("prewarm"))
    return orjson.dumps({"total": used, "limit": PREWARMS_MAX, "perImageSize": PER_IMAGE_GB})


def prewarms(world: World, request: ApiRequest) -> bytes:
    """Only this list names its page parameter `page`."""
    start, size = world.page(request, "page")
    state, cluster_id, needle = request.query("state"), request.query("clusterId"), request.query("name").lower()
    rows = [_prewarm_to_json(world, record) for record in reversed(world.table("prewarm").values())]
    rows = [
        row
        for row in rows
        if state in ("", row["state"])
        and cluster_id in ("", row["clusterId"])
        and needle in str(row["imageName"]).lower()
    ]
    return orjson.dumps({"data": rows[start : start + size], "total": len(rows)})


def create_prewarm(world: World, request: ApiRequest) -> bytes:
    body = request.body()
    image_url = validation.text(body, "imageUrl", least=1, most=500)
    cluster = world.catalog.clusters.get(validation.text(body, "clusterId", least=1))
    if cluster is None:
        raise bad_param("cluster not found", "clusterId")
    auth = validation.text(body, "repositoryAuth")
    world.check_image_auth(auth)
    note = validation.text(body, "note", most=2047)
    products = [world.catalog.products.get(each) for each in validation.texts(body, "productIds", least=1, most=100)]
    if any(product is None or cluster.id not in product.stock for product in products):
        raise ProviderRefusal(400, "IMAGE_PREWARM_NO_NODES_AVAILABLE", "no node of this product is in the cluster")
    if len(world.table("prewarm")) >= PREWARMS_MAX:
        raise ProviderRefusal(400, "IMAGE_PREWARM_NUM_LIMIT", "too many prewarms", {"limit": str(PREWARMS_MAX)})
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
        "runs_at_sim": now + PREWARM_PENDING_SECONDS,
        "ends_at_sim": now + PREWARM_SECONDS,
    }
    world.put("prewarm", key, record)
    return orjson.dumps({"id": key})


def edit_prewarm(world: World, request: ApiRequest) -> bytes:
    body = request.body()
    key = validation.text(body, "id", least=1)
    record = world.table("prewarm").get(key)
    if record is None:
        raise not_found("prewarm task")
    changed = {**record, "note": validation.text(body, "note", most=2047)}
    world.put("prewarm", key, changed)
    return orjson.dumps(_prewarm_to_json(world, changed))


def delete_prewarms(world: World, request: ApiRequest) -> bytes:
    keys = validation.texts(request.body(), "ids", least=1, most=100)
    if any(key not in world.table("prewarm") for key in keys):
        raise not_found("prewarm task")
    for key in keys:
        world.drop("prewarm", key)
    return EMPTY


def metrics(world: World, request: ApiRequest) -> bytes:
    """Invented load; there are points only for the time that the instance ran."""
    instance = world.instance(request.query("instanceId"))
    wall = int(world.clock.wall())
    interval = request.query_int("interval", 15, least=15)
    until = request.query_int("endTime", wall)
    since = request.query_int("startTime", until - 60)
    if since > until:
        raise bad_param("startTime must not be after endTime", "startTime")
    if (until - since) // interval > POINTS_MAX:
        raise bad_param(f"at most {POINTS_MAX} points", "interval")
    first = int(instance.last_started_at) if instance.starts else until + 1
    # The newest points are missing, as at the provider.
    lag = world.dialect.metrics_lag
    known = wall - (METRICS_LAG / world.clock.speed if lag < 0 else lag)
    last = known if instance.is_running else min(known, instance.last_stopped_at)
    loads = world.loads.get(instance.id, [])

    def has_point(at: int) -> bool:
        is_set = any(0 < begin <= at <= end for begin, end, _ in loads)  # also for a time before it ran
        return since <= at <= last and (first <= at or is_set)

    times = [at for at in range(since - since % interval, until + 1, interval) if has_point(at)]

    def series(what: str, level: float) -> list[JsonObject]:
        phase = fraction(world.seed, instance.id, what) * 6.28
        return [
            {"timestamp": str(at), "value": round(level * (1 + 0.4 * math.sin(at / 97 + phase)), 2)} for at in times
        ]

    def loaded(points: list[JsonObject]) -> list[JsonObject]:
        """With the utilisation that a test has set; None: a missing point."""
        for begin, end, percent in loads:
            for point in points:
                if begin <= int(str(point["timestamp"])) <= end:
                    point["value"] = percent
        return [point for point in points if point["value"] is not None]

    def per_gpu(what: str, level: float, change: Callable[[list[JsonObject]], list[JsonObject]]) -> JsonObject:
        gpus: list[JsonObject] = [
            {"gpuId": str(each), "items": change(series(f"{what}{each}", level))} for each in range(instance.gpu_num)
        ]
        return {"avg": change(series(what, level)), "gpuIds": gpus if instance.kind == "gpu" else []}

    return orjson.dumps(
        {
            "cpuUtilization": series("cpu", 30),
            "memUtilization": series("memory", 45),
            "rootDiskUtilization": series("disk", 20),
            "gpuUtilization": per_gpu("gpu", 65, loaded),
            "gpuMemUtilization": per_gpu("vram", 55, list),
        }
    )


def _prewarm_to_json(world: World, record: JsonObject) -> JsonObject:
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
