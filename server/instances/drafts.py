"""Requests of callers and their checks. All problems are found before any call of the provider."""

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, ClassVar

from server.clock import now
from server.db.tables import Instance
from server.db.text import is_storable
from server.enums import Billing, InstanceKind, PlacementOrder, StartStep
from server.errors import Invalid, Problem
from server.idempotency import MAX_KEY
from server.instances.env import MAX_ENV, MAX_ENV_OF_CPU
from server.instances.limits.spec import Lifetime
from server.instances.recovery.spec import Recovery
from server.instances.start_steps import step_problems
from server.instances.tools import MAX_PORTS, Tool, tool_problems
from server.market.wait_draft import WaitDraft, no_capacity_problems
from server.probes.plan import HealthCheckDraft
from server.ssrf import PrivateAddresses
from server.volumes.draft import VolumeMount, mount_problems
from server.webhooks.urls import url_problem

MAX_NAME = 255
MAX_COMMAND = 2047
MAX_IMAGE = 500
MAX_ENV_KEY = 511
MAX_ENV_VALUE = 4095
MAX_LABELS, MAX_LABEL, MAX_LABEL_VALUE = 64, 63, 255
MAX_REGIONS = 20
READY_TIMEOUT_MIN, READY_TIMEOUT_MAX = timedelta(minutes=1), timedelta(hours=24)
ANY_REGION = "ANY"
# In 1/100000 USD per hour. No GPU costs less, no machine costs more; outside, dollars or cents were given as micros.
PRICE_MIN, PRICE_MAX = 100, 100_000_000
RESERVED_PORTS = frozenset({2222, 2223, 2224})  # used by the provider
PORT_TYPES = ("http", "tcp")
ENV_KEY = re.compile(r"[^=\x00-\x20\x7f]+")
CUDA_VERSION = re.compile(r"[1-9]\d?\.\d{1,2}")
NOT_ABOVE_ZERO = re.compile(r"-\d+|\+?0+")


@dataclass(frozen=True, slots=True)
class Port:
    """A port that the instance exposes."""

    port: int
    type: str


@dataclass(frozen=True, slots=True)
class CreateDraft:
    """A request to create an instance. `None` means that the template decides."""

    FIRST_FIELDS: ClassVar = frozenset(
        [
            "name",
            "product_name",
            "template_id",
            "image",
            "registry_auth_id",
            "gpu_count",
            "rootfs_size_gb",
            "region",
            "regions",
            "billing",
            "max_hourly_price_e5",
            "env",
            "ports",
            "command",
            "labels",
            "health_check",
            "webhook_url",
        ]
    )
    name: str
    product_name: str
    template_id: str | None = None
    image: str | None = None
    registry_auth_id: str | None = None
    gpu_count: int = 1
    rootfs_size_gb: int | None = None
    region: str | None = None
    regions: tuple[str, ...] = ()
    billing: Billing = Billing.SPOT_THEN_ON_DEMAND
    max_hourly_price_e5: int | None = None
    env: Mapping[str, str] | None = None
    ports: tuple[Port, ...] | None = None
    command: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    health_check: HealthCheckDraft = field(default_factory=HealthCheckDraft)
    webhook_url: str | None = None
    secret_env: tuple[tuple[str, bool], ...] = ()  # whether a variable is secret, where the caller says so
    idempotency_key: str | None = None
    placement: PlacementOrder | None = None
    kind: InstanceKind = InstanceKind.GPU
    entrypoint: str | None = None
    tools: tuple[Tool, ...] | None = None
    min_cuda_version: str | None = None
    network_id: str | None = None
    volumes: tuple[VolumeMount, ...] = ()
    ready_timeout: timedelta | None = None
    lifetime: Lifetime | None = None
    quote_id: str | None = None
    max_price_drift: float = 0
    recovery: Recovery | None = None
    on_no_capacity: WaitDraft | None = None
    # Problems found while the input was read; reported together with the others.
    unreadable: tuple[Problem, ...] = ()

    @property
    def is_any_region(self) -> bool:
        """Whether `regions` is the word ANY."""
        return [region.strip().upper() for region in self.regions] == [ANY_REGION]

    @property
    def gpus(self) -> int:
        """The number of GPUs; 0 stands for a CPU instance everywhere below the API."""
        return self.gpu_count if self.kind is InstanceKind.GPU else 0

    def check(self, private_addresses: PrivateAddresses = PrivateAddresses.OFF) -> None:
        """Raise Invalid with every problem. `private_addresses` says which webhook receivers are allowed."""
        problems = [*self.problems(), *webhook_problems(self.webhook_url, private_addresses)]
        if problems:
            raise Invalid(problems)

    def problems(self) -> Iterator[Problem]:
        yield from name_problems(self.name, ("input", "name"))
        if not _is_filled(self.product_name, MAX_NAME):
            yield _problem("INVALID_PRODUCT_NAME", "The product's name must have 1 to 255 characters.", "productName")
        yield from self._source_problems()
        yield from self._kind_problems()
        if self.rootfs_size_gb is not None and not 10 <= self.rootfs_size_gb <= 1000:
            yield _problem("INVALID_ROOTFS_SIZE", "The root disk has 10 to 1000 GB.", "rootfsSizeGb")
        if self.region is not None and not _is_filled(self.region, MAX_NAME):
            yield _problem("INVALID_REGION", "The region must not be empty.", "region")
        if len(self.regions) > MAX_REGIONS or not all(_is_filled(region, MAX_NAME) for region in self.regions):
            yield _problem("INVALID_REGION", f"Name at most {MAX_REGIONS} regions, none of them empty.", "regions")
        if self.max_hourly_price_e5 is not None and not PRICE_MIN <= self.max_hourly_price_e5 <= PRICE_MAX:
            message = (
                f"{self.max_hourly_price_e5 / 100_000:.5f} USD an hour must be a mistake: give 0.001 to 1000 USD, in "
                "millionths. 0.35 USD is amountMicros 350000."
            )
            yield _problem("INVALID_MAX_HOURLY_PRICE", message, "maxHourlyPrice")
        yield from command_problems(self.command, self.entrypoint)
        if self.network_id is not None and not _is_filled(self.network_id, MAX_NAME):
            yield _problem("INVALID_NETWORK_ID", "A network's id must not be empty.", "networkId")
        yield from mount_problems(self.volumes)
        if self.idempotency_key is not None and not _is_filled(self.idempotency_key, MAX_KEY):
            yield _problem("INVALID_IDEMPOTENCY_KEY", f"The key has 1 to {MAX_KEY} characters.", "idempotencyKey")
        yield from env_problems(self.env or {})
        yield from port_problems(self.ports or ())
        yield from tool_problems(self.tools or (), {port.port: port.type for port in self.ports or ()})
        yield from label_problems(self.labels)
        yield from self.health_check.problems(("input", "healthCheck"))
        yield from _ready_timeout_problems(self.ready_timeout)
        if self.ports is not None:
            exposed = {port.port for port in self.ports}
            yield from target_problems(self.health_check, exposed, ("input", "healthCheck", "targetPort"))
        if self.lifetime is not None:
            yield from self.lifetime.problems(("input", "lifetime"), at=now())
        if self.recovery is not None:
            yield from self.recovery.problems(("input", "recovery"))
        yield from no_capacity_problems(self.on_no_capacity)
        yield from self.unreadable

    def _kind_problems(self) -> Iterator[Problem]:
        if self.kind is InstanceKind.OTHER:
            yield _problem("INVALID_KIND", "The kind is GPU or CPU.", "kind")
        is_cpu = self.kind is InstanceKind.CPU
        if is_cpu and self.gpu_count not in (0, 1):  # 1 is the default of the input
            yield _problem("INVALID_GPU_COUNT", "A CPU instance has no GPUs.", "gpuCount")
        if not is_cpu and not 1 <= self.gpu_count <= 8:
            yield _problem("INVALID_GPU_COUNT", "An instance has 1 to 8 GPUs.", "gpuCount")
        if is_cpu and len(self.env or {}) > MAX_ENV_OF_CPU:
            yield _problem("INVALID_ENV", f"A CPU instance takes {MAX_ENV_OF_CPU} environment variables.", "env")
        if self.min_cuda_version is not None and (is_cpu or not CUDA_VERSION.fullmatch(self.min_cuda_version)):
            message = "A CPU instance has no CUDA." if is_cpu else "A CUDA version looks like 12.4."
            yield _problem("INVALID_MIN_CUDA_VERSION", message, "minCudaVersion")

    def _source_problems(self) -> Iterator[Problem]:
        if (self.template_id is None) == (self.image is None):
            yield _problem("INVALID_TEMPLATE_ID", "Give either a templateId or an image.", "templateId")
        if self.template_id is not None and not _is_template_id(self.template_id):
            yield _problem(
                "INVALID_TEMPLATE_ID", "A template's id must not be empty or a number below 1.", "templateId"
            )
        yield from image_problems(self.image, self.registry_auth_id)


def name_problems(name: str, path: tuple[str, ...]) -> Iterator[Problem]:
    if not name.strip() or len(name) > MAX_NAME or not name.isprintable():
        yield Problem("INVALID_INSTANCE_NAME", f"A name has 1 to {MAX_NAME} printable characters.", path)


def image_problems(image: str | None, registry_auth_id: str | None) -> Iterator[Problem]:
    if image is not None and not _is_filled(image, MAX_IMAGE):
        yield _problem("INVALID_IMAGE", f"The image's name has 1 to {MAX_IMAGE} characters.", "image")
    if registry_auth_id is not None and not _is_filled(registry_auth_id, MAX_NAME):
        yield _problem("INVALID_REGISTRY_AUTH_ID", "A registry auth's id must not be empty.", "registryAuthId")


def command_problems(command: str | None, entrypoint: str | None) -> Iterator[Problem]:
    if command is not None and (len(command) > MAX_COMMAND or not is_storable(command)):
        yield _problem("INVALID_COMMAND", f"The command has at most {MAX_COMMAND} characters.", "command")
    if entrypoint is not None and (len(entrypoint) > MAX_COMMAND or not is_storable(entrypoint)):
        yield _problem("INVALID_ENTRYPOINT", f"The entrypoint has at most {MAX_COMMAND} characters.", "entrypoint")


def webhook_problems(url: str | None, private_addresses: PrivateAddresses) -> Iterator[Problem]:
    problem = None if url is None else url_problem(url, private_addresses)
    if problem is not None:
        yield _problem("INVALID_WEBHOOK_URL", problem, "webhookUrl")


def target_problems(check: HealthCheckDraft, exposed: Set[int], path: tuple[str, ...]) -> Iterator[Problem]:
    """Only an exposed port can be probed."""
    if check.target_port is not None and check.target_port not in exposed:
        message = f"Port {check.target_port} is not among the ports that the instance exposes."
        yield Problem("TARGET_PORT_NOT_EXPOSED", message, path)


def label_problems(labels: Mapping[str, str]) -> Iterator[Problem]:
    if len(labels) > MAX_LABELS:
        yield _problem("INVALID_LABEL", f"An instance has at most {MAX_LABELS} labels.", "labels")
    for key, value in labels.items():
        if not 1 <= len(key) <= MAX_LABEL or len(value) > MAX_LABEL_VALUE or not is_storable(key + value):
            yield _problem(
                "INVALID_LABEL",
                f"A label's name has 1 to {MAX_LABEL} characters, its value at most {MAX_LABEL_VALUE}.",
                "labels",
                _shown(key),
            )


def env_problems(env: Mapping[str, str]) -> Iterator[Problem]:
    if len(env) > MAX_ENV:
        yield _problem("INVALID_ENV", f"At most {MAX_ENV} environment variables fit.", "env")
    for key, value in env.items():
        is_short = len(key) <= MAX_ENV_KEY and len(value) <= MAX_ENV_VALUE
        if not ENV_KEY.fullmatch(key) or not is_short or not is_storable(key + value):
            yield _problem(
                "INVALID_ENV",
                f"A variable's name has 1 to {MAX_ENV_KEY} characters without spaces and '=', "
                f"its value at most {MAX_ENV_VALUE}.",
                "env",
                _shown(key),
            )


def port_problems(ports: Sequence[Port]) -> Iterator[Problem]:
    if len(ports) > MAX_PORTS:
        yield _problem("INVALID_PORT", f"At most {MAX_PORTS} ports fit.", "ports")
    for index, port in enumerate(ports):
        if not is_possible_port(port):
            yield _problem(
                "INVALID_PORT",
                "A port is 1 to 65535 without 2222, 2223 and 2224, of type http or tcp.",
                "ports",
                str(index),
            )
    if len({port.port for port in ports}) != len(ports):
        yield _problem("INVALID_PORT", "A port is given twice.", "ports")


def _ready_timeout_problems(timeout: timedelta | None) -> Iterator[Problem]:
    if timeout is not None and not READY_TIMEOUT_MIN <= timeout <= READY_TIMEOUT_MAX:
        yield _problem("INVALID_READY_TIMEOUT", "It must be 60 to 86400 seconds.", "readyTimeout")


def ready_timeout_fields(timeout: timedelta | None) -> dict[str, Any]:
    """The columns of a requested timeout; none if the present one stays."""
    return {} if timeout is None else {"ready_timeout_seconds": round(timeout.total_seconds())}


def is_possible_port(port: Port) -> bool:
    return 1 <= port.port <= 65535 and port.port not in RESERVED_PORTS and port.type in PORT_TYPES


def _is_filled(text: str, longest: int) -> bool:
    return bool(text.strip()) and len(text) <= longest and is_storable(text)


def _is_template_id(value: str) -> bool:
    return _is_filled(value, MAX_NAME) and value.strip() == value and not NOT_ABOVE_ZERO.fullmatch(value)


def _shown(key: str) -> str:
    """A refused key, shortened and encodable, for the error's path."""
    return key[:MAX_LABEL].encode("utf-8", "replace").decode()


def _problem(code: str, message: str, *path: str) -> Problem:
    return Problem(code, message, ("input", *path))


TARGET_PORT = ("input", "targetPort")


@dataclass(frozen=True, slots=True)
class StartDraft:
    """`health_check` replaces the stored one; `target_port` overrides the port in it."""

    FIRST_FIELDS: ClassVar = frozenset[str]()
    health_check: HealthCheckDraft | None = None
    webhook_url: str | None = None
    target_port: int | None = None
    ready_timeout: timedelta | None = None
    lifetime: Lifetime | None = None
    steps: tuple[StartStep, ...] = (StartStep.SAME,)
    allow_data_loss: bool = False
    on_no_capacity: WaitDraft | None = None

    def check(self, private_addresses: PrivateAddresses) -> None:
        """Raise Invalid with every problem of the request itself."""
        problems = [*self.problems(), *webhook_problems(self.webhook_url, private_addresses)]
        if problems:
            raise Invalid(problems)

    def fields(self, instance: Instance) -> dict[str, Any]:
        """The columns to write; raises Invalid if they do not fit the instance."""
        fields = ready_timeout_fields(self.ready_timeout)
        check = self.health_check
        if self.target_port is not None:
            check = replace(check or HealthCheckDraft(), target_port=self.target_port)
        if check is not None:
            exposed = {int(each["port"]) for each in (*instance.ports, *instance.endpoints)}
            path = TARGET_PORT if self.target_port is not None else ("input", "healthCheck", "targetPort")
            problems = list(target_problems(check, exposed, path))
            if problems:
                raise Invalid(problems)
            before = instance.health_check if self.health_check is None else {}
            fields["health_check"] = {**before, **check.to_json()}
        if self.webhook_url is not None:
            fields |= {"webhook_url": self.webhook_url, "webhook_disabled_at": None}
        return fields

    def problems(self) -> Iterator[Problem]:
        yield from _ready_timeout_problems(self.ready_timeout)
        yield from step_problems(self.steps, ("input",), allow_data_loss=self.allow_data_loss)
        if self.lifetime is not None:
            yield from self.lifetime.problems(("input", "lifetime"), at=now())
        yield from no_capacity_problems(self.on_no_capacity)
        if self.health_check is not None:
            yield from self.health_check.problems(("input", "healthCheck"))
        if self.target_port is not None and not 1 <= self.target_port <= 65535:
            yield Problem("INVALID_HEALTH_CHECK", "It must be 1 to 65535.", TARGET_PORT)
