"""An instance as JSON in two pieces: its state, and its request (shared by instances with equal requests)."""

import orjson

from server.simulator.dialect import ListPorts
from server.simulator.models import Instance
from server.simulator.requests import JsonObject

# Cached requests.
SHARED_MAX = 4096

_shared: dict[tuple[object, ...], bytes] = {}


def render_state(
    instance: Instance,
    ports: list[tuple[int, str]],
    shown_ports: ListPorts,
    *,
    has_scheme: bool,
    logs: str,
    jobs: list[JsonObject],
) -> bytes:
    """The opening brace and all fields that change with time, with a trailing comma."""
    running = instance.status == "running"
    has_addresses = shown_ports is ListPorts.FULL
    at = instance.endpoints if running and has_addresses else {}
    if not has_scheme:
        at = {port: address.removeprefix("http://") for port, address in at.items()}
    jupyter = jupyter_port(instance)
    shown: JsonObject = {
        "id": instance.id,
        "name": instance.name,
        "status": instance.status,
        "portMappings": [
            {"port": port, "type": kind, **({"endpoint": at.get(str(port), "")} if has_addresses else {})}
            for port, kind in ports
        ],
        "statusError": {"state": instance.error_state, "message": instance.error_message},
        "spotStatus": instance.spot_status,
        "spotReclaimTime": str(instance.spot_reclaim_time),
        "createdAt": str(int(instance.created_at)),
        "lastStartedAt": str(int(instance.last_started_at)),
        "lastStoppedAt": str(int(instance.last_stopped_at)),
        "network": {"id": instance.network_id, "ip": instance.network_ip},
        "connectComponentSSH": {
            "sshCommand": instance.ssh_command if running else "",
            "password": instance.ssh_password if running else "",
            "isRunning": running,
        },
        "connectComponentWebTerminal": {
            "address": f"{logs}/{instance.id}/terminal" if running else "",
            "username": "root" if running else "",
            "password": instance.ssh_password if running else "",
            "isRunning": running,
        },
        "connectComponentJupyter": {
            "port": jupyter,
            "address": (address := at.get(str(jupyter), "")),
            "isRunning": bool(address),
        },
        "connectComponentLog": {
            "systemLogAddress": f"{logs}/{instance.id}/log/system",
            "instanceLogAddress": f"{logs}/{instance.id}/log/instance",
            "isRunning": running,
        },
        "jobs": jobs,
    }
    if shown_ports is ListPorts.NONE:
        del shown["portMappings"]
    return orjson.dumps(shown)[:-1] + b","


def render_request(instance: Instance) -> bytes:
    """The fields of the create request, up to the value of the last field, `useTime`.

    Thousands of instances often have equal requests and share these bytes, which halves memory and the time of the
    first rendering.
    """
    key = (
        *(instance.product_id, instance.cluster_id, instance.gpu_num, instance.kind, instance.rootfs_size),
        *(instance.image_url, instance.image_auth_id, instance.command, instance.entrypoint),
        *(instance.billing_mode, instance.price, instance.end_time, instance.auto_migrate, instance.auto_migrate_disk),
        *(tuple(instance.envs), tuple(instance.volumes), str(instance.tools) if instance.tools else ""),
    )
    shared = _shared.get(key)
    if shared is None:
        if len(_shared) >= SHARED_MAX:
            _shared.clear()
        shared = _shared[key] = orjson.dumps(_request(instance))[1:-1] + b',"useTime":"'
    return shared


def _request(instance: Instance) -> JsonObject:
    return {
        "clusterId": instance.cluster_id,
        "clusterName": instance.cluster_name,
        "imageUrl": instance.image_url,
        "imageAuthId": instance.image_auth_id,
        "command": instance.command,
        "entrypoint": instance.entrypoint,
        "cpuNum": str(instance.cpu_num),
        "memory": str(instance.memory),
        "gpuNum": str(instance.gpu_num),
        "productId": instance.product_id,
        "productName": instance.product_name,
        "rootfsSize": instance.rootfs_size,
        "volumeMounts": [
            {"type": kind, "size": str(size), "id": storage_id, "mountPath": path}
            for kind, size, storage_id, path in instance.volumes
        ],
        "envs": [{"key": key, "value": value} for key, value in instance.envs],
        "tools": instance.tools,
        "kind": instance.kind,
        "billingMode": instance.billing_mode,
        "endTime": str(instance.end_time),
        "node": {"maxRootfsSize": instance.max_rootfs},
        "freeStorageSize": 60,
        "keepDataDay": 7,
        "instancePrice": str(instance.price),
        "localStoragePrice": "7",
        "exitedLocalStoragePrice": "250",
        "autoMigrateOpen": instance.auto_migrate,
        "autoMigrateSystemDisk": instance.auto_migrate_disk,
    }


def jupyter_port(instance: Instance) -> int:
    for tool in instance.tools:
        if str(tool.get("name", "")).lower() == "jupyter":
            return int(str(tool.get("port", "0")))
    return 8888 if (8888, "http") in instance.ports else 0
