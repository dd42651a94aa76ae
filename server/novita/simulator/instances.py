"""One simulated instance, and how it is shown."""

import hashlib
from dataclasses import dataclass, field, fields
from typing import cast

import orjson

from server.novita.simulator.wire import JsonObject

# (when in simulated time, the status from then on or "" for no change, what else happens)
Step = tuple[float, str, str]


@dataclass(slots=True)
class Instance:
    """Everything that must survive a restart. Times are wall seconds unless they say `_sim`."""

    id: str
    seq: int
    name: str
    kind: str
    product_id: str
    product_name: str
    cluster_id: str
    cluster_name: str
    cpu_num: int
    memory: int
    gpu_num: int
    rootfs_size: int
    max_rootfs: int
    image_url: str
    image_auth_id: str
    command: str
    entrypoint: str
    billing_mode: str
    price: int
    created_at: float
    end_time: int = -1
    status: str = "pending"
    error_state: str = ""
    error_message: str = ""
    spot_status: str = ""
    spot_reclaim_time: int = 0
    ports: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    envs: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    tools: list[JsonObject] = field(default_factory=list[JsonObject])
    # (type, size in GB, id, mount path)
    volumes: list[tuple[str, int, str, str]] = field(default_factory=list[tuple[str, int, str, str]])
    network_id: str = ""
    network_ip: str = ""
    auto_migrate: bool = False
    auto_migrate_disk: bool = False
    jobs: list[str] = field(default_factory=list[str])
    last_started_at: float = 0
    last_stopped_at: float = 0
    used_seconds: float = 0
    # How often it came to run: SSH port and password hang on it.
    starts: int = 0
    running_since_sim: float = 0
    # Container port to the address it answers at, while running.
    endpoints: dict[str, str] = field(default_factory=dict[str, str])
    # Container port to the loopback port it had last, so that a restart of the simulator can take it again.
    loopback: dict[str, int] = field(default_factory=dict[str, int])
    holds_stock: bool = False
    listed: bool = False
    hidden_until_sim: float = 0
    # What is still to come, in time order.
    steps: list[Step] = field(default_factory=list[Step])
    # Seconds from running to the spot notice, drawn when it was made; -1: never.
    reclaim_after_sim: float = -1

    @property
    def is_running(self) -> bool:
        return self.status == "running"

    @classmethod
    def load(cls, saved: JsonObject) -> "Instance":
        known = {f.name for f in fields(cls)}
        values = {name: value for name, value in saved.items() if name in known}
        for name in ("ports", "envs", "volumes", "steps"):
            values[name] = [tuple(item) for item in cast(list[list[object]], values.get(name, []))]
        return cls(**values)  # pyright: ignore[reportArgumentType]


def secret(seed: int, *parts: object, size: int = 8) -> str:
    """Hex digits that hang only on the seed and the parts, so that a restarted world tells the same story."""
    return hashlib.blake2b(":".join(map(str, (seed, *parts))).encode(), digest_size=size).hexdigest()


def fraction(seed: int, *parts: object) -> float:
    """A seeded number in [0, 1)."""
    return int(secret(seed, *parts, size=4), 16) / 2**32


def render(instance: Instance, *, seed: int, logs: str, jobs: list[JsonObject]) -> bytes:
    """The instance as JSON up to its last field, `useTime`, which grows while it runs.

    All but that field stays the same between two steps, so the caller may keep these bytes.
    """
    running = instance.is_running
    # One draw a start gives host, port and password, so all three change with it.
    drawn = secret(seed, instance.id, instance.starts, size=16)
    ssh_port = 30000 + int(drawn[:8], 16) % 30000
    ssh_host = f"proxy-{1 + int(drawn[8], 16) % 4}.{instance.cluster_id}.simulator.test"
    password = drawn[16:]
    jupyter = jupyter_port(instance)
    jupyter_at = instance.endpoints.get(str(jupyter), "") if running and jupyter else ""
    shown: JsonObject = {
        "id": instance.id,
        "name": instance.name,
        "clusterId": instance.cluster_id,
        "clusterName": instance.cluster_name,
        "status": instance.status,
        "imageUrl": instance.image_url,
        "imageAuthId": instance.image_auth_id,
        "command": instance.command,
        "entrypoint": instance.entrypoint,
        "cpuNum": str(instance.cpu_num),
        "memory": str(instance.memory),
        "gpuNum": str(instance.gpu_num),
        "portMappings": [
            {"port": port, "type": kind, "endpoint": instance.endpoints.get(str(port), "") if running else ""}
            for port, kind in instance.ports
        ],
        "productId": instance.product_id,
        "productName": instance.product_name,
        "rootfsSize": instance.rootfs_size,
        "volumeMounts": [
            {"type": kind, "size": str(size), "id": storage_id, "mountPath": path}
            for kind, size, storage_id, path in instance.volumes
        ],
        "statusError": {"state": instance.error_state, "message": instance.error_message},
        "envs": [{"key": key, "value": value} for key, value in instance.envs],
        "tools": instance.tools,
        "kind": instance.kind,
        "billingMode": instance.billing_mode,
        "endTime": str(instance.end_time),
        "spotStatus": instance.spot_status,
        "spotReclaimTime": str(instance.spot_reclaim_time),
        "createdAt": str(int(instance.created_at)),
        "lastStartedAt": str(int(instance.last_started_at)),
        "lastStoppedAt": str(int(instance.last_stopped_at)),
        "network": {"id": instance.network_id, "ip": instance.network_ip},
        "connectComponentSSH": {
            "sshCommand": f"ssh -p {ssh_port} root@{ssh_host}" if running else "",
            "password": password if running else "",
            "isRunning": running,
        },
        "connectComponentWebTerminal": {"address": "", "username": "", "password": "", "isRunning": False},
        "connectComponentJupyter": {"port": jupyter, "address": jupyter_at, "isRunning": bool(jupyter_at)},
        "connectComponentLog": {
            "systemLogAddress": f"{logs}/{instance.id}/log/system",
            "instanceLogAddress": f"{logs}/{instance.id}/log/instance",
            "isRunning": running,
        },
        "node": {"maxRootfsSize": instance.max_rootfs},
        "jobs": jobs,
        "freeStorageSize": 60,
        "keepDataDay": 7,
        "instancePrice": str(instance.price),
        "localStoragePrice": "7",
        "exitedLocalStoragePrice": "250",
        "autoMigrateOpen": instance.auto_migrate,
        "autoMigrateSystemDisk": instance.auto_migrate_disk,
    }
    return orjson.dumps(shown)[:-1] + b',"useTime":"'


def jupyter_port(instance: Instance) -> int:
    for tool in instance.tools:
        if str(tool.get("name", "")).lower() == "jupyter":
            return int(str(tool.get("port", "0")))
    return 8888 if (8888, "http") in instance.ports else 0
