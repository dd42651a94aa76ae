"""An instance as Novita describes it."""

from dataclasses import field
from datetime import datetime

from pydantic import SecretStr

from server.novita.fields import Fields
from server.novita.wire.catalog import region_code
from server.novita.wire.value import value


@value
class Endpoint:
    """A port of the instance; `address` is a URL for http, host:port for tcp, None until the instance runs."""

    port: int
    type: str
    address: str | None


@value
class Env:
    key: str
    value: str = field(repr=False)  # tokens of all kinds are handed to machines this way


@value
class Tool:
    name: str
    port: int
    type: str


@value
class Volume:
    type: str
    id: str | None
    size_gb: int | None
    mount_path: str


@value
class StatusError:
    """The only way a failure is reported: there is no failed status."""

    state: str
    message: str


@value
class Ssh:
    """How to log in. All of it changes with every start."""

    command: str | None
    password: SecretStr | None
    is_running: bool


@value
class WebTerminal:
    address: str | None = field(repr=False)
    username: str | None
    password: SecretStr | None
    is_running: bool


@value
class Jupyter:
    port: int | None
    address: str | None = field(repr=False)  # may carry its token
    is_running: bool


@value
class Logs:
    system_address: str | None = field(repr=False)
    instance_address: str | None = field(repr=False)
    is_running: bool


@value
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
    def read(cls, raw: Fields) -> "RemoteInstance":
        cluster_name = raw.maybe("clusterName")
        network = raw.within("network")
        return cls(
            id=raw.identity("id"),
            name=raw.text("name"),
            status=raw.text("status"),
            cluster_id=raw.maybe("clusterId"),
            cluster_name=cluster_name,
            region=region_code(cluster_name) if cluster_name else None,
            product_id=raw.maybe("productId"),
            product_name=raw.maybe("productName"),
            kind=raw.maybe("kind"),
            gpu_count=raw.integer("gpuNum"),
            cpu_count=raw.integer("cpuNum"),
            memory_gb=raw.integer("memory"),
            rootfs_gb=raw.integer("rootfsSize"),
            image=raw.maybe("imageUrl"),
            image_auth_id=raw.maybe("imageAuthId"),
            command=raw.maybe("command"),
            entrypoint=raw.maybe("entrypoint"),
            endpoints=read_endpoints(raw),
            envs=read_envs(raw),
            tools=read_tools(raw),
            volumes=read_volumes(raw, "volumeMounts"),
            network_id=network.maybe("id"),
            network_ip=network.maybe("ip"),
            status_error=_status_error(raw.within("statusError")),
            billing_mode=raw.maybe("billingMode"),
            price_e5=raw.money("instancePrice"),
            end_at=raw.time("endTime"),
            spot_status=raw.maybe("spotStatus"),
            spot_reclaim_at=raw.time("spotReclaimTime"),
            created_at=raw.time("createdAt"),
            last_started_at=raw.time("lastStartedAt"),
            last_stopped_at=raw.time("lastStoppedAt"),
            used_seconds=raw.integer("useTime"),
            keep_data_days=raw.integer("keepDataDay"),
            ssh=_ssh(raw),
            web_terminal=_web_terminal(raw.within("connectComponentWebTerminal")),
            jupyter=_jupyter(raw.within("connectComponentJupyter")),
            logs=_logs(raw.within("connectComponentLog")),
            jobs=tuple(job.text("type") for job in raw.objects("jobs")),
        )


def read_endpoints(raw: Fields) -> tuple[Endpoint, ...]:
    return tuple(
        [
            Endpoint(port, item.text("type"), item.maybe("endpoint"))
            for item in raw.objects("portMappings")
            if (port := item.integer("port")) is not None
        ]
    )


def read_envs(raw: Fields) -> tuple[Env, ...]:
    return tuple([Env(item.text("key"), item.text("value")) for item in raw.objects("envs")])


def read_tools(raw: Fields) -> tuple[Tool, ...]:
    return tuple(
        [
            Tool(item.text("name"), port, item.text("type"))
            for item in raw.objects("tools")
            if (port := item.integer("port")) is not None
        ]
    )


def read_volumes(raw: Fields, name: str) -> tuple[Volume, ...]:
    return tuple(
        [
            Volume(item.text("type"), item.maybe("id"), item.integer("size"), item.text("mountPath"))
            for item in raw.objects(name)
        ]
    )


def _status_error(raw: Fields) -> StatusError | None:
    state, message = raw.text("state"), raw.text("message")
    return StatusError(state, message) if state or message else None


def _ssh(raw: Fields) -> Ssh | None:
    component = raw.within("connectComponentSSH")
    # The two flat fields are from the documents of 2024, and there only while it runs.
    command = component.maybe("sshCommand") or raw.maybe("sshCommand")
    password = component.maybe("password") or raw.maybe("sshPassword")
    if command is None and password is None:
        return None
    return Ssh(command, _secret(password), component.flag("isRunning", default=True))


def _web_terminal(raw: Fields) -> WebTerminal | None:
    address = raw.maybe("address")
    if address is None:
        return None
    return WebTerminal(address, raw.maybe("username"), _secret(raw.maybe("password")), raw.flag("isRunning"))


def _jupyter(raw: Fields) -> Jupyter | None:
    address = raw.maybe("address")
    return Jupyter(raw.integer("port"), address, raw.flag("isRunning")) if address else None


def _logs(raw: Fields) -> Logs | None:
    system, instance = raw.maybe("systemLogAddress"), raw.maybe("instanceLogAddress")
    return Logs(system, instance, raw.flag("isRunning")) if system or instance else None


def _secret(value: str | None) -> SecretStr | None:
    return SecretStr(value) if value else None
