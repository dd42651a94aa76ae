"""Every job kind with its typed arguments. A new kind is one more dataclass here."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import cache
from typing import ClassVar
from uuid import UUID

import orjson
from pydantic import TypeAdapter, ValidationError

from server.errors import PilotlightError, StartupProblem


class Priority(IntEnum):
    """Order of execution. Waiting jobs overtake newer ones of a higher priority: see `PRIORITY_DELAY`."""

    HIGH = 0
    NORMAL = 1
    LOW = 2


class JobClass(StrEnum):
    """What a job is for. Each class has slots and provider calls of its own while the others are busy. Jobs of the
    lined classes run when they have their turn to call the provider, and projects take turns in each line."""

    ENDS = "ends"  # a user wants a machine to end: it costs money until then
    WATCHING = "watching"  # looks at machines and endpoints; needs no turn
    STARTS = "starts"
    CREATES = "creates"


LINED = (JobClass.ENDS, JobClass.STARTS, JobClass.CREATES)


class UnreadableArguments(PilotlightError):
    """A row's arguments do not fit its kind: another version of the code wrote it."""


class Work:
    """Base of all kinds: frozen, slotted dataclasses whose fields are the job's arguments."""

    kind: ClassVar[str]
    priority: ClassVar[Priority] = Priority.NORMAL
    job_class: ClassVar[JobClass] = JobClass.WATCHING
    max_attempts: ClassVar[int | None] = None  # None: the worker's limit
    concurrency: ClassVar[int | None] = None  # how many may run at once in one process; None: the worker's limit
    is_cancellable: ClassVar[bool] = True  # whether a caller may cancel a job of this kind

    def __init_subclass__(cls) -> None:
        if "kind" not in cls.__dict__:
            return  # a base of several kinds
        known = _by_kind.setdefault(cls.kind, cls)
        if known.__qualname__ != cls.__qualname__ or known.__module__ != cls.__module__:
            raise TypeError(f"{known.__qualname__} and {cls.__qualname__} are both called {cls.kind}")
        _by_kind[cls.kind] = cls  # `slots=True` creates the class a second time; the second one is used


_by_kind: dict[str, type[Work]] = {}


@dataclass(frozen=True, slots=True)
class OperationWork(Work):
    """Base of the kinds that carry out an operation on an instance."""

    instance_id: UUID
    operation_id: UUID


@dataclass(frozen=True, slots=True)
class CreateInstance(OperationWork):
    """Choose a region and product for an instance and create it at the provider."""

    kind = "CREATE_INSTANCE"
    job_class = JobClass.CREATES
    priority = Priority.HIGH

    # Hash of the idempotency key and the input, from which markers are derived; None: from the operation's id.
    request: str | None = None
    # How long such a create usually takes once it has begun; None: not known.
    usual_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class SettleAttempt(Work):
    """Find out what became of a create attempt whose operation has ended without a clear response of the provider."""

    kind = "SETTLE_ATTEMPT"

    attempt_id: UUID


@dataclass(frozen=True, slots=True)
class MonitorInstance(OperationWork):
    """Poll a new instance until the provider reports it running."""

    kind = "MONITOR_INSTANCE"


@dataclass(frozen=True, slots=True)
class CheckHealth(Work):
    """Probe a running instance's endpoints until they respond; without an operation, check once on demand."""

    kind = "HEALTH_CHECK"
    concurrency = 1000  # it waits for the network nearly all of its time

    instance_id: UUID
    operation_id: UUID | None = None
    asked_at: float | None = None  # seconds since 1970; older results belong to another check


@dataclass(frozen=True, slots=True)
class StartInstance(OperationWork):
    """Start an instance that has exited."""

    kind = "START_INSTANCE"
    job_class = JobClass.STARTS
    priority = Priority.HIGH


@dataclass(frozen=True, slots=True)
class MonitorStartup(OperationWork):
    """Poll a started, restarted or migrated instance until the provider reports it running."""

    kind = "MONITOR_STARTUP"


@dataclass(frozen=True, slots=True)
class StopInstance(OperationWork):
    """Stop an instance and wait until it has exited."""

    kind = "STOP_INSTANCE"
    job_class = JobClass.ENDS


@dataclass(frozen=True, slots=True)
class RestartInstance(OperationWork):
    """Stop an instance and start it again at once."""

    kind = "RESTART_INSTANCE"
    job_class = JobClass.STARTS


@dataclass(frozen=True, slots=True)
class MigrateInstance(OperationWork):
    """Move an instance to another node of its region."""

    kind = "MIGRATE_INSTANCE"
    job_class = JobClass.STARTS


@dataclass(frozen=True, slots=True)
class UpdateInstance(OperationWork):
    """Change the ports or enlarge the disk of an instance."""

    kind = "UPDATE_INSTANCE"
    job_class = JobClass.STARTS


@dataclass(frozen=True, slots=True)
class SaveImage(OperationWork):
    """Save an exited instance as an image, and follow the provider's job to its end."""

    kind = "SAVE_IMAGE"
    job_class = JobClass.STARTS


@dataclass(frozen=True, slots=True)
class UpgradeInstance(OperationWork):
    """Change the image and start settings of an instance on its machine."""

    kind = "UPGRADE_INSTANCE"
    job_class = JobClass.STARTS


@dataclass(frozen=True, slots=True)
class DeleteInstance(OperationWork):
    """Delete an instance at the provider and wait until it is gone."""

    kind = "DELETE_INSTANCE"
    job_class = JobClass.ENDS


@dataclass(frozen=True, slots=True)
class CreateVolume(Work):
    """Create a network volume at the provider."""

    kind = "CREATE_VOLUME"
    priority = Priority.HIGH
    is_cancellable = False  # it may exist and be billed: delete it instead

    volume_id: UUID
    request: str | None = None  # as of CreateInstance


@dataclass(frozen=True, slots=True)
class DeleteVolume(Work):
    """Delete a network volume at the provider and wait until it is gone."""

    kind = "DELETE_VOLUME"
    is_cancellable = False

    volume_id: UUID


@dataclass(frozen=True, slots=True)
class SendWebhook(Work):
    """Send one webhook, with retries until it is delivered or fails for good."""

    kind = "SEND_WEBHOOK"
    max_attempts = 20  # for errors of our own; the receiver's failures are counted with the delivery
    concurrency = 256  # it waits for the network nearly all of its time

    delivery_id: UUID


@dataclass(frozen=True, slots=True)
class SendProjectWebhook(SendWebhook):
    """Send one message to a webhook of a project, as SEND_WEBHOOK does to that of an instance."""

    kind = "SEND_PROJECT_WEBHOOK"  # of its own: workers of the release before would send in any order


@dataclass(frozen=True, slots=True)
class Reconcile(Work):
    """Compare every instance with the provider's list and correct the rows that differ."""

    kind = "RECONCILE"
    priority = Priority.LOW
    concurrency = 1


@dataclass(frozen=True, slots=True)
class WatchReclaim(Work):
    """Poll a spot instance from its announced reclaim on, until it is gone or known to stay."""

    kind = "WATCH_RECLAIM"

    instance_id: UUID


@dataclass(frozen=True, slots=True)
class LookAtMachine(Work):
    """Read a READY instance's machine once, because a probe of its endpoints failed."""

    kind = "LOOK_AT_MACHINE"

    instance_id: UUID


@dataclass(frozen=True, slots=True)
class WatchHealth(Work):
    """Decide which READY instances are watched, and start the jobs that probe them."""

    kind = "WATCH_HEALTH"
    priority = Priority.LOW
    concurrency = 1


@dataclass(frozen=True, slots=True)
class ProbeWatched(Work):
    """Probe the watched instances that are due, again and again; several of these jobs share the work."""

    kind = "PROBE_WATCHED"
    concurrency = 8  # there are no more

    number: int


@dataclass(frozen=True, slots=True)
class EndLifetime(Work):
    """Take the next step of an instance's lifetime: warn, look whether it is idle, stop, delete or start it."""

    kind = "END_LIFETIME"
    priority = Priority.HIGH  # a limit that is enforced late costs money
    max_attempts = 100  # for errors of our own; reconcile makes a lost job again
    is_cancellable = False

    instance_id: UUID


@dataclass(frozen=True, slots=True)
class CheckBudgets(Work):
    """Announce the thresholds of budgets, and end machines before a budget is used up."""

    kind = "CHECK_BUDGETS"
    concurrency = 1


@dataclass(frozen=True, slots=True)
class UpdateEstimates(Work):
    """Correct the estimates of creates that wait in line, where the line has become faster or slower."""

    kind = "UPDATE_ESTIMATES"
    priority = Priority.LOW
    concurrency = 1


@dataclass(frozen=True, slots=True)
class CleanUp(Work):
    """Delete data that is past its retention."""

    kind = "CLEANUP"
    priority = Priority.LOW
    concurrency = 1


DECLARED: Mapping[str, type[Work]] = dict(_by_kind)


def check_handled(handlers: Mapping[str, object]) -> None:
    """Refuse to start while a kind has no handler: its jobs would wait for ever."""
    missing = sorted(DECLARED.keys() - handlers.keys())
    if missing:
        raise StartupProblem(f"no handler for jobs of kind {', '.join(missing)}")


def is_cancellable(kind: str) -> bool:
    """Whether callers may cancel jobs of this kind; they may cancel those of kinds that this code does not know."""
    return kind not in _by_kind or _by_kind[kind].is_cancellable


def class_of(kind: str) -> type[Work]:
    """The dataclass of a kind."""
    try:
        return _by_kind[kind]
    except KeyError:
        raise UnreadableArguments(f"no such kind of work: {kind}") from None


def to_args(work: Work) -> str:
    """The arguments as JSON, for the job's row."""
    return orjson.dumps(work, default=str).decode()  # default: asyncpg has its own UUID class


def from_args(kind: str, args: str) -> Work:
    """The work of a row. Raises UnreadableArguments if an argument is missing or of another type than declared.
    Unknown arguments are ignored: during an upgrade, newer processes may already write a new one."""
    try:
        return _adapter(class_of(kind)).validate_json(args, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise UnreadableArguments(f"{'.'.join(map(str, (kind, *first['loc'])))}: {first['msg']}") from None


@cache
def _adapter(cls: type[Work]) -> TypeAdapter[Work]:
    return TypeAdapter(cls)
