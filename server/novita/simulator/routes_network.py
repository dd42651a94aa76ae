"""Network storages and VPC networks."""

import orjson

from server.novita.simulator import fields
from server.novita.simulator.wire import EMPTY, Call, JsonObject, Refusal, bad_param, not_found
from server.novita.simulator.world import World

SMALLEST_STORAGE = 10
LARGEST_STORAGE = 10_240
# Simulated seconds until a new network is ready.
NETWORK_TAKES = 2.0


def storages(world: World, call: Call) -> bytes:
    """This list alone calls its page parameter pageNo."""
    start, size = call.page("pageNo")
    needle, wanted = call.query("storageName").lower(), call.query("storageId")
    rows = [
        record
        for record in world.table("storage").values()
        if needle in str(record["storageName"]).lower() and wanted in ("", record["storageId"])
    ]
    return orjson.dumps({"data": rows[start : start + size], "total": len(rows)})


def create_storage(world: World, call: Call) -> bytes:
    body = call.body()
    cluster = world.catalog.clusters.get(fields.text(body, "clusterId", least=1))
    if cluster is None:
        raise bad_param("cluster not found", "clusterId")
    if not cluster.network_storage:
        raise Refusal(400, "CUR_CLUSTER_NETWORK_STORAGE_NOT_SUPPORT", "this cluster has no network storage")
    name, size = fields.text(body, "storageName", least=1), _storage_size(body)
    key = world.new_id("storage", size=16)
    record: JsonObject = {
        "storageId": key,
        "storageName": name,
        "storageSize": size,
        "clusterId": cluster.id,
        "clusterName": cluster.name,
        "price": "7",
    }
    world.put("storage", key, record)
    return orjson.dumps(record)


def update_storage(world: World, call: Call) -> bytes:
    """The size may only grow."""
    body = call.body()
    record = _storage(world, fields.text(body, "storageId", least=1))
    name = fields.text(body, "storageName", least=1, default=str(record["storageName"]))
    before = int(str(record["storageSize"]))
    size = _storage_size(body, default=before)
    if size < before:
        raise bad_param("storageSize may only grow", "storageSize")
    changed = {**record, "storageName": name, "storageSize": size}
    world.put("storage", str(record["storageId"]), changed)
    return orjson.dumps(changed)


def delete_storage(world: World, call: Call) -> bytes:
    body = call.body()
    # The vendor's command line sends `id`.
    key = fields.text(body, "storageId") or fields.text(body, "id", least=1)
    _storage(world, key)
    if any(volume[2] == key for each in world.instances.values() for volume in each.volumes):
        raise Refusal(400, "NETWORK_STORAGE_IN_USE", "the network storage is in use")
    world.drop("storage", key)
    return EMPTY


def networks(world: World, call: Call) -> bytes:
    start, size = call.page()
    needle = call.query("name").lower()
    creators = {part for value in call.query_all("creators") for part in value.split(",") if part}
    rows = [
        _shown(world, record)
        for record in world.table("network").values()
        if needle in str(record["name"]).lower() and (not creators or record["user"] in creators)
    ]
    return orjson.dumps({"networks": rows[start : start + size], "total": str(len(rows))})


def network(world: World, call: Call) -> bytes:
    return orjson.dumps({"network": [_shown(world, _network(world, call.query("networkId")))]})


def create_network(world: World, call: Call) -> bytes:
    """The answer has no id: the caller must look the network up by its name."""
    body = call.body()
    cluster = world.catalog.clusters.get(fields.text(body, "clusterId", least=1))
    if cluster is None:
        raise bad_param("cluster not found", "clusterId")
    if not cluster.instance_network:
        raise bad_param("this cluster has no instance networks", "clusterId")
    name = fields.text(body, "name", most=30)
    key = world.new_id("network")
    record: JsonObject = {
        "Id": key,
        "user": "9141320498493177",
        "name": name,
        "segment": f"10.{world.counters['network'] % 250}.0.0/16",
        "clusterId": cluster.id,
        "createTime": str(int(world.clock.wall())),
        "ready_at_sim": world.clock.now() + NETWORK_TAKES,
    }
    world.put("network", key, record)
    return EMPTY


def update_network(world: World, call: Call) -> bytes:
    body = call.body()
    record = _network(world, fields.text(body, "networkId", least=1))
    world.put("network", str(record["Id"]), {**record, "name": fields.text(body, "name", most=30)})
    return EMPTY


def delete_network(world: World, call: Call) -> bytes:
    record = _network(world, fields.text(call.body(), "networkId", least=1))
    if any(each.network_id == record["Id"] for each in world.instances.values()):
        raise Refusal(400, "DEPENDENT_RESOURCE_STATE", "the network still has instances")
    world.drop("network", str(record["Id"]))
    return EMPTY


def _storage_size(body: JsonObject, default: int | None = None) -> int:
    size = fields.number(body, "storageSize", least=SMALLEST_STORAGE, most=1_000_000, default=default)
    if size > LARGEST_STORAGE:
        limit = {"limit": str(LARGEST_STORAGE)}
        raise Refusal(400, "NETWORK_STORAGE_TOO_LARGE", "the network storage is too large", limit)
    return size


def _storage(world: World, key: str) -> JsonObject:
    record = world.table("storage").get(key)
    if record is None:
        raise not_found("network storage")
    return record


def _network(world: World, key: str) -> JsonObject:
    record = world.table("network").get(key)
    if record is None:
        raise Refusal(400, "NETWORK_NOT_FOUND", "network not found")
    return record


def _shown(world: World, record: JsonObject) -> JsonObject:
    ready = world.clock.now() >= float(str(record["ready_at_sim"]))
    inside = [{"Id": i.id, "Ip": i.network_ip} for i in world.instances.values() if i.network_id == record["Id"]]
    shown = {name: value for name, value in record.items() if name != "ready_at_sim"}
    return {**shown, "state": {"state": "ready" if ready else "creating", "error": ""}, "Addresses": inside}
