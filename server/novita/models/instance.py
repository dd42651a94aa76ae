"""An instance as Novita returns it."""

from dataclasses import field
from datetime import datetime

from pydantic import SecretStr

from server.novita.models.base import model
from server.novita.models.catalog import region_code
from server.novita.transport.json_reader import JsonReader


@model
class Endpoint:
    """A port of the instance; `address` is a URL for http, host:port for tcp, None until the instance runs."""

    port: int
    type: str
    address: str | None


@model
class Env:
    key: str
    value: str = field(repr=False)  # often a secret


@model
class Tool:
    name: str
    port: int
    type: str


@model
class Volume:
    type: str
    id: str | None
    size_gb: int | None
    mount_path: str


@model
class StatusError:
    """The only report of a failure: there is no failed status."""

    state: str
    message: str


@model
class Ssh:
    """SSH access. All of it changes with every start."""

    command: str | None
    password: SecretStr | None
    is_running: bool


@model
class WebTerminal:
    address: str | None = field(repr=False)
    username: str | None
    password: SecretStr | None
    is_running: bool


@model
class Jupyter:
    port: int | None
    address: str | None = field(repr=False)  # may carry its token
    is_running: bool


@model
class Logs:
    system_address: str | None = field(repr=False)
    instance_address: str | None = field(repr=False)
    is_running: bool


@model
class RemoteInstance:
    """One machine at the provider. `status` is the provider's own word, known to us or not."""

    id: str
    name: str
    status: str
    cluster_id: str | None
    cluster_name: str | None
    region: str | None
    product_id: str | None
    product_name: str | None
    kind: str | None
    gpu_count: int | None
    cpu_count: int | None
    memory_gb: int | None
    rootfs_gb: int | None
    image: str | None
    image_auth_id: str | None
    command: str | None = field(repr=False)
    entrypoint: str | None = field(repr=False)
    endpoints: tuple[Endpoint, ...]
    envs: tuple[Env, ...]
    tools: tuple[Tool, ...]
    volumes: tuple[Volume, ...]
    network_id: str | None
    network_ip: str | None
    status_error: StatusError | None
    billing_mode: str | None
    price_e5: int | None
    end_at: datetime | None
    spot_status: str | None
    spot_reclaim_at: datetime | None
    created_at: datetime | None
    last_started_at: datetime | None
    last_stopped_at: datetime | None
    used_seconds: int | None
    keep_data_days: int | None
    ssh: Ssh | None
    web_terminal: WebTerminal | None
    jupyter: Jupyter | None
    logs: Logs | None
    jobs: tuple[str, ...]  # kinds of background work under way; most calls are refused meanwhile

    @classmethod
    def read(cls, raw: JsonReader) -> "RemoteInstance":
        cluster_name = raw.optional_text("clusterName")
        network = raw.nested("network")
        return cls(
            id=raw.required_id("id"),
            name=raw.text("name"),
            status=raw.text("status"),
            cluster_id=raw.optional_text("clusterId"),
            cluster_name=cluster_name,
            region=region_code(cluster_name) if cluster_name else None,
            product_id=raw.optional_text("productId"),
            product_name=raw.optional_text("productName"),
            kind=raw.optional_text("kind"),
            gpu_count=raw.integer("gpuNum"),
            cpu_count=raw.integer("cpuNum"),
            memory_gb=raw.integer("memory"),
            rootfs_gb=raw.integer("rootfsSize"),
            image=raw.optional_text("imageUrl"),
            image_auth_id=raw.optional_text("imageAuthId"),
            command=raw.optional_text("command"),
            entrypoint=raw.optional_text("entrypoint"),
            endpoints=read_endpoints(raw),
            envs=read_envs(raw),
            tools=read_tools(raw),
            volumes=read_volumes(raw, "volumeMounts"),
            network_id=network.optional_text("id"),
            network_ip=network.optional_text("ip"),
            status_error=_status_error(raw.nested("statusError")),
            billing_mode=raw.optional_text("billingMode"),
            price_e5=raw.money("instancePrice"),
            end_at=raw.time("endTime"),
            spot_status=raw.optional_text("spotStatus"),
            spot_reclaim_at=raw.time("spotReclaimTime"),
            created_at=raw.time("createdAt"),
            last_started_at=raw.time("lastStartedAt"),
            last_stopped_at=raw.time("lastStoppedAt"),
            used_seconds=raw.integer("useTime"),
            keep_data_days=raw.integer("keepDataDay"),
            ssh=_ssh(raw),
            web_terminal=_web_terminal(raw.nested("connectComponentWebTerminal")),
            jupyter=_jupyter(raw.nested("connectComponentJupyter")),
            logs=_logs(raw.nested("connectComponentLog")),
            jobs=tuple(job.text("type") for job in raw.objects("jobs")),
        )


def read_endpoints(raw: JsonReader) -> tuple[Endpoint, ...]:
    return tuple(
        [
            Endpoint(port, item.text("type"), item.optional_text("endpoint"))
            for item in raw.objects("portMappings")
            if (port := item.integer("port")) is not None
        ]
    )


def read_envs(raw: JsonReader) -> tuple[Env, ...]:
    return tuple([Env(item.text("key"), item.text("value")) for item in raw.objects("envs")])


def read_tools(raw: JsonReader) -> tuple[Tool, ...]:
    return tuple(
        [
            Tool(item.text("name"), port, item.text("type"))
            for item in raw.objects("tools")
            if (port := item.integer("port")) is not None
        ]
    )


def read_volumes(raw: JsonReader, name: str) -> tuple[Volume, ...]:
    return tuple(
        [
            Volume(item.text("type"), item.optional_text("id"), item.integer("size"), item.text("mountPath"))
            for item in raw.objects(name)
        ]
    )


def _status_error(raw: JsonReader) -> StatusError | None:
    state, message = raw.text("state"), raw.text("message")
    return StatusError(state, message) if state or message else None


def _ssh(raw: JsonReader) -> Ssh | None:
    component = raw.nested("connectComponentSSH")
    # The two flat fields are from the documents of 2024, set only while it runs.
    command = component.optional_text("sshCommand") or raw.optional_text("sshCommand")
    password = component.optional_text("password") or raw.optional_text("sshPassword")
    if command is None and password is None:
        return None
    return Ssh(command, _secret(password), component.flag("isRunning", default=True))


def _web_terminal(raw: JsonReader) -> WebTerminal | None:
    address = raw.optional_text("address")
    if address is None:
        return None
    return WebTerminal(
        address, raw.optional_text("username"), _secret(raw.optional_text("password")), raw.flag("isRunning")
    )


def _jupyter(raw: JsonReader) -> Jupyter | None:
    address = raw.optional_text("address")
    return Jupyter(raw.integer("port"), address, raw.flag("isRunning")) if address else None


def _logs(raw: JsonReader) -> Logs | None:
    system, instance = raw.optional_text("systemLogAddress"), raw.optional_text("instanceLogAddress")
    return Logs(system, instance, raw.flag("isRunning")) if system or instance else None


def _secret(value: str | None) -> SecretStr | None:
    return SecretStr(value) if value else None
