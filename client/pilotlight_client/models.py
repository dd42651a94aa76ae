"""What the server answers, as types. Written by `make client`.

An enum value that this version does not know stays a `str`; an error type that it does not know is a
`MutationError`."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from pilotlight_client.values import Model, Money


class AttemptStatus(str, Enum):
    """Status of one create attempt. While ASKING or UNKNOWN, a machine may or may not exist."""

    ABSENT = "ABSENT"
    ASKING = "ASKING"
    CREATED = "CREATED"
    REJECTED = "REJECTED"
    UNKNOWN = "UNKNOWN"

    __str__ = str.__str__


class Billing(str, Enum):
    """Requested billing option."""

    ON_DEMAND = "ON_DEMAND"
    SPOT = "SPOT"
    SPOT_THEN_ON_DEMAND = "SPOT_THEN_ON_DEMAND"

    __str__ = str.__str__


class BillingMode(str, Enum):
    """Billing mode at the provider."""

    MONTHLY = "MONTHLY"
    ON_DEMAND = "ON_DEMAND"
    OTHER = "OTHER"
    SPOT = "SPOT"

    __str__ = str.__str__


class BudgetAction(str, Enum):
    """What a budget does. All of them announce thresholds."""

    BLOCK = "BLOCK"
    DELETE = "DELETE"
    NOTIFY = "NOTIFY"
    OTHER = "OTHER"
    STOP = "STOP"

    __str__ = str.__str__


class BudgetPeriod(str, Enum):
    """After which time a budget begins anew, at midnight in its time zone."""

    DAY = "DAY"
    MONTH = "MONTH"
    OTHER = "OTHER"
    TOTAL = "TOTAL"
    WEEK = "WEEK"

    __str__ = str.__str__


class BudgetState(str, Enum):
    """Whether anything is left of a budget."""

    EXHAUSTED = "EXHAUSTED"
    OK = "OK"
    OTHER = "OTHER"

    __str__ = str.__str__


class HealthErrorKind(str, Enum):
    """Why an endpoint is unhealthy."""

    BAD_GATEWAY = "BAD_GATEWAY"
    BODY_ERROR = "BODY_ERROR"
    CLIENT_ERROR = "CLIENT_ERROR"
    CONNECTION_REFUSED = "CONNECTION_REFUSED"
    CONNECTION_RESET = "CONNECTION_RESET"
    DNS = "DNS"
    SERVER_ERROR = "SERVER_ERROR"
    SERVICE_UNAVAILABLE = "SERVICE_UNAVAILABLE"
    TIMEOUT = "TIMEOUT"
    TLS = "TLS"
    UNREACHABLE = "UNREACHABLE"

    __str__ = str.__str__


class HealthSeverity(str, Enum):
    """Severity of a health problem."""

    HIGH = "HIGH"
    LOW = "LOW"
    MEDIUM = "MEDIUM"

    __str__ = str.__str__


class HealthStatus(str, Enum):
    """Overall result of the probes of all endpoints."""

    HEALTHY = "HEALTHY"
    PARTIAL = "PARTIAL"
    UNHEALTHY = "UNHEALTHY"

    __str__ = str.__str__


class InstanceKind(str, Enum):
    """Whether an instance has GPUs."""

    CPU = "CPU"
    GPU = "GPU"
    OTHER = "OTHER"

    __str__ = str.__str__


class InstanceStatus(str, Enum):
    """Status of an instance. RUNNING: the machine is running. READY: its endpoints respond."""

    CREATING = "CREATING"
    DELETED = "DELETED"
    DELETING = "DELETING"
    EXITED = "EXITED"
    FAILED = "FAILED"
    HEALTH_CHECKING = "HEALTH_CHECKING"
    MIGRATING = "MIGRATING"
    READY = "READY"
    RESTARTING = "RESTARTING"
    RUNNING = "RUNNING"
    STARTING = "STARTING"
    STOPPING = "STOPPING"

    __str__ = str.__str__


class LifetimeAction(str, Enum):
    """What happens to an instance at the end of its lifetime."""

    DELETE = "DELETE"
    OTHER = "OTHER"
    STOP = "STOP"

    __str__ = str.__str__


class OperationKind(str, Enum):
    """Kind of an operation."""

    CREATE = "CREATE"
    DELETE = "DELETE"
    MIGRATE = "MIGRATE"
    RESTART = "RESTART"
    START = "START"
    STOP = "STOP"
    UPDATE = "UPDATE"

    __str__ = str.__str__


class OperationPhase(str, Enum):
    """Current step of an operation."""

    CHECKING_HEALTH = "CHECKING_HEALTH"
    DELETING = "DELETING"
    MIGRATING = "MIGRATING"
    OVER = "OVER"
    PLACING = "PLACING"
    PROVISIONING = "PROVISIONING"
    RESTARTING = "RESTARTING"
    STARTING = "STARTING"
    STOPPING = "STOPPING"
    UPDATING = "UPDATING"
    WAITING = "WAITING"

    __str__ = str.__str__


class OperationStatus(str, Enum):
    """Status of an operation. QUEUED and RUNNING are open."""

    CANCELLED = "CANCELLED"
    FAILED = "FAILED"
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    SUPERSEDED = "SUPERSEDED"

    __str__ = str.__str__


class PlacementOrder(str, Enum):
    """Order in which products and regions are tried."""

    PRICE = "PRICE"
    REGION_ORDER = "REGION_ORDER"

    __str__ = str.__str__


class RecoveryBilling(str, Enum):
    """How the new machine of a relocation is billed."""

    ON_DEMAND_AFTER = "ON_DEMAND_AFTER"
    OTHER = "OTHER"
    SAME = "SAME"

    __str__ = str.__str__


class RecoveryTrigger(str, Enum):
    """What an instance is recovered from."""

    LOSS = "LOSS"
    OTHER = "OTHER"
    RECLAIM = "RECLAIM"

    __str__ = str.__str__


class Role(str, Enum):
    """Role of a token. Each role includes the ones before it."""

    ADMIN = "ADMIN"
    OPERATOR = "OPERATOR"
    READER = "READER"

    __str__ = str.__str__


class StartStep(str, Enum):
    """How a stopped or lost instance comes back."""

    MIGRATE = "MIGRATE"
    OTHER = "OTHER"
    RELOCATE = "RELOCATE"
    SAME = "SAME"

    __str__ = str.__str__


class ToolName(str, Enum):
    """A tool that the provider runs beside the container."""

    JUPYTER = "JUPYTER"
    OTHER = "OTHER"
    SSH = "SSH"

    __str__ = str.__str__


class VolumeStatus(str, Enum):
    """Status of a network volume."""

    AVAILABLE = "AVAILABLE"
    CREATING = "CREATING"
    DELETING = "DELETING"
    FAILED = "FAILED"
    OTHER = "OTHER"

    __str__ = str.__str__


class WaitBlocker(str, Enum):
    """What an operation that waits for capacity lacks."""

    BUDGET = "BUDGET"
    CAPACITY = "CAPACITY"
    OTHER = "OTHER"
    PRICE = "PRICE"
    QUEUE = "QUEUE"
    QUOTA = "QUOTA"

    __str__ = str.__str__


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Attempt(Model):
    """One attempt to create the instance in one region."""

    billing_mode: BillingMode | str | None
    """Billing mode that was tried."""
    created_at: datetime
    """Start time."""
    finished_at: datetime | None
    """When its result was known."""
    number: int
    """Number within its operation, starting at 1."""
    price_per_hour: Money | None
    """Price per hour of the whole instance."""
    product_id: str | None
    """The provider's product id."""
    reason_code: str | None
    """Reason code if refused."""
    reason_message: str | None
    """Reason as readable text if refused."""
    region: str
    """Region code, such as AS-SGP-02."""
    status: AttemptStatus | str
    """Status of the attempt."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BilledDay(Model):
    """A day (UTC) that was compared with the provider's bill."""

    billed: Money
    """What the provider has billed."""
    day: str
    """The day, such as 2026-11-16."""
    ledger: Money
    """What the ledger has."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LabelRule(Model):
    """A condition on the labels of an instance."""

    key: str
    """Label name."""
    negated: bool
    """Whether it holds for all other instances."""
    values: tuple[str, ...] | None
    """One of these values; null: any."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class KeyValue(Model):
    """A name and its value."""

    key: str
    """The name."""
    value: str
    """The value."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BudgetScope(Model):
    """What a budget or a quota counts: one of its fields is set."""

    label: KeyValue | None
    """Instances with this label."""
    project: bool
    """Whether it is everything in the project."""
    token_id: str | None
    """What this token created or started."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Budget(Model):
    """A limit of what may be spent in a period: see docs/spend.md."""

    action: BudgetAction | str
    """What it does."""
    committed: Money
    """What the machines that are paid for now may still cost: until their hard end, without one for the next hour (BUDGET_HORIZON), and not past the end of the period."""
    created_at: datetime
    """Creation time."""
    exempt: tuple[LabelRule, ...]
    """Instances that match one of these are neither stopped nor deleted."""
    exhausts_at: datetime | None
    """When the limit is spent at the present burn rate; null if not in this period."""
    id: str
    """Opaque and permanent. The prefix shows the type: inst_01a1e2b06b6576a8bad33b12c81e7f94."""
    limit: Money
    """What may be spent in a period."""
    name: str
    """Unique name in the project."""
    period: BudgetPeriod | str
    """After which time it begins anew."""
    remaining: Money
    """What is left of the limit; at least 0."""
    reserved: Money
    """The same for accepted creates and starts without a paid machine yet."""
    resets_at: datetime | None
    """When the next period begins; null: never."""
    scope: BudgetScope
    """What it counts."""
    spent: Money
    """What was paid for in this period so far."""
    state: BudgetState | str
    """Whether anything is left."""
    thresholds: tuple[int, ...]
    """Per cent of the limit that are announced once per period."""
    timezone: str
    """IANA time zone of its periods."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CapacityWait(Model):
    """How an operation waits for capacity. No call of the provider is made for it meanwhile."""

    ahead: int
    """How many of them go first."""
    blocked_by: WaitBlocker | str
    """What it lacks now."""
    last_polled_at: datetime | None
    """When the provider's offers were last read for it; null: not yet."""
    position: int
    """Place among the operations of this project that wait for the same product, counted from 1."""
    priority: int
    """Priority within its project, 0 to 100."""
    since: datetime
    """When the operation was accepted; its place counts from here."""
    tries: int
    """How often an offer was taken up and then refused by the provider."""
    until: datetime
    """When the wait ends, with WAIT_EXPIRED."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ContainerExit(Model):
    """How a container ended by itself."""

    code: int | None
    """Exit code; null if the provider does not say it."""
    message: str
    """What the provider says about it."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Endpoint(Model):
    """Public address of a port while the instance runs."""

    address: str
    """URL for http, host:port for tcp."""
    port: int
    """The port inside the instance."""
    type: str
    """Protocol as the provider names it: http or tcp."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class HealthError(Model):
    """Problem of an endpoint."""

    kind: HealthErrorKind | str
    """Stable error kind."""
    message: str
    """Readable message."""
    retryable: bool
    """Whether a later probe may succeed."""
    severity: HealthSeverity | str
    """Severity."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class EndpointHealth(Model):
    """Result of the last probe of one endpoint."""

    address: str | None
    """Probed address; null if there was none yet."""
    attempts: int
    """Number of probes in this check."""
    checked_at: datetime
    """When the last of these probes ended."""
    error: HealthError | None
    """The problem; null if healthy."""
    healthy: bool
    """Whether the endpoint is healthy."""
    http_status: int | None
    """HTTP status of the response, if any."""
    latency: timedelta
    """Duration of the probe."""
    port: int
    """The port inside the instance."""
    type: str
    """Type of probe. http: a GET request. tcp: a connection."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class EnvVariable(Model):
    """An environment variable."""

    key: str
    """The name."""
    secret: bool
    """Whether its value is never shown."""
    value: str | None
    """The value; null if it is secret, or if the caller's role is below OPERATOR."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class EventAttempt(Model):
    """A create attempt at an event."""

    billing_mode: BillingMode | str | None
    """Billing mode that was requested, if any."""
    number: int
    """Counts from 1 within the operation."""
    reason_code: str | None
    """Why it was rejected; null otherwise."""
    reason_message: str | None
    """The same for people."""
    region: str
    """Region code, such as AS-SGP-02."""
    status: str
    """How it ended: CREATED, REJECTED or ABSENT."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class IdleLimit(Model):
    """When an instance counts as idle, and what happens then."""

    action: LifetimeAction | str
    """What happens."""
    gpu_below_percent: int
    """A GPU is idle below this utilisation, 1 to 100 percent."""
    grace: timedelta
    """Time after the start of a run that is never idle, up to a day."""
    window: timedelta
    """How long every sample of every GPU has to be idle, 300 s to a day."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class InstanceFailure(Model):
    """Why an instance failed."""

    actions: tuple[OperationKind | str, ...]
    """Operations possible now. DELETE always; others only if a machine was created."""
    code: str
    """Stable error code, such as HEALTH_CHECK_FAILED."""
    help: str | None
    """What you can do about it; null for a code that this server does not know."""
    message: str
    """Readable message."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class InstanceHealth(Model):
    """Health of an instance's endpoints."""

    checked_at: datetime
    """When the last probe ended."""
    endpoints: tuple[EndpointHealth, ...]
    """Results by endpoint, sorted by port."""
    status: HealthStatus | str
    """Overall result."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LifetimeStep(Model):
    """The next thing that the server will do to an instance because of its lifetime."""

    action: OperationKind | str
    """START (schedules only), STOP or DELETE."""
    at: datetime
    """When. For IDLE: the earliest time, if the GPUs are idle until then."""
    reason: str
    """The limit: MAX_DURATION, DEADLINE, HEARTBEAT, IDLE, STOPPED, SCHEDULE."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Schedule(Model):
    """Times at which an instance is started and stopped."""

    start: tuple[str, ...]
    """Cron expressions of five fields, such as `0 18 * * 1-5`; at most 10."""
    stop: tuple[str, ...]
    """Cron expressions of five fields, such as `0 18 * * 1-5`; at most 10."""
    timezone: str
    """Time zone of the expressions, such as Europe/Berlin."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Lifetime(Model):
    """Limits of an instance's lifetime, and the next action that follows from them."""

    deadline: datetime | None
    """Fixed end. A start does not move it."""
    delete_after_stopped: timedelta | None
    """Time in EXITED after which it is deleted, 600 s to 90 days."""
    heartbeat: timedelta | None
    """Longest time without a call of `heartbeat`, 60 s to 7 days."""
    idle: IdleLimit | None
    """End of an instance whose GPUs are idle."""
    idle_known_until: datetime | None
    """Until when its metrics were read."""
    idle_since: datetime | None
    """Since when its GPUs are idle, as far as known."""
    last_heartbeat_at: datetime | None
    """Last heartbeat or extension."""
    max_duration: timedelta | None
    """Longest run, from the provider's acceptance of its create or start: 300 s to 90 days."""
    next: LifetimeStep | None
    """The next action; null if none is known now."""
    on_end: LifetimeAction | str
    """What happens at the earliest of maxDuration, deadline and heartbeat."""
    schedule: Schedule | None
    """Times at which it is started and stopped."""
    warn_before: timedelta
    """How long before an end `lifetime.ending` announces it, up to a day; another announces it at 60 s."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Machine(Model):
    """A machine that an instance has or had at the provider. At most one serves at a time."""

    began_at: datetime
    """When it was made."""
    billing_mode: BillingMode | str | None
    """How it is billed."""
    end_reason: str | None
    """Why it ended: DELETED with its instance, REPLACED by another machine, or GONE_AT_PROVIDER."""
    ended_at: datetime | None
    """When the provider had it no more."""
    novita_id: str
    """The provider's id."""
    number: int
    """1 for the first, then 2, ..."""
    price_per_hour: Money | None
    """Price per hour while it runs."""
    product_id: str | None
    """The provider's product id."""
    region: str | None
    """Its region, such as AS-SGP-02."""
    removing_since: datetime | None
    """Since when it is being removed because another machine has replaced it."""
    serving_since: datetime | None
    """When it became the machine of the instance; null while another one is."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class OperationError(Model):
    """Why an operation failed or waits."""

    code: str
    """Stable error code, such as READY_TIMEOUT."""
    exit_code: int | None
    """Exit code of the container, for CONTAINER_EXITED, if the provider says it."""
    help: str | None
    """What you can do about it; null for a code that this server does not know."""
    message: str
    """Readable message."""
    retryable: bool
    """Whether repeating the request later can succeed."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class QueuePlace(Model):
    """The place of an operation that waits for its turn to call the provider."""

    position: int
    """Place among the waiting creates of this project, counted from 1."""
    starts_at: datetime
    """When it will probably begin, from the measured speed of the line. Projects take turns."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Operation(Model):
    """One operation on one instance, such as CREATE or STOP, from request to result."""

    action: str | None
    """What an UPDATE does beyond a change of ports or disk: SAVE_IMAGE or UPGRADE. Null otherwise. Expect others."""
    attempts: tuple[Attempt, ...]
    """Create attempts, in order; empty for other kinds."""
    created_at: datetime
    """When the request was accepted."""
    error: OperationError | None
    """Why it failed; null unless FAILED."""
    estimated_ready_at: datetime | None
    """Estimated end."""
    finished_at: datetime | None
    """When it ended."""
    id: str
    """Opaque and permanent. The prefix shows the type: inst_01a1e2b06b6576a8bad33b12c81e7f94."""
    kind: OperationKind | str
    """Kind."""
    last_error: OperationError | None
    """Why an open operation waits: the provider's last error. Null once a later call has succeeded, and when it has ended."""
    phase: OperationPhase | str
    """Current step."""
    progress: int
    """Progress in percent, by phase: WAITING 0; PLACING, STARTING, RESTARTING, MIGRATING 10; PROVISIONING 40; STOPPING, UPDATING, DELETING 50; CHECKING_HEALTH 80; OVER 100. Never decreases."""
    queue: QueuePlace | None
    """Where a create stands that waits for its turn to call the provider; null once it has begun, and for other kinds."""
    reason: str | None
    """Why Pilotlight began it: LIFETIME, IDLE, SCHEDULE, BUDGET, RECOVERY or OUTSIDE (it follows a change at the provider). Null if a caller requested it. Expect others."""
    started_at: datetime | None
    """When a worker first started it."""
    status: OperationStatus | str
    """Status."""
    version: int
    """Increases by one with every change; higher is newer."""
    wait: CapacityWait | None
    """How a CREATE or START waits for capacity, as requested by `onNoCapacity`; null while it does not."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Port(Model):
    """A port that the instance exposes."""

    port: int
    """The port inside the instance."""
    type: str
    """Protocol as the provider names it: http or tcp."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RecoveryIncident(Model):
    """A recovery in progress: the machine was reclaimed or lost, and the instance is not READY yet."""

    began_at: datetime
    """When."""
    gives_up_at: datetime
    """Until when attempts are made."""
    tries: int
    """Attempts so far; each is an operation START with the reason RECOVERY."""
    trigger: RecoveryTrigger | str
    """What happened."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Recovery(Model):
    """How an instance comes back under its own id."""

    allow_data_loss: bool
    """Whether the data on the machine's own disks may be lost: MIGRATE, RELOCATE and replaceBeforeReclaim lose it."""
    billing: RecoveryBilling | str
    """How a new machine is billed."""
    drain: timedelta
    """How long the old machine stays after that, 0 to 3600 s."""
    give_up_after: timedelta
    """How long attempts are made, 60 s to 30 days."""
    incident: RecoveryIncident | None
    """The recovery in progress, if any."""
    on: tuple[RecoveryTrigger | str, ...]
    """What it is recovered from."""
    regions: tuple[str, ...] | None
    """Regions of a new machine; default: those of the instance."""
    replace_before_reclaim: bool
    """Whether another machine is made when the provider announces a reclaim. Once it is healthy it takes over, and the instance stays READY. Not with volumes that only one machine can hold."""
    steps: tuple[StartStep | str, ...]
    """Steps of each attempt, tried in the order SAME, MIGRATE, RELOCATE."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class InstanceSpend(Model):
    """What an instance has cost. Months are in UTC."""

    this_month: Money
    """In this month."""
    this_run: Money
    """Since its machine was last started, or in its last run."""
    total: Money
    """Since it was created."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Tool(Model):
    """A tool beside the container."""

    name: ToolName | str
    """Which tool it is."""
    port: int
    """The port that it is exposed on."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class InstanceVolume(Model):
    """A network volume of an instance."""

    mount_path: str
    """Where it is mounted."""
    volume_id: str
    """Id of the volume; `node` reads it."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Webhook(Model):
    """Webhook of an instance."""

    disabled_at: datetime | None
    """When the receiver responded with 410; nothing is sent after that."""
    url: str
    """URL of the receiver."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Instance(Model):
    """A GPU instance."""

    actions: tuple[OperationKind | str, ...]
    """Operations that the status allows. While an operation is in progress, only DELETE is accepted."""
    billing: Billing | str
    """Requested billing option."""
    billing_mode: BillingMode | str | None
    """Actual billing mode, once created."""
    command: str | None
    """Start command; null if it is the image's."""
    created_at: datetime
    """Creation time."""
    degraded_since: datetime | None
    """Since when it is degraded; null if it is not."""
    deleted_at: datetime | None
    """When it was deleted at the provider."""
    endpoints: tuple[Endpoint, ...]
    """Public endpoints while it runs."""
    entrypoint: str | None
    """Entrypoint; null if it is the image's."""
    env: tuple[EnvVariable, ...]
    """Environment variables of the container; none once it is DELETED."""
    estimated_ready_at: datetime | None
    """Estimated time of READY."""
    exit: ContainerExit | None
    """How its container ended, if it ended by itself; until the next start."""
    failure: InstanceFailure | None
    """Why it failed; null unless FAILED."""
    gpu_count: int
    """Number of GPUs, 1 to 8; 0 if the kind is CPU."""
    health: InstanceHealth | None
    """Latest health of its endpoints in this run; null before the first check."""
    id: str
    """Opaque and permanent. The prefix shows the type: inst_01a1e2b06b6576a8bad33b12c81e7f94."""
    image: str
    """Container image, such as nginx:1.27."""
    is_billed: bool
    """Whether the provider bills its machine now: from the pull of the image on, while it runs, stops, restarts or migrates, also if the instance has FAILED. A stopped instance is billed for its disk only."""
    is_degraded: bool
    """Whether its endpoints stopped responding after it became READY; the status stays READY."""
    kind: InstanceKind | str
    """Whether it has GPUs."""
    labels: dict[str, str]
    """Your own labels."""
    lifetime: Lifetime | None
    """Limits of its lifetime, and the next action; null: none."""
    machine_may_exist: bool
    """Whether the provider did not respond to its creation, so that a machine without `novitaId` may exist and be billed. It is being searched for; it is then linked to the instance or known to be absent."""
    machines: tuple[Machine, ...]
    """Its machines at the provider, in order; `novitaId` is the one that serves."""
    max_hourly_price: Money | None
    """Maximum price per hour set at creation."""
    min_cuda_version: str | None
    """Lowest CUDA version of the node's driver, if any."""
    name: str
    """Name, unique among the project's instances that are not deleted."""
    network_id: str | None
    """The provider's id of its private network, if any."""
    novita_id: str | None
    """The provider's id, once created there."""
    novita_status: str | None
    """State last reported by the provider."""
    observed_at: datetime | None
    """When its state was last read from the provider."""
    open_operation: Operation | None
    """The operation in progress, if any."""
    placement: PlacementOrder | str
    """Order in which regions are tried."""
    ports: tuple[Port, ...]
    """Requested ports."""
    price_per_hour: Money | None
    """Price per hour of the whole instance; null while it is not billed, as when EXITED or DELETED."""
    product_id: str | None
    """The provider's product id."""
    product_name: str
    """Requested product, such as `RTX 4090 24GB`."""
    ready_at: datetime | None
    """When this run became READY."""
    ready_timeout: timedelta | None
    """How long its machine may take to run; null: the server's INSTANCE_MAX_WAIT."""
    recovery: Recovery | None
    """How it comes back by itself; null: it does not."""
    region: str | None
    """Region where it was created, such as AS-SGP-02."""
    regions: tuple[str, ...]
    """Regions to try, such as AS-SGP-02; see `placement`."""
    rootfs_size_gb: int
    """Root disk in GB, such as 60."""
    running_at: datetime | None
    """When the machine of this run started running."""
    running_price_per_hour: Money | None
    """Price per hour while it runs, whether it is billed now or not; null until it was created."""
    spend: InstanceSpend
    """What it has cost."""
    spot_reclaim_at: datetime | None
    """When the provider will reclaim the spot instance."""
    stale: bool
    """Whether its state is changing and could not be read from the provider recently; the data is the last known."""
    stale_for: timedelta | None
    """Time since the provider was last read, while the state is changing; otherwise null."""
    status: InstanceStatus | str
    """Status."""
    status_reason: str | None
    """Reason code of the status, if any: SPOT_RECLAIMED, STOPPED_OUTSIDE, MACHINE_MAY_EXIST, ..."""
    status_since: datetime
    """When the status last changed."""
    template_id: str | None
    """Id of the provider template it was created from."""
    tools: tuple[Tool, ...]
    """Tools that run beside the container."""
    updated_at: datetime
    """Time of the last change."""
    version: int
    """Increases by one with every change; higher is newer."""
    volumes: tuple[InstanceVolume, ...]
    """Network volumes that it mounts."""
    webhook: Webhook | None
    """Webhook that receives its events, if any."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class InstanceSnapshot(Model):
    """An instance as it was right after an event. For its present state, use `Instance`."""

    actions: tuple[OperationKind | str, ...]
    """Operations that the status allows. While an operation is in progress, only DELETE is accepted."""
    billing: Billing | str
    """Requested billing option."""
    billing_mode: BillingMode | str | None
    """Actual billing mode, once created."""
    command: str | None
    """Start command; null if it is the image's."""
    created_at: datetime
    """Creation time."""
    degraded_since: datetime | None
    """Since when it is degraded; null if it is not."""
    deleted_at: datetime | None
    """When it was deleted at the provider."""
    endpoints: tuple[Endpoint, ...]
    """Public endpoints while it runs."""
    entrypoint: str | None
    """Entrypoint; null if it is the image's."""
    estimated_ready_at: datetime | None
    """Estimated time of READY."""
    exit: ContainerExit | None
    """How its container ended, if it ended by itself; until the next start."""
    failure: InstanceFailure | None
    """Why it failed; null unless FAILED."""
    gpu_count: int
    """Number of GPUs, 1 to 8; 0 if the kind is CPU."""
    image: str
    """Container image, such as nginx:1.27."""
    instance_id: str
    """Id of the instance."""
    is_billed: bool
    """Whether the provider bills its machine now: from the pull of the image on, while it runs, stops, restarts or migrates, also if the instance has FAILED. A stopped instance is billed for its disk only."""
    is_degraded: bool
    """Whether its endpoints stopped responding after it became READY; the status stays READY."""
    kind: InstanceKind | str
    """Whether it has GPUs."""
    labels: dict[str, str]
    """Your own labels."""
    lifetime: Lifetime | None
    """Limits of its lifetime, and the next action; null: none."""
    machine_may_exist: bool
    """Whether the provider did not respond to its creation, so that a machine without `novitaId` may exist and be billed. It is being searched for; it is then linked to the instance or known to be absent."""
    max_hourly_price: Money | None
    """Maximum price per hour set at creation."""
    min_cuda_version: str | None
    """Lowest CUDA version of the node's driver, if any."""
    name: str
    """Name, unique among the project's instances that are not deleted."""
    network_id: str | None
    """The provider's id of its private network, if any."""
    novita_id: str | None
    """The provider's id, once created there."""
    novita_status: str | None
    """State last reported by the provider."""
    observed_at: datetime | None
    """When its state was last read from the provider."""
    placement: PlacementOrder | str
    """Order in which regions are tried."""
    ports: tuple[Port, ...]
    """Requested ports."""
    price_per_hour: Money | None
    """Price per hour of the whole instance; null while it is not billed, as when EXITED or DELETED."""
    product_id: str | None
    """The provider's product id."""
    product_name: str
    """Requested product, such as `RTX 4090 24GB`."""
    ready_at: datetime | None
    """When this run became READY."""
    ready_timeout: timedelta | None
    """How long its machine may take to run; null: the server's INSTANCE_MAX_WAIT."""
    recovery: Recovery | None
    """How it comes back by itself; null: it does not."""
    region: str | None
    """Region where it was created, such as AS-SGP-02."""
    regions: tuple[str, ...]
    """Regions to try, such as AS-SGP-02; see `placement`."""
    rootfs_size_gb: int
    """Root disk in GB, such as 60."""
    running_at: datetime | None
    """When the machine of this run started running."""
    running_price_per_hour: Money | None
    """Price per hour while it runs, whether it is billed now or not; null until it was created."""
    spot_reclaim_at: datetime | None
    """When the provider will reclaim the spot instance."""
    stale: bool
    """Whether its state is changing and could not be read from the provider recently; the data is the last known."""
    stale_for: timedelta | None
    """Time since the provider was last read, while the state is changing; otherwise null."""
    status: InstanceStatus | str
    """Status."""
    status_reason: str | None
    """Reason code of the status, if any: SPOT_RECLAIMED, STOPPED_OUTSIDE, MACHINE_MAY_EXIST, ..."""
    status_since: datetime
    """When the status last changed."""
    template_id: str | None
    """Id of the provider template it was created from."""
    tools: tuple[Tool, ...]
    """Tools that run beside the container."""
    updated_at: datetime
    """Time of the last change."""
    version: int
    """Increases by one with every change; higher is newer."""
    volumes: tuple[InstanceVolume, ...]
    """Network volumes that it mounts."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class OperationSnapshot(Model):
    """An operation as it was right after an event. For its present state, use `Operation`."""

    action: str | None
    """What an UPDATE does beyond a change of ports or disk: SAVE_IMAGE or UPGRADE. Null otherwise. Expect others."""
    created_at: datetime
    """When the request was accepted."""
    error: OperationError | None
    """Why it failed; null unless FAILED."""
    estimated_ready_at: datetime | None
    """Estimated end."""
    finished_at: datetime | None
    """When it ended."""
    kind: OperationKind | str
    """Kind."""
    last_error: OperationError | None
    """Why an open operation waits: the provider's last error. Null once a later call has succeeded, and when it has ended."""
    operation_id: str
    """Id of the operation."""
    phase: OperationPhase | str
    """Current step."""
    progress: int
    """Progress in percent, by phase: WAITING 0; PLACING, STARTING, RESTARTING, MIGRATING 10; PROVISIONING 40; STOPPING, UPDATING, DELETING 50; CHECKING_HEALTH 80; OVER 100. Never decreases."""
    reason: str | None
    """Why Pilotlight began it: LIFETIME, IDLE, SCHEDULE, BUDGET, RECOVERY or OUTSIDE (it follows a change at the provider). Null if a caller requested it. Expect others."""
    started_at: datetime | None
    """When a worker first started it."""
    status: OperationStatus | str
    """Status."""
    version: int
    """Increases by one with every change; higher is newer."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class InstanceEvent(Model):
    """One event: what changed, and the state right after it."""

    attempt: EventAttempt | None
    """The create attempt of `attempt.finished`; the last one of the create of `operation.finished`."""
    cursor: str
    """Cursor: pass it as `after` to continue behind this event."""
    data: dict[str, str]
    """Further values, by name; docs/events.md lists them by type."""
    health: InstanceHealth | None
    """Result of the health check, for events about health."""
    id: str
    """Opaque and permanent. The prefix shows the type: inst_01a1e2b06b6576a8bad33b12c81e7f94."""
    instance_id: str
    """Id of the instance."""
    instance_snapshot: InstanceSnapshot | None
    """The instance right after this event; null if it did not change."""
    occurred_at: datetime
    """Time of the event."""
    operation_id: str | None
    """Id of the operation that it belongs to; null if it was not part of one."""
    operation_snapshot: OperationSnapshot | None
    """The operation right after this event; null if it did not change."""
    previous_status: InstanceStatus | str | None
    """Status before the event; null if it did not change."""
    status: InstanceStatus | str | None
    """Status after the event; null if it did not change."""
    type: str
    """Event type, as in webhooks: instance.created, instance.starting, instance.running, instance.health_checking, instance.ready, instance.stopping, instance.exited, instance.restarting, instance.migrating, instance.deleting, instance.deleted, instance.failed, instance.changed, instance.orphan_found, operation.started, operation.changed, operation.finished, health.checked, health.changed, spot.reclaim_scheduled, lifetime.ending, lifetime.extended, lifetime.ended, lifetime.overdue, lifetime.idle_unknown, recovery.began, recovery.step, recovery.gave_up, instance.relocated, wait.began, wait.matched, wait.returned, wait.expired, attempt.finished. Expect others: a newer server version may write them."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class InstanceLog(Model):
    """A part of a log. Pilotlight does not store it."""

    begin: int
    """Where the text begins, in bytes from the log's beginning."""
    end: int
    """Where it ends. The next message of the subscription begins here, unless the log was begun anew or the client read too slowly."""
    text: str
    """The text; lines end with a line feed."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LifetimePolicy(Model):
    """A project's rules for lifetimes."""

    default_idle: IdleLimit | None
    """Idle limit of requests that give none."""
    default_max_duration: timedelta | None
    """Longest run of requests that give neither maxDuration nor deadline."""
    max_duration_at_most: timedelta | None
    """Longest run; bounds maxDuration and deadline, also when they are extended."""
    required: bool
    """Whether create and start need maxDuration or deadline."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MarketAlert(Model):
    """Announces offers that begin to match, as events `market.alert`: see docs/market.md."""

    billing_modes: tuple[BillingMode | str, ...] | None
    """Any of these; null: any at all."""
    cooldown: timedelta
    """Shortest time between two times that it fires."""
    created_at: datetime
    """Creation time."""
    expires_at: datetime | None
    """When it ends; null: never."""
    gpu_count: int
    """GPUs of one machine; 0 for CPU products."""
    held_for: timedelta
    """How long an offer must match before the alert fires."""
    id: str
    """Opaque and permanent. The prefix shows the type: inst_01a1e2b06b6576a8bad33b12c81e7f94."""
    last_fired_at: datetime | None
    """When it last fired; null: never."""
    price_at_most: Money | None
    """Highest price of the whole machine per hour; null: any."""
    product_names: tuple[str, ...] | None
    """Any of these products; null: any at all."""
    regions: tuple[str, ...] | None
    """Any of these region codes; null: any at all."""
    webhook_url: str | None
    """URL that receives its events as signed webhooks."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MarketOffer(Model):
    """A product in one region and billing mode, for one number of GPUs, as last seen."""

    available_for30d: timedelta
    """For how long it was in stock in the last 30 days, as far as it was watched."""
    billing_mode: BillingMode | str | None
    """Billing mode."""
    changed_at: datetime
    """When its price or stock last changed."""
    gpu_count: int
    """GPUs of one machine; 0 for a CPU product."""
    inventory: str | None
    """The provider's stock level: none, low, normal or high."""
    is_available: bool
    """Whether it is in stock."""
    last_available_at: datetime | None
    """When it was last in stock, now if it is; null: never, as far as it was polled."""
    price_per_hour: Money | None
    """Price of the whole machine per hour; null if it is not sold in this mode."""
    product_id: str
    """The provider's id of the product."""
    product_name: str
    """Product name, such as RTX 4090 24GB."""
    region: str
    """Region code, such as AS-SGP-02."""
    seen_at: datetime
    """When the provider last listed it."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MutationError(Model):
    """Why a mutation was refused. A refused mutation changes nothing."""

    code: str
    """Stable error code, such as INSTANCE_NAME_TAKEN."""
    help: str | None
    """What you can do about it; null for a code that this server does not know."""
    message: str
    """Readable message."""
    path: tuple[str, ...]
    """Path of the input field; empty if the error is not about one field."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BudgetExceeded(MutationError):
    """A budget has less left than the request may cost."""

    budget_id: str
    """Id of the budget."""
    budget_name: str
    """Name of the budget."""
    code: str
    """Stable error code, such as INSTANCE_NAME_TAKEN."""
    help: str | None
    """What you can do about it; null for a code that this server does not know."""
    message: str
    """Readable message."""
    needed: Money
    """What the request may cost in the budget's period."""
    path: tuple[str, ...]
    """Path of the input field; empty if the error is not about one field."""
    remaining: Money
    """What is left of it."""
    resets_at: datetime | None
    """When its next period begins; null: it has none."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CountDiffers(MutationError):
    """The filter of a bulk request matches another number of instances than you expected."""

    actual: int
    """How many match now; above 100 they need several requests."""
    code: str
    """Stable error code, such as INSTANCE_NAME_TAKEN."""
    expected: int
    """The number that you expected."""
    help: str | None
    """What you can do about it; null for a code that this server does not know."""
    message: str
    """Readable message."""
    path: tuple[str, ...]
    """Path of the input field; empty if the error is not about one field."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class InvalidTransition(MutationError):
    """The instance's status does not allow this operation."""

    allowed: tuple[str, ...]
    """Statuses that the current one can change to."""
    code: str
    """Stable error code, such as INSTANCE_NAME_TAKEN."""
    current: str
    """Current status of the instance."""
    help: str | None
    """What you can do about it; null for a code that this server does not know."""
    message: str
    """Readable message."""
    path: tuple[str, ...]
    """Path of the input field; empty if the error is not about one field."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LifetimeAbovePolicy(MutationError):
    """The lifetime is longer than the project's policy allows."""

    at_most: timedelta
    """Longest run that the project allows."""
    code: str
    """Stable error code, such as INSTANCE_NAME_TAKEN."""
    help: str | None
    """What you can do about it; null for a code that this server does not know."""
    message: str
    """Readable message."""
    path: tuple[str, ...]
    """Path of the input field; empty if the error is not about one field."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PlacementRefusal(Model):
    """Why one region was refused."""

    billing_mode: BillingMode | str | None
    """Billing mode that was tried."""
    code: str
    """Stable reason code."""
    message: str
    """Reason as readable text."""
    region: str
    """Region code."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class NoCapacity(MutationError):
    """No region has capacity for this request now."""

    attempts: tuple[PlacementRefusal, ...]
    """Each region that was tried, with the reason."""
    code: str
    """Stable error code, such as INSTANCE_NAME_TAKEN."""
    help: str | None
    """What you can do about it; null for a code that this server does not know."""
    message: str
    """Readable message."""
    path: tuple[str, ...]
    """Path of the input field; empty if the error is not about one field."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class NotCancellable(MutationError):
    """The operation has ended or can no longer be cancelled."""

    code: str
    """Stable error code, such as INSTANCE_NAME_TAKEN."""
    help: str | None
    """What you can do about it; null for a code that this server does not know."""
    message: str
    """Readable message."""
    operation: Operation
    """The operation in its current state."""
    path: tuple[str, ...]
    """Path of the input field; empty if the error is not about one field."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class NotFoundError(MutationError):
    """Not found, or not visible to this token."""

    code: str
    """Stable error code, such as INSTANCE_NAME_TAKEN."""
    help: str | None
    """What you can do about it; null for a code that this server does not know."""
    message: str
    """Readable message."""
    path: tuple[str, ...]
    """Path of the input field; empty if the error is not about one field."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class OperationInProgress(MutationError):
    """Another operation of the instance is in progress."""

    code: str
    """Stable error code, such as INSTANCE_NAME_TAKEN."""
    help: str | None
    """What you can do about it; null for a code that this server does not know."""
    message: str
    """Readable message."""
    operation: Operation
    """The operation in progress."""
    path: tuple[str, ...]
    """Path of the input field; empty if the error is not about one field."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PriceDrifted(MutationError):
    """The quoted machine costs more now than the quote and maxPriceDrift allow."""

    code: str
    """Stable error code, such as INSTANCE_NAME_TAKEN."""
    help: str | None
    """What you can do about it; null for a code that this server does not know."""
    message: str
    """Readable message."""
    path: tuple[str, ...]
    """Path of the input field; empty if the error is not about one field."""
    price_now: Money
    """Price per hour now."""
    quoted: Money
    """Quoted price per hour."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ProjectQuotaExceeded(MutationError):
    """A quota of the project, of a label or of the token would be exceeded."""

    code: str
    """Stable error code, such as INSTANCE_NAME_TAKEN."""
    help: str | None
    """What you can do about it; null for a code that this server does not know."""
    limit: str
    """What would be exceeded: maxInstances, maxGpus or maxPricePerHour."""
    maximum: int
    """What the quota allows."""
    message: str
    """Readable message."""
    path: tuple[str, ...]
    """Path of the input field; empty if the error is not about one field."""
    quota_id: str
    """Id of the quota."""
    used: int
    """What counts now; a price is in millionths of a dollar."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class QueueFull(MutationError):
    """Too many creates of the project wait for their turn already."""

    code: str
    """Stable error code, such as INSTANCE_NAME_TAKEN."""
    help: str | None
    """What you can do about it; null for a code that this server does not know."""
    message: str
    """Readable message."""
    path: tuple[str, ...]
    """Path of the input field; empty if the error is not about one field."""
    retry_at: datetime
    """When there will probably be room again."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class QueuedBehind(MutationError):
    """Older operations of the project wait for every offer that would fit."""

    ahead: int
    """How many of them go first."""
    code: str
    """Stable error code, such as INSTANCE_NAME_TAKEN."""
    help: str | None
    """What you can do about it; null for a code that this server does not know."""
    message: str
    """Readable message."""
    path: tuple[str, ...]
    """Path of the input field; empty if the error is not about one field."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Refusal(MutationError):
    """The request as a whole was refused."""

    code: str
    """Stable error code, such as INSTANCE_NAME_TAKEN."""
    help: str | None
    """What you can do about it; null for a code that this server does not know."""
    message: str
    """Readable message."""
    path: tuple[str, ...]
    """Path of the input field; empty if the error is not about one field."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TokenLimitExceeded(MutationError):
    """The token is for other products or regions."""

    code: str
    """Stable error code, such as INSTANCE_NAME_TAKEN."""
    help: str | None
    """What you can do about it; null for a code that this server does not know."""
    limit: str
    """Field of the token's limits: productNames or regions."""
    message: str
    """Readable message."""
    path: tuple[str, ...]
    """Path of the input field; empty if the error is not about one field."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ValidationError(MutationError):
    """An input field is invalid."""

    code: str
    """Stable error code, such as INSTANCE_NAME_TAKEN."""
    help: str | None
    """What you can do about it; null for a code that this server does not know."""
    message: str
    """Readable message."""
    path: tuple[str, ...]
    """Path of the input field; empty if the error is not about one field."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class VersionConflict(MutationError):
    """The instance has changed since the version you expected."""

    code: str
    """Stable error code, such as INSTANCE_NAME_TAKEN."""
    current_version: int
    """Current version of the instance."""
    help: str | None
    """What you can do about it; null for a code that this server does not know."""
    message: str
    """Readable message."""
    path: tuple[str, ...]
    """Path of the input field; empty if the error is not about one field."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class OfferBucket(Model):
    """Price and stock in a part of a time. Prices are those of the cheapest in stock."""

    available_for: timedelta
    """For how long it was in stock."""
    from_: datetime
    """When it begins."""
    last: Money | None
    """Price at its end; null if it was not in stock then."""
    max: Money | None
    """Highest price; null if it was never in stock."""
    min: Money | None
    """Lowest price; null if it was never in stock."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Region(Model):
    """A region where instances can be created."""

    cluster_id: str
    """The provider's id of the region."""
    code: str
    """Region code, such as AS-SGP-02; use it as `region`."""
    gpu_types: tuple[str, ...]
    """Products of the region, in stock or not."""
    place: str | None
    """Location, if the provider gives one."""
    supports_network_storage: bool
    """Whether network volumes can be attached."""
    supports_networks: bool
    """Whether it can have private networks."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Product(Model):
    """A machine type in one region."""

    cpu_per_gpu: int | None
    """CPU cores per GPU."""
    fetched_at: datetime
    """When price and stock were read from the provider."""
    id: str
    """Opaque and permanent. The prefix shows the type: inst_01a1e2b06b6576a8bad33b12c81e7f94."""
    inventory: str | None
    """The provider's stock level: none, low, normal or high."""
    is_available: bool
    """Whether it is in stock on demand."""
    is_spot_available: bool
    """Whether it is in stock as spot."""
    kind: InstanceKind | str
    """Whether it has GPUs. Of a CPU product, what is said per GPU holds for the whole machine."""
    max_rootfs_size_gb: int | None
    """Maximum root disk in GB."""
    memory_gb_per_gpu: int | None
    """Host memory per GPU in GB."""
    min_rootfs_size_gb: int | None
    """Minimum root disk in GB."""
    name: str
    """Product name, such as RTX 4090 24GB; use it as `productName`."""
    novita_id: str
    """The provider's id; the same in all regions."""
    price_per_gpu_hour: Money | None
    """On-demand price per GPU and hour; null if not offered."""
    region: Region
    """Region where it is offered."""
    spot_price_per_gpu_hour: Money | None
    """Spot price per GPU and hour; null if not offered."""
    stale: bool
    """Whether the provider could not be read in time, so that price and stock are older than PRODUCT_CACHE_TTL."""
    vram_gb: int | None
    """Memory per GPU in GB."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Quota(Model):
    """How many machines a scope may have at once. Machines that are paid for count, and accepted creates and starts: see docs/spend.md."""

    created_at: datetime
    """Creation time."""
    id: str
    """Opaque and permanent. The prefix shows the type: inst_01a1e2b06b6576a8bad33b12c81e7f94."""
    max_gpus: int | None
    """Most GPUs; null: no limit."""
    max_instances: int | None
    """Most instances with a machine; null: no limit."""
    max_price_per_hour: Money | None
    """Highest price per hour of all machines together; null: no limit."""
    scope: BudgetScope
    """What it counts."""
    used_gpus: int
    """GPUs that count now."""
    used_instances: int
    """Instances that count now."""
    used_price_per_hour: Money
    """Price per hour that counts now."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class QuoteCandidate(Model):
    """One region and billing mode, evaluated."""

    accepted: bool
    """Whether it could be created now."""
    billing_mode: BillingMode | str | None
    """Billing mode."""
    price_per_hour: Money | None
    """Price per hour of the whole instance."""
    product_id: str | None
    """Id of the product that would be used."""
    rank: int
    """Order of attempts: 1 is tried first. Refused candidates have a rank too."""
    reason_code: str | None
    """Reason code if refused."""
    reason_message: str | None
    """Reason as readable text if refused."""
    region: str
    """Region code."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Quote(Model):
    """What createInstance with the same input would choose now. Nothing is reserved; with `quoteId`, createInstance takes exactly this machine at this price or is refused."""

    best: QuoteCandidate | None
    """First accepted candidate; null if there is none."""
    candidates: tuple[QuoteCandidate, ...]
    """Candidates, in the order they would be tried."""
    errors: tuple[MutationError, ...]
    """Why createInstance would refuse this: problems with the input, or no candidate."""
    expires_at: datetime | None
    """Until when `quoteId` holds: five minutes."""
    fetched_at: datetime | None
    """When price and stock were read from the provider. The oldest counts."""
    max_cost: Money | None
    """What it costs until its hard end; null if it has none."""
    price_per_hour: Money | None
    """Price per hour of the best candidate, all GPUs together."""
    quote_id: str | None
    """Signed id for `createInstance(quoteId)`; null without a candidate."""
    rootfs_size_gb: int | None
    """Root disk it would get, in GB."""
    stale: bool
    """Whether the provider could not be read in time, so that price and stock are older than PRODUCT_CACHE_TTL."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SpendPart(Model):
    """A part of what was spent."""

    amount: Money
    """What it cost."""
    key: str | None
    """What its entries have in common; null for those without it, such as without the label."""
    paid_time: timedelta
    """How long machines were paid for."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SpendReport(Model):
    """What machines cost in a time, by the ledger: see docs/spend.md."""

    billed: Money | None
    """What the provider has billed for the same machines on the whole days (UTC) of the time that are compared already; null if there is none, and with a filter by labels, which the bill does not know."""
    billed_days: tuple[BilledDay, ...]
    """The compared days, in order, at most 1,000; those without cost are left out."""
    billed_until: datetime | None
    """End of the last day that is in `billed`; null if that is null."""
    difference: Money | None
    """`billed` without what the ledger has for the same days; null if that is null."""
    groups: tuple[SpendPart, ...]
    """At most 1,000: days in order, others by amount, the largest first."""
    paid_time: timedelta
    """How long machines were paid for, together."""
    total: Money
    """What they cost together."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SshAccess(Model):
    """SSH access to an instance. It changes with every start."""

    command: str
    """SSH command, such as `ssh -p 32787 root@host`."""
    is_running: bool
    """Whether the SSH server is running, according to the provider."""
    password: str | None
    """The password; null if the provider returns none. Pilotlight does not store it."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TokenLimits(Model):
    """What a token may do at most; null is no limit."""

    budget: Budget | None
    """What it may spend: the oldest budget of its own. updateBudget changes it."""
    max_duration: timedelta | None
    """Longest run of what it creates, starts or extends."""
    own_instances_only: bool
    """Whether the instances of other tokens are hidden from it, and their operations, events and costs."""
    product_names: tuple[str, ...] | None
    """Products that it may create and start."""
    quota: Quota | None
    """How many machines it may have at once, at which price. setQuota changes it."""
    regions: tuple[str, ...] | None
    """Regions in which it may create and start."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Token(Model):
    """An API token. Its secret is shown once, at creation; only a hash is stored."""

    created_at: datetime
    """Creation time."""
    expires_at: datetime | None
    """Expiry time; null: never."""
    hint: str
    """Last four characters of the secret."""
    id: str
    """Opaque and permanent. The prefix shows the type: inst_01a1e2b06b6576a8bad33b12c81e7f94."""
    is_session: bool
    """Whether it is the login of a person, whose secret is in a cookie; revoking it logs the person out."""
    last_used_at: datetime | None
    """When it was last used, to about a minute; null: never."""
    limits: TokenLimits
    """What it may do at most."""
    name: str
    """Name, 1 to 100 characters, such as `backend of the shop`."""
    revoked_at: datetime | None
    """When it was revoked; null if it was not."""
    role: Role | str
    """Role of the token."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class VolumeFailure(Model):
    """Why a volume failed, or why its deletion takes so long."""

    code: str
    """Stable error code, such as GONE_AT_PROVIDER."""
    help: str | None
    """What you can do about it; null for a code that this server does not know."""
    message: str
    """Readable message."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Volume(Model):
    """A network volume: a disk in one region that outlives the instances that mount it."""

    created_at: datetime
    """Creation time."""
    failure: VolumeFailure | None
    """Why it failed, or why its deletion takes so long; else null."""
    id: str
    """Opaque and permanent. The prefix shows the type: inst_01a1e2b06b6576a8bad33b12c81e7f94."""
    name: str
    """Name, unique among the project's volumes."""
    novita_id: str | None
    """The provider's id, once created there."""
    price_per_hour: Money | None
    """Price per hour of the whole volume; null while the provider has not said it."""
    region: str
    """Region code, such as AS-SGP-02."""
    size_gb: int
    """Size in GB."""
    status: VolumeStatus | str
    """Status."""
    updated_at: datetime
    """Time of the last change."""


# Error types with fields of their own; all others are read as MutationError.
ERROR_TYPES: dict[str, type[MutationError]] = {
    "BudgetExceeded": BudgetExceeded,
    "CountDiffers": CountDiffers,
    "InvalidTransition": InvalidTransition,
    "LifetimeAbovePolicy": LifetimeAbovePolicy,
    "NoCapacity": NoCapacity,
    "NotCancellable": NotCancellable,
    "NotFoundError": NotFoundError,
    "OperationInProgress": OperationInProgress,
    "PriceDrifted": PriceDrifted,
    "ProjectQuotaExceeded": ProjectQuotaExceeded,
    "QueueFull": QueueFull,
    "QueuedBehind": QueuedBehind,
    "Refusal": Refusal,
    "TokenLimitExceeded": TokenLimitExceeded,
    "ValidationError": ValidationError,
    "VersionConflict": VersionConflict,
}
