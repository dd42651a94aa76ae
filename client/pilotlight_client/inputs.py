"""What the methods take, as types. Written by `make client`."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Literal

from typing_extensions import Required, TypedDict

from pilotlight_client.models import (
    Billing,
    BillingMode,
    BudgetAction,
    BudgetPeriod,
    HealthStatus,
    InstanceKind,
    InstanceStatus,
    LifetimeAction,
    PlacementOrder,
    RecoveryBilling,
    RecoveryTrigger,
    StartStep,
    ToolName,
)
from pilotlight_client.values import Money


class EnvVariableInput(TypedDict, total=False):
    """An environment variable."""

    key: Required[str]
    """The name."""
    secret: bool
    """Whether the value is never shown again. Default: true if the name contains TOKEN, PASSWORD, KEY or another word of the list in docs/api.md."""
    value: Required[str]
    """The value."""


class HealthCheckInput(TypedDict, total=False):
    """Health checks before and after an instance becomes READY. Omitted fields use the server's defaults."""

    delay: timedelta | float
    """Delay before the first retry, 0.1 to 30 s; it doubles with each retry."""
    expected_statuses: Sequence[int]
    """HTTP statuses that count as healthy, at most 20. Default: all below 400."""
    failure_threshold: int
    """Consecutive failed probes after which it is degraded, 1 to 10."""
    interval: timedelta | float
    """How often it is probed while READY, 10 to 3600 s; 0: never."""
    max_wait: timedelta | float
    """Total time until the instance becomes FAILED, 30 to 1800 s."""
    path: str
    """Path requested from http endpoints, such as /health."""
    retries: int
    """Retries of an unhealthy endpoint within one check, 0 to 10."""
    success_threshold: int
    """Consecutive successful probes after which it is not degraded any more, 1 to 10."""
    target_port: int
    """The only port to check, http or tcp. Default: all ports, if any is http."""
    timeout: timedelta | float
    """Timeout of one probe, 1 to 300 s."""


class KeyValueInput(TypedDict, total=False):
    """A name and its value."""

    key: Required[str]
    """The name."""
    value: Required[str]
    """The value."""


class IdleInput(TypedDict, total=False):
    """When an instance counts as idle, and what happens then."""

    action: LifetimeAction | Literal["DELETE", "STOP"]
    """What happens."""
    gpu_below_percent: int
    """A GPU is idle below this utilisation, 1 to 100 percent."""
    grace: timedelta | float
    """Time after the start of a run that is never idle, up to a day."""
    window: timedelta | float
    """How long every sample of every GPU has to be idle, 300 s to a day."""


class ScheduleInput(TypedDict, total=False):
    """Times at which an instance is started and stopped."""

    start: Sequence[str]
    """Cron expressions of five fields, such as `0 18 * * 1-5`; at most 10."""
    stop: Sequence[str]
    """Cron expressions of five fields, such as `0 18 * * 1-5`; at most 10."""
    timezone: str
    """Time zone of the expressions, such as Europe/Berlin."""


class LifetimeInput(TypedDict, total=False):
    """Limits of an instance's lifetime, enforced by the server. Give at least one."""

    deadline: datetime
    """Fixed end. A start does not move it. At least 300 s ahead."""
    delete_after_stopped: timedelta | float
    """Time in EXITED after which it is deleted, 600 s to 90 days."""
    heartbeat: timedelta | float
    """Longest time without a call of `heartbeat`, 60 s to 7 days."""
    idle: IdleInput
    """End of an instance whose GPUs are idle."""
    max_duration: timedelta | float
    """Longest run, from the provider's acceptance of its create or start: 300 s to 90 days."""
    on_end: LifetimeAction | Literal["DELETE", "STOP"]
    """What happens at the earliest of maxDuration, deadline and heartbeat."""
    schedule: ScheduleInput
    """Times at which it is started and stopped."""
    warn_before: timedelta | float
    """How long before an end `lifetime.ending` announces it, up to a day; another announces it at 60 s."""


class MoneyInput(TypedDict, total=False):
    """An exact amount of money."""

    amount_micros: Required[int]
    """Millionths of the currency: 350000 is 0.35 USD."""
    currency: str
    """Only USD."""


WaitInput = TypedDict("WaitInput", {"for": "timedelta | float", "until": "datetime"}, total=False)
"""How long to wait: for a time, or until one."""


class NoCapacityInput(TypedDict, total=False):
    """What to do while the provider has no capacity: wait for it in a fair order."""

    priority: int
    """0 to 100; among the waiting operations of a project the highest goes first, then the oldest. Projects take turns, whatever their priorities."""
    wait: Required[WaitInput]
    """How long to wait."""


class PortInput(TypedDict, total=False):
    """A port to expose."""

    port: Required[int]
    """Port number, 1 to 65535, except 2222, 2223 and 2224."""
    type: str
    """Protocol: http or tcp."""


class RecoveryInput(TypedDict, total=False):
    """How an instance comes back under its own id after a spot reclaim or the loss of its machine."""

    allow_data_loss: Required[bool]
    """Whether the data on the machine's own disks may be lost: MIGRATE, RELOCATE and replaceBeforeReclaim lose it. Without true, they are refused with DATA_LOSS_NOT_ALLOWED."""
    billing: RecoveryBilling | Literal["ON_DEMAND_AFTER", "SAME"]
    """How a new machine is billed."""
    drain: timedelta | float
    """How long the old machine stays after that, 0 to 3600 s."""
    give_up_after: timedelta | float
    """How long attempts are made, 60 s to 30 days."""
    on: Sequence[RecoveryTrigger | Literal["LOSS", "RECLAIM"]]
    """What it is recovered from."""
    regions: Sequence[str]
    """Regions of a new machine; default: those of the instance."""
    replace_before_reclaim: bool
    """Whether another machine is made when the provider announces a reclaim. Once it is healthy it takes over, and the instance stays READY. Not with volumes that only one machine can hold."""
    steps: Sequence[StartStep | Literal["MIGRATE", "RELOCATE", "SAME"]]
    """Steps of each attempt, tried in the order SAME, MIGRATE, RELOCATE. Default: all of them with allowDataLoss, else SAME."""


class InstanceSource(TypedDict, total=False):
    """Source of an instance: a template or an image."""

    image: str
    """Container image, such as nginx:1.27."""
    template_id: str
    """Id of a provider template: image, ports, environment, command, disk, tools, lowest CUDA version."""


class ToolInput(TypedDict, total=False):
    """A tool to run beside the container."""

    name: Required[ToolName | Literal["JUPYTER", "SSH"]]
    """SSH or JUPYTER."""
    port: int
    """Port to expose it on, 1 to 65535. Default: 22 for SSH, 8888 for JUPYTER."""


class VolumeMountInput(TypedDict, total=False):
    """A network volume to mount."""

    id: Required[str]
    """Id of the volume."""
    mount_path: Required[str]
    """Absolute path in the container, such as /data."""


class InstanceReference(TypedDict, total=False):
    """An instance, by id or by name."""

    id: str
    """Id of the instance."""
    name: str
    """Name of an instance that is not deleted."""


class LifetimeChange(TypedDict, total=False):
    """Change of an instance's lifetime."""

    remove: bool
    """true: remove all limits."""
    set: LifetimeInput
    """New limits; they replace all present ones."""


class RecoveryChange(TypedDict, total=False):
    """Change of an instance's recovery."""

    remove: bool
    """true: remove it."""
    set: RecoveryInput
    """New recovery; it replaces the present one."""


class WebhookChange(TypedDict, total=False):
    """Change of an instance's webhook."""

    remove: bool
    """true: remove the webhook."""
    url: str
    """New URL: http or https, publicly reachable."""


class LabelValuesInput(TypedDict, total=False):
    """A label with a list of values."""

    key: Required[str]
    """Label name, such as team."""
    values: Required[Sequence[str]]
    """Label values, 1 to 100, such as vision."""


LabelFilter = TypedDict(
    "LabelFilter",
    {
        "equals": "KeyValueInput",
        "exists": "str",
        "in": "LabelValuesInput",
        "missing": "str",
        "not_in": "LabelValuesInput",
    },
    total=False,
)
"""One condition on the labels of an instance."""


class BudgetScopeInput(TypedDict, total=False):
    """What a budget or a quota counts."""

    label: KeyValueInput
    """Instances with this label, as long as they have it."""
    project: bool
    """true: everything in the project."""
    token_id: str
    """What this token creates and starts."""


class CreateArguments(TypedDict, total=False):
    """The instance to create. Give exactly one of source, templateId and image."""

    billing: Billing | Literal["ON_DEMAND", "SPOT", "SPOT_THEN_ON_DEMAND"]
    """Billing option."""
    command: str
    """Start command; replaces the template's."""
    entrypoint: str
    """Entrypoint, replaces the template's and the image's; empty: the image's."""
    env: Mapping[str, str] | Sequence[EnvVariableInput]
    """Environment variables, at most 100; they override the template's."""
    gpu_count: int
    """Number of GPUs, 1 to 8; leave it out if the kind is CPU."""
    health_check: HealthCheckInput
    """Health check before the instance becomes READY."""
    idempotency_key: str
    """Client-chosen key, 1-255 characters. Repeating a request with the same key returns the first result and does nothing else."""
    image: str
    """Container image, such as nginx:1.27; short for `source: {image: ...}`."""
    kind: InstanceKind | Literal["CPU", "GPU"]
    """GPU, or CPU for a machine without one: name a CPU product, and leave gpuCount out."""
    labels: Mapping[str, str] | Sequence[KeyValueInput]
    """Your own labels, at most 64."""
    lifetime: LifetimeInput
    """Limits of its lifetime. Default: the project's, or none."""
    max_hourly_price: Money | Decimal | MoneyInput
    """Maximum price per hour of the whole instance, all GPUs together: 0.001 to 1000 USD. `{amountMicros: 350000}` is 0.35 USD."""
    max_price_drift: float
    """With quoteId: how far the price may be above the quoted one, 0 to 1; 0.05 is 5 %."""
    min_cuda_version: str
    """Lowest CUDA version of the node's driver, such as 12.4; replaces the template's. GPU only."""
    name: Required[str]
    """Name, 1 to 255 characters, unique among instances that are not deleted."""
    network_id: str
    """Id of a private network; the instance is created in its region."""
    on_no_capacity: NoCapacityInput
    """What to do while no region has capacity. Default: refuse it."""
    placement: PlacementOrder | Literal["PRICE", "REGION_ORDER"]
    """Order in which regions are tried. Default: PRICE if any region will do, else REGION_ORDER."""
    ports: Sequence[PortInput]
    """Ports to expose, at most 15; they replace the template's."""
    product: Required[str]
    """Product name, such as RTX 4090 24GB."""
    quote_id: str
    """Id of a quote for the same request: its region, billing mode and price are taken, or none (QUOTE_EXPIRED, QUOTE_MISMATCH, PRICE_DRIFTED)."""
    ready_timeout: timedelta | float
    """How long the machine may take to run before the operation fails with READY_TIMEOUT: 60 to 86400 s. Default: the server's INSTANCE_MAX_WAIT."""
    recovery: RecoveryInput
    """How it comes back after a spot reclaim or the loss of its machine. Default: not."""
    region: str
    """Region to try first, such as AS-SGP-02."""
    regions: Sequence[str]
    """Regions to try next, in order; "ANY" is every region. Default: the server's, or any."""
    registry_auth_id: str
    """Id of a stored registry credential for a private image; overrides the template's."""
    rootfs_size_gb: int
    """Root disk, 10 to 1000 GB. Default: the template's, but at least 60."""
    source: InstanceSource
    """Template or image."""
    template_id: str
    """Id of a provider template; short for `source: {templateId: ...}`."""
    tools: Sequence[ToolInput]
    """Tools to run beside the container; they replace the template's."""
    volumes: Sequence[VolumeMountInput]
    """Network volumes, at most 30; the instance is created in their region."""
    webhook_url: str
    """URL that receives the instance's events as signed webhooks: http or https, publicly reachable."""


class QuoteArguments(TypedDict, total=False):
    """The input of createInstance; name and source are optional."""

    billing: Billing | Literal["ON_DEMAND", "SPOT", "SPOT_THEN_ON_DEMAND"]
    """Billing option."""
    command: str
    """Start command; replaces the template's."""
    entrypoint: str
    """Entrypoint, replaces the template's and the image's; empty: the image's."""
    env: Mapping[str, str] | Sequence[EnvVariableInput]
    """Environment variables, at most 100; they override the template's."""
    gpu_count: int
    """Number of GPUs, 1 to 8; leave it out if the kind is CPU."""
    health_check: HealthCheckInput
    """Health check before the instance becomes READY."""
    image: str
    """Container image, such as nginx:1.27; short for `source: {image: ...}`."""
    kind: InstanceKind | Literal["CPU", "GPU"]
    """GPU, or CPU for a machine without one: name a CPU product, and leave gpuCount out."""
    labels: Mapping[str, str] | Sequence[KeyValueInput]
    """Your own labels, at most 64."""
    lifetime: LifetimeInput
    """Limits of its lifetime. Default: the project's, or none."""
    max_hourly_price: Money | Decimal | MoneyInput
    """Maximum price per hour of the whole instance, all GPUs together: 0.001 to 1000 USD. `{amountMicros: 350000}` is 0.35 USD."""
    min_cuda_version: str
    """Lowest CUDA version of the node's driver, such as 12.4; replaces the template's. GPU only."""
    name: str
    """Ignored."""
    network_id: str
    """Id of a private network; the instance is created in its region."""
    on_no_capacity: NoCapacityInput
    """What to do while no region has capacity. Default: refuse it."""
    placement: PlacementOrder | Literal["PRICE", "REGION_ORDER"]
    """Order in which regions are tried. Default: PRICE if any region will do, else REGION_ORDER."""
    ports: Sequence[PortInput]
    """Ports to expose, at most 15; they replace the template's."""
    product: Required[str]
    """Product name, such as RTX 4090 24GB."""
    ready_timeout: timedelta | float
    """How long the machine may take to run before the operation fails with READY_TIMEOUT: 60 to 86400 s. Default: the server's INSTANCE_MAX_WAIT."""
    recovery: RecoveryInput
    """How it comes back after a spot reclaim or the loss of its machine. Default: not."""
    region: str
    """Region to try first, such as AS-SGP-02."""
    regions: Sequence[str]
    """Regions to try next, in order; "ANY" is every region. Default: the server's, or any."""
    registry_auth_id: str
    """Id of a stored registry credential for a private image; overrides the template's."""
    rootfs_size_gb: int
    """Root disk, 10 to 1000 GB. Default: the template's, but at least 60."""
    source: InstanceSource
    """Template or image."""
    template_id: str
    """Id of a provider template; short for `source: {templateId: ...}`."""
    tools: Sequence[ToolInput]
    """Tools to run beside the container; they replace the template's."""
    volumes: Sequence[VolumeMountInput]
    """Network volumes, at most 30; the instance is created in their region."""
    webhook_url: str
    """URL that receives the instance's events as signed webhooks: http or https, publicly reachable."""


class StartArguments(TypedDict, total=False):
    """The instance to start. Give exactly one of `instance`, `id` and `name`."""

    allow_data_loss: bool
    """MIGRATE and RELOCATE lose the data on the machine's own disks; without true they are refused with DATA_LOSS_NOT_ALLOWED. Network volumes keep their data."""
    expected_version: int
    """Version you last read. The request is refused with VERSION_CONFLICT if the instance has changed since."""
    health_check: HealthCheckInput
    """New health check; replaces the stored one."""
    idempotency_key: str
    """Client-chosen key, 1-255 characters. Repeating a request with the same key returns the first result and does nothing else."""
    lifetime: LifetimeInput
    """New limits of its lifetime; they replace the stored ones."""
    on_no_capacity: NoCapacityInput
    """What to do while the provider has no capacity to start it. Default: fail."""
    ready_timeout: timedelta | float
    """How long the machine may take to run before the operation fails with READY_TIMEOUT: 60 to 86400 s. Default: the stored one."""
    steps: Sequence[StartStep | Literal["MIGRATE", "RELOCATE", "SAME"]]
    """Ways to start it, tried in the order SAME, MIGRATE, RELOCATE until the provider accepts one."""
    target_port: int
    """The only port to check; overrides the one in healthCheck."""
    webhook_url: str
    """New webhook URL."""


class VerbArguments(TypedDict, total=False):
    """The instance to stop."""

    expected_version: int
    """Version you last read. The request is refused with VERSION_CONFLICT if the instance has changed since."""
    idempotency_key: str
    """Client-chosen key, 1-255 characters. Repeating a request with the same key returns the first result and does nothing else."""


class UpdateArguments(TypedDict, total=False):
    """Changes to an instance; omitted fields stay unchanged."""

    expected_version: int
    """Version you last read. The request is refused with VERSION_CONFLICT if the instance has changed since."""
    idempotency_key: str
    """Client-chosen key, 1-255 characters. Repeating a request with the same key returns the first result and does nothing else."""
    labels: Mapping[str, str] | Sequence[KeyValueInput]
    """New labels, at most 64; they replace all present ones. Takes effect at once."""
    lifetime: LifetimeChange
    """New limits of its lifetime, or their removal. Takes effect at once."""
    name: str
    """New name. Takes effect at once."""
    ports: Sequence[PortInput]
    """New ports, at most 15; they replace all present ones. Applied by the provider."""
    recovery: RecoveryChange
    """New recovery, or its removal, which also ends one in progress. Takes effect at once."""
    rootfs_size_gb: int
    """New total size of the root disk, at most 1000 GB; it can only grow. Applied by the provider."""
    webhook: WebhookChange
    """New webhook, or its removal. Takes effect at once."""


class ListFilter(TypedDict, total=False):
    """Filter for instances; all given conditions must match. Without a filter: all that are not deleted."""

    billing_modes: Sequence[BillingMode | Literal["MONTHLY", "ON_DEMAND", "SPOT"]]
    """Any of these actual billing modes. OTHER matches nothing."""
    billings: Sequence[Billing | Literal["ON_DEMAND", "SPOT", "SPOT_THEN_ON_DEMAND"]]
    """Any of these requested billing options."""
    created_after: datetime
    """Created after this time."""
    created_before: datetime
    """Created before this time."""
    ends_before: datetime
    """The next stop or delete of its lifetime is before this time."""
    health: Sequence[HealthStatus | Literal["HEALTHY", "PARTIAL", "UNHEALTHY"]]
    """Any of these results of the latest health check."""
    ids: Sequence[str]
    """Ids of instances, 1 to 100."""
    is_degraded: bool
    """true: only degraded instances; false: only the others."""
    label_filters: Sequence[LabelFilter]
    """Conditions on labels, at most 20; all must match."""
    labels: Mapping[str, str] | Sequence[KeyValueInput]
    """All of these labels; short for `equals` in `labelFilters`."""
    max_price_per_hour: Money | Decimal | MoneyInput
    """Maximum `runningPricePerHour`; no price counts as 0."""
    min_price_per_hour: Money | Decimal | MoneyInput
    """Minimum `runningPricePerHour`; no price counts as 0."""
    name_contains: str
    """Part of the name, case-insensitive. An index is used from three characters on."""
    name_starts_with: str
    """Start of the name, case-insensitive."""
    product_names: Sequence[str]
    """Any of these product names."""
    regions: Sequence[str]
    """Any of these regions, such as AS-SGP-02."""
    stale: bool
    """true: only `stale` instances; false: only the others."""
    statuses: Sequence[
        InstanceStatus
        | Literal[
            "CREATING",
            "DELETED",
            "DELETING",
            "EXITED",
            "FAILED",
            "HEALTH_CHECKING",
            "MIGRATING",
            "READY",
            "RESTARTING",
            "RUNNING",
            "STARTING",
            "STOPPING",
        ]
    ]
    """Any of these statuses. DELETED instances are returned only if requested here."""


class ProductArguments(TypedDict, total=False):
    """Filter for products. Without a filter: all."""

    available_only: bool
    """Only products in stock, in any billing mode."""
    kind: InstanceKind | Literal["CPU", "GPU"]
    """Products with GPUs, or CPU products."""
    name: str
    """Part of the product name, such as 4090."""
    regions: Sequence[str]
    """Any of these regions."""


class BudgetArguments(TypedDict, total=False):
    """The budget to create."""

    action: BudgetAction | Literal["BLOCK", "DELETE", "NOTIFY", "STOP"]
    """What it does."""
    exempt: Sequence[LabelFilter]
    """Instances that match one of these, at most 20, are neither stopped nor deleted."""
    idempotency_key: str
    """Client-chosen key, 1-255 characters. Repeating a request with the same key returns the first result and does nothing else."""
    limit: Required[Money | Decimal | MoneyInput]
    """What may be spent in a period, in USD."""
    name: Required[str]
    """Unique name in the project, 1 to 100 characters."""
    period: Required[BudgetPeriod | Literal["DAY", "MONTH", "TOTAL", "WEEK"]]
    """After which time it begins anew."""
    scope: Required[BudgetScopeInput]
    """What it counts."""
    thresholds: Sequence[int]
    """Per cent of the limit, at most 10, that are announced once per period as events `budget.threshold`."""
    timezone: str
    """IANA time zone of its periods, such as Europe/Berlin."""


class WaitArguments(TypedDict, total=False):
    """Another end or priority of a wait for capacity; give at least one of them."""

    priority: int
    """New priority, 0 to 100. Its place among equal ones stays."""
    wait: WaitInput
    """New end of the wait, counted from now."""


class OfferFilter(TypedDict, total=False):
    """Filter for offers; all given conditions must match."""

    available_only: bool
    """Only what is in stock."""
    billing_modes: Sequence[BillingMode | Literal["MONTHLY", "ON_DEMAND", "SPOT"]]
    """Any of these billing modes."""
    gpu_count: int
    """GPUs of one machine, 1 to 8; 0 for CPU products."""
    product_names: Sequence[str]
    """Any of these products, by their whole name, 1 to 100."""
    regions: Sequence[str]
    """Any of these region codes, 1 to 100."""


class AlertArguments(TypedDict, total=False):
    """The alert to create; an offer must match all given conditions."""

    billing_modes: Sequence[BillingMode | Literal["MONTHLY", "ON_DEMAND", "SPOT"]]
    """SPOT, ON_DEMAND or both. Default: both."""
    cooldown: timedelta | float
    """Shortest time between two times that it fires: 0 to 2592000 s."""
    expires_at: datetime
    """When it ends. Default: never."""
    gpu_count: int
    """GPUs of one machine, 1 to 8; 0 for CPU products."""
    held_for: timedelta | float
    """How long an offer must match before the alert fires: 0 to 86400 s."""
    idempotency_key: str
    """Client-chosen key, 1-255 characters. Repeating a request with the same key returns the first result and does nothing else."""
    price_at_most: Money | Decimal | MoneyInput
    """Highest price of the whole machine per hour. Default: any."""
    product_names: Sequence[str]
    """Any of these products, by their whole name, 1 to 100. Default: any at all."""
    regions: Sequence[str]
    """Any of these region codes, 1 to 100. Default: any at all."""
    webhook_url: str
    """URL that receives its events as signed webhooks: http or https, publicly reachable."""


class SpendArguments(TypedDict, total=False):
    """Filter for what was spent; all given conditions must match."""

    instance_ids: Sequence[str]
    """Ids of instances, 1 to 100."""
    labels: Mapping[str, str] | Sequence[KeyValueInput]
    """All of these labels, as the instance had them at the time."""
    since: datetime
    """From this time on. Default: this month (UTC)."""
    until: datetime
    """Before this time. Default: now."""


class EventFilter(TypedDict, total=False):
    """Filter for events; all given conditions must match. Without a filter: all of the project."""

    ids: Sequence[str]
    """Ids of instances."""
    labels: Mapping[str, str] | Sequence[KeyValueInput]
    """Only events whose instance has all of these labels."""
    statuses: Sequence[
        InstanceStatus
        | Literal[
            "CREATING",
            "DELETED",
            "DELETING",
            "EXITED",
            "FAILED",
            "HEALTH_CHECKING",
            "MIGRATING",
            "READY",
            "RESTARTING",
            "RUNNING",
            "STARTING",
            "STOPPING",
        ]
    ]
    """Only changes to one of these statuses."""
    types: Sequence[str]
    """Event types, such as instance.ready."""
