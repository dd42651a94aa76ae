"""A simulated instance, and the seeded values."""

import hashlib
from dataclasses import dataclass, field, fields
from typing import cast

from server.simulator.requests import JsonObject

# (simulated time, the new status or "" for no change, the effect)
MachineStep = tuple[float, str, str]


@dataclass(slots=True)
class Instance:
    """All stored state of an instance. Times are wall seconds unless they end with `_sim`."""

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
    # Number of runs; SSH address and password change with each.
    starts: int = 0
    # Changes when the machine loses what was on its own disk.
    disk: int = 0
    ssh_command: str = ""
    ssh_password: str = ""
    running_since_sim: float = 0
    # Container port to its address, while running.
    endpoints: dict[str, str] = field(default_factory=dict[str, str])
    # Container port to its last loopback port, which a restarted simulator uses again.
    loopback: dict[str, int] = field(default_factory=dict[str, int])
    holds_stock: bool = False
    listed: bool = False
    hidden_until_sim: float = 0
    # Billed periods: began, ended (0: not yet), price in 1/100000 USD per hour.
    billed: list[tuple[float, float, int]] = field(default_factory=list[tuple[float, float, int]])
    # Planned steps, in time order.
    steps: list[MachineStep] = field(default_factory=list[MachineStep])
    # Seconds from running to the spot notice, chosen at the create; -1: never.
    reclaim_after_sim: float = -1

    @property
    def is_running(self) -> bool:
        return self.status == "running"

    @classmethod
    def load(cls, saved: JsonObject) -> "Instance":
        known = {f.name for f in fields(cls)}
        values = {name: value for name, value in saved.items() if name in known}
        for name in ("ports", "envs", "volumes", "steps", "billed"):
            values[name] = [tuple(item) for item in cast(list[list[object]], values.get(name, []))]
        return cls(**values)  # pyright: ignore[reportArgumentType]


def secret(seed: int, *parts: object, size: int = 8) -> str:
    """Hex digits derived from the seed and the parts, so that a restarted world behaves the same."""
    return hashlib.blake2b(":".join(map(str, (seed, *parts))).encode(), digest_size=size).hexdigest()


def fraction(seed: int, *parts: object) -> float:
    """A seeded number in [0, 1)."""
    return int(secret(seed, *parts, size=4), 16) / 2**32
