"""The closed sets of words, spelled the same in Python, in SQL and in GraphQL."""

from enum import StrEnum


class InstanceStatus(StrEnum):
    """Where our instance stands. The provider's own word is kept beside it as `novita_status`."""

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


class OperationKind(StrEnum):
    """The verb."""

    CREATE = "CREATE"
    START = "START"
    STOP = "STOP"
    RESTART = "RESTART"
    MIGRATE = "MIGRATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"


class OperationStatus(StrEnum):
    """Where a caller's request stands."""

    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    SUPERSEDED = "SUPERSEDED"


OPEN_OPERATION = (OperationStatus.QUEUED, OperationStatus.RUNNING)


class OperationPhase(StrEnum):
    """What an operation is doing now, for whoever watches it."""

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


# How far an operation is, in percent. An operation never goes back to a phase that comes before its present one.
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
    """How one try to create at the provider ended.

    ASKING is committed before the HTTP call; whoever finds it later knows only that the call may have been made,
    which is what UNKNOWN says too. Both are live: nothing else may be created for the instance meanwhile.
    """

    ASKING = "ASKING"
    UNKNOWN = "UNKNOWN"
    CREATED = "CREATED"
    REJECTED = "REJECTED"
    ABSENT = "ABSENT"


LIVE_ATTEMPT = (AttemptStatus.ASKING, AttemptStatus.UNKNOWN)


class Billing(StrEnum):
    """How the caller wants to pay."""

    SPOT_THEN_ON_DEMAND = "SPOT_THEN_ON_DEMAND"
    SPOT = "SPOT"
    ON_DEMAND = "ON_DEMAND"


class Role(StrEnum):
    """What a token may do; each may do what those before it may."""

    READER = "READER"
    OPERATOR = "OPERATOR"
    ADMIN = "ADMIN"
