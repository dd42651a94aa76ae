"""Requests that create or upgrade an instance."""

from dataclasses import field
from typing import Any

from pydantic import SecretStr

from server.novita.models.base import model
from server.novita.models.instance import Env, Tool


@model
class Port:
    """A port to open; `type` is http or tcp."""

    port: int
    type: str


@model
class StorageMount:
    storage_id: str
    mount_point: str


@model
class CreateInstance:
    """A create request. It never names a template: a template's fields are copied into it."""

    name: str
    product_id: str
    image: str
    rootfs_gb: int
    gpu_count: int = 1
    kind: str = "gpu"
    cluster_id: str | None = None  # None lets the provider choose
    billing_mode: str | None = None  # onDemand, monthly or spot; None is the product's default
    ports: tuple[Port, ...] = ()
    envs: tuple[Env, ...] = ()
    tools: tuple[Tool, ...] = ()
    command: str | None = field(default=None, repr=False)
    entrypoint: str | None = field(default=None, repr=False)
    image_auth_id: str | None = None
    image_auth: SecretStr | None = None  # "user:password"; prefer the id of a stored one
    network_storages: tuple[StorageMount, ...] = ()
    network_id: str | None = None
    months: int | None = None
    auto_renew: bool | None = None
    auto_renew_months: int | None = None
    min_cuda_version: str | None = None
    local_storage_mount_point: str | None = None  # cpu kind only

    def secrets(self) -> tuple[SecretStr, ...]:
        image_auth = (self.image_auth,) if self.image_auth else ()
        return (*image_auth, *env_secrets(self.envs))

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "name": self.name,
            "productId": self.product_id,
            "rootfsSize": self.rootfs_gb,
            "imageUrl": self.image,
            "kind": self.kind,
            "gpuNum": self.gpu_count if self.kind == "gpu" else None,
            "clusterId": self.cluster_id,
            "billingMode": self.billing_mode,
            # The provider takes a string here, objects in an edit and groups in a template.
            "ports": ",".join(f"{port.port}/{port.type}" for port in self.ports) or None,
            "envs": envs_to_json(self.envs) or None,
            "tools": [{"name": tool.name, "port": str(tool.port), "type": tool.type} for tool in self.tools] or None,
            "command": self.command,
            "entrypoint": self.entrypoint,
            "imageAuthId": self.image_auth_id,
            "imageAuth": self.image_auth.get_secret_value() if self.image_auth else None,
            "networkStorages": [
                {"Id": mount.storage_id, "mountPoint": mount.mount_point} for mount in self.network_storages
            ]
            or None,
            "networkId": self.network_id,
            "month": self.months,
            "autoRenew": self.auto_renew,
            "autoRenewMonth": self.auto_renew_months,
            "minCudaVersion": self.min_cuda_version,
            "localStorageMountPoint": self.local_storage_mount_point,
        }
        return {name: value for name, value in body.items() if value is not None}


@model
class UpgradeInstance:
    """All new start settings. `network_storages` None keeps the mounted ones."""

    image: str
    image_auth_id: str | None = None
    envs: tuple[Env, ...] = ()
    command: str = field(default="", repr=False)
    entrypoint: str | None = field(default=None, repr=False)
    keep_data: bool = True
    network_storages: tuple[StorageMount, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "imageUrl": self.image,
            "envs": envs_to_json(self.envs),
            "command": self.command,
            "save": self.keep_data,
        }
        if self.image_auth_id is not None:
            body["imageAuthId"] = self.image_auth_id
        if self.entrypoint is not None:
            body["entrypoint"] = self.entrypoint
        if self.network_storages is not None:
            mounts = [
                {"type": "network", "id": each.storage_id, "mountPath": each.mount_point}
                for each in self.network_storages
            ]
            body["networkVolume"] = {"volumeMounts": mounts}
        return body


def env_secrets(envs: tuple[Env, ...]) -> tuple[SecretStr, ...]:
    """Values to redact in error messages; very short ones are left, they would redact half of any sentence."""
    return tuple(SecretStr(env.value) for env in envs if len(env.value) >= 8)


def envs_to_json(envs: tuple[Env, ...]) -> list[dict[str, str]]:
    return [{"key": env.key, "value": env.value} for env in envs]
