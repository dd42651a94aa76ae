"""Network storages and VPC networks."""

import orjson

from server.simulator import validation
from server.simulator.requests import EMPTY, ApiRequest, JsonObject, ProviderRefusal, bad_param, not_found
from server.simulator.routes.create_instance import is_held
from server.simulator.world import World

STORAGE_MIN_GB = 10
STORAGE_MAX_GB = 10_240
# Simulated seconds until a new network is ready.
NETWORK_SECONDS = 2.0


def storages(world: World, request: ApiRequest) -> bytes:
    """Only this list names its page parameter `pageNo`."""
    start, size = world.page(request, "pageNo")
    needle, storage_id = request.query("storageName").lower(), request.query("storageId")
    now = world.clock.now()
    rows = [
        {name: value for name, value in record.items() if name != "listed_at_sim"}
        for record in world.table("storage").values()
        if float(str(record.get("listed_at_sim", 0))) <= now
        and needle in str(record["storageName"]).lower()
        and storage_id in ("", record["storageId"])
    ]
    return orjson.dumps({"data": rows[start : start + size], "total": len(rows)})


def create_storage(world: World, request: ApiRequest) -> bytes:
    body = request.body()
    cluster = world.catalog.clusters.get(validation.text(body, "clusterId", least=1))
    if cluster is None:
        raise bad_param("cluster not found", "clusterId")
    if not cluster.network_storage:
        raise ProviderRefusal(400, "CUR_CLUSTER_NETWORK_STORAGE_NOT_SUPPORT", "this cluster has no network storage")
    name, size = validation.text(body, "storageName", least=1), _storage_size(body)
    key = world.new_id("storage", size=16)
    record: JsonObject = {
        "storageId": key,
        "storageName": name,
        "storageSize": size,
        "clusterId": cluster.id,
        "clusterName": cluster.name,
        "price": "7",
    }
    delay = world.dialect.list_delay * world.clock.speed
    world.put("storage", key, {**record, "listed_at_sim": world.clock.now() + delay} if delay else record)
    return orjson.dumps(record)


def update_storage(world: World, request: ApiRequest) -> bytes:
    """The size may only grow."""
    body = request.body()
    record = _storage(world, validation.text(body, "storageId", least=1))
    name = validation.text(body, "storageName", least=1, default=str(record["storageName"]))
    before = int(str(record["storageSize"]))
    size = _storage_size(body, default=before)
    if size < before:
        raise bad_param("storageSize may only grow", "storageSize")
    changed = {**record, "storageName": name, "storageSize": size}
    world.put("storage", str(record["storageId"]), changed)
    return orjson.dumps({name: value for name, value in changed.items() if name != "listed_at_sim"})


def delete_storage(world: World, request: ApiRequest) -> bytes:
    body = request.body()
    # The vendor's command line sends `id`.
    key = validation.text(body, "storageId") or validation.text(body, "id", least=1)
    _storage(world, key)
    if is_held(world, key):
        raise ProviderRefusal(400, "NETWORK_STORAGE_IN_USE", "the network storage is in use")
    world.drop("storage", key)
    return EMPTY


def networks(world: World, request: ApiRequest) -> bytes:
    start, size = world.page(request)
    needle = request.query("name").lower()
    creators = request.query_set("creators")
    rows = [
        _network_to_json(world, record)
        for record in world.table("network").values()
        if needle in str(record["name"]).lower() and (not creators or record["user"] in creators)
    ]
    return orjson.dumps({"networks": rows[start : start + size], "total": str(len(rows))})


def network(world: World, request: ApiRequest) -> bytes:
    return orjson.dumps({"network": [_network_to_json(world, _network(world, request.query("networkId")))]})


def create_network(world: World, request: ApiRequest) -> bytes:
    """The response has no id: the client must find the network by name."""
    body = request.body()
    cluster = world.catalog.clusters.get(validation.text(body, "clusterId", least=1))
    if cluster is None:
        raise bad_param("cluster not found", "clusterId")
    if not cluster.instance_network:
        raise bad_param("this cluster has no instance networks", "clusterId")
    name = validation.text(body, "name", most=30)
    key = world.new_id("network")
    record: JsonObject = {
        "Id": key,
        "user": "9141320498493177",
        "name": name,
        "segment": f"10.{world.counters['network'] % 250}.0.0/16",
        "clusterId": cluster.id,
        "createTime": str(int(world.clock.wall())),
        "ready_at_sim": world.clock.now() + NETWORK_SECONDS,
    }
    world.put("network", key, record)
    return EMPTY


def update_network(world: World, request: ApiRequest) -> bytes:
    body = request.body()
    record = _network(world, validation.text(body, "networkId", least=1))
    world.put("network", str(record["Id"]), {**record, "name": validation.text(body, "name", most=30)})
    return EMPTY


def delete_network(world: World, request: ApiRequest) -> bytes:
    record = _network(world, validation.text(request.body(), "networkId", least=1))
    if any(each.network_id == record["Id"] for each in world.instances.values()):
        raise ProviderRefusal(400, "DEPENDENT_RESOURCE_STATE", "the network still has instances")
    world.drop("network", str(record["Id"]))
    return EMPTY


def _storage_size(body: JsonObject, default: int | None = None) -> int:
    size = validation.number(body, "storageSize", least=STORAGE_MIN_GB, most=1_000_000, default=default)
    if size > STORAGE_MAX_GB:
        limit = {"limit": str(STORAGE_MAX_GB)}
        raise ProviderRefusal(400, "NETWORK_STORAGE_TOO_LARGE", "the network storage is too large", limit)
    return size


def _storage(world: World, key: str) -> JsonObject:
    record = world.table("storage").get(key)
    if record is None:
        raise not_found("network storage")
    return record


def _network(world: World, key: str) -> JsonObject:
    record = world.table("network").get(key)
    if record is None:
        raise ProviderRefusal(400, "NETWORK_NOT_FOUND", "network not found")
    return record


def _network_to_json(world: World, record: JsonObject) -> JsonObject:
    ready = world.clock.now() >= float(str(record["ready_at_sim"]))
    inside = [{"Id": i.id, "Ip": i.network_ip} for i in world.instances.values() if i.network_id == record["Id"]]
    shown = {name: value for name, value in record.items() if name != "ready_at_sim"}
    return {**shown, "state": {"state": "ready" if ready else "creating", "error": ""}, "Addresses": inside}
