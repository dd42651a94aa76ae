"""Enums that are spelled the same in Python, SQL and GraphQL."""

from enum import StrEnum


class InstanceStatus(StrEnum):
    """Status of an instance. The provider's own state is stored beside it as `novita_status`."""

    CREATING = "CREATING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    HEALTH_CHECKING = "HEALTH_CHECKING"
    READY = "READY"
    STOPPING = "STOPPING"
    EXITED = "EXITED"
    RESTARTING = "RESTARTING"
    MIGRATING = "MIGRATING"
    DELETING = "DELETING"
    DELETED = "DELETED"
    FAILED = "FAILED"


class AuditOutcome(StrEnum):
    """What a call of a mutation came to."""

    ACCEPTED = "ACCEPTED"
    VALIDATED = "VALIDATED"
    REFUSED = "REFUSED"
    FAILED = "FAILED"
    OTHER = "OTHER"


class OperationKind(StrEnum):
    """Kind of an operation."""

    CREATE = "CREATE"
    START = "START"
    STOP = "STOP"
    RESTART = "RESTART"
    MIGRATE = "MIGRATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"


class OperationAction(StrEnum):
    """What an UPDATE does, where it is more than a change of ports or disk. Older processes read the kind only."""

    SAVE_IMAGE = "SAVE_IMAGE"
    UPGRADE = "UPGRADE"


class OperationStatus(StrEnum):
    """Status of an operation."""

    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    SUPERSEDED = "SUPERSEDED"


OPEN_OPERATION = (OperationStatus.QUEUED, OperationStatus.RUNNING)


class OperationPhase(StrEnum):
    """Current step of an operation."""

    WAITING = "WAITING"
    PLACING = "PLACING"
    STARTING = "STARTING"
    RESTARTING = "RESTARTING"
    MIGRATING = "MIGRATING"
    PROVISIONING = "PROVISIONING"
    CHECKING_HEALTH = "CHECKING_HEALTH"
    STOPPING = "STOPPING"
    UPDATING = "UPDATING"
    DELETING = "DELETING"
    OVER = "OVER"


# Progress in percent. An operation never returns to an earlier phase.
PROGRESS: dict[OperationPhase, int] = {
    OperationPhase.WAITING: 0,
    OperationPhase.PLACING: 10,
    OperationPhase.STARTING: 10,
    OperationPhase.RESTARTING: 10,
    OperationPhase.MIGRATING: 10,
    OperationPhase.PROVISIONING: 40,
    OperationPhase.CHECKING_HEALTH: 80,
    OperationPhase.STOPPING: 50,
    OperationPhase.UPDATING: 50,
    OperationPhase.DELETING: 50,
    OperationPhase.OVER: 100,
}


class AttemptStatus(StrEnum):
    """Status of one create call to the provider.

    ASKING is committed before the HTTP call; read later, it means only that the call may have been sent, like
    UNKNOWN. Both are live: meanwhile no other machine may be created for the instance.
    """

    ASKING = "ASKING"
    UNKNOWN = "UNKNOWN"
    CREATED = "CREATED"
    REJECTED = "REJECTED"
    ABSENT = "ABSENT"


LIVE_ATTEMPT = (AttemptStatus.ASKING, AttemptStatus.UNKNOWN)


class PlacementOrder(StrEnum):
    """In which order regions are tried."""

    PRICE = "PRICE"
    REGION_ORDER = "REGION_ORDER"


class Billing(StrEnum):
    """Requested billing option."""

    SPOT_THEN_ON_DEMAND = "SPOT_THEN_ON_DEMAND"
    SPOT = "SPOT"
    ON_DEMAND = "ON_DEMAND"


class InstanceKind(StrEnum):
    """Whether an instance has GPUs. OTHER is for clients only: a kind that they do not know."""

    GPU = "GPU"
    CPU = "CPU"
    OTHER = "OTHER"


class ProviderObjectKind(StrEnum):
    """What a project can own at the provider besides machines."""

    REGISTRY_AUTH = "REGISTRY_AUTH"
    TEMPLATE = "TEMPLATE"
    NETWORK = "NETWORK"
    PREWARM = "PREWARM"


class VolumeStatus(StrEnum):
    """Status of a network volume. While CREATING, the provider's answer to the create may be missing."""

    CREATING = "CREATING"
    AVAILABLE = "AVAILABLE"
    DELETING = "DELETING"
    DELETED = "DELETED"
    FAILED = "FAILED"


class ToolName(StrEnum):
    """A tool that the provider runs beside the container. OTHER: one of a template, by a name of its own."""

    SSH = "SSH"
    JUPYTER = "JUPYTER"
    OTHER = "OTHER"


class LifetimeAction(StrEnum):
    """What happens to an instance at the end of its lifetime."""

    STOP = "STOP"
    DELETE = "DELETE"
    OTHER = "OTHER"  # of a newer release; never accepted


class OperationReason(StrEnum):
    """Why the server started an operation by itself."""

    LIFETIME = "LIFETIME"
    IDLE = "IDLE"
    SCHEDULE = "SCHEDULE"
    BUDGET = "BUDGET"
    RECOVERY = "RECOVERY"
    OUTSIDE = "OUTSIDE"


class StartStep(StrEnum):
    """How a stopped or lost instance comes back, in the order in which the steps are tried."""

    SAME = "SAME"
    MIGRATE = "MIGRATE"
    RELOCATE = "RELOCATE"
    OTHER = "OTHER"  # of a newer release; never accepted


class RecoveryTrigger(StrEnum):
    """What an instance is recovered from."""

    RECLAIM = "RECLAIM"
    LOSS = "LOSS"
    OTHER = "OTHER"  # of a newer release; never accepted


class RecoveryBilling(StrEnum):
    """How the new machine of a relocation is billed."""

    SAME = "SAME"
    ON_DEMAND_AFTER = "ON_DEMAND_AFTER"
    OTHER = "OTHER"  # of a newer release; never accepted


class StepReason(StrEnum):
    """The limit that a step of a lifetime comes from."""

    MAX_DURATION = "MAX_DURATION"
    DEADLINE = "DEADLINE"
    HEARTBEAT = "HEARTBEAT"
    IDLE = "IDLE"
    STOPPED = "STOPPED"
    SCHEDULE = "SCHEDULE"


class Role(StrEnum):
    """Role of a token; each includes the ones before it."""

    READER = "READER"
    OPERATOR = "OPERATOR"
    ADMIN = "ADMIN"


class ProviderKind(StrEnum):
    """Whether machines are real and billed, or simulated."""

    NOVITA = "NOVITA"
    SIMULATOR = "SIMULATOR"


class BudgetPeriod(StrEnum):
    """After which time a budget begins anew."""

    DAY = "DAY"
    WEEK = "WEEK"
    MONTH = "MONTH"
    TOTAL = "TOTAL"
    OTHER = "OTHER"


class BudgetAction(StrEnum):
    """What a budget does besides announcing its thresholds."""

    NOTIFY = "NOTIFY"
    BLOCK = "BLOCK"
    STOP = "STOP"
    DELETE = "DELETE"
    OTHER = "OTHER"
