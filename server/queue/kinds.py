"""Every job kind with its typed arguments, and the names of its base. A new kind is one more dataclass here."""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from server.queue.work import (
    LINED,
    JobClass,
    OperationWork,
    Priority,
    UnreadableArguments,
    Work,
    class_of,
    declared,
    from_args,
    is_cancellable,
    to_args,
)

__all__ = ["LINED", "JobClass", "OperationWork", "Priority", "UnreadableArguments", "Work"]
__all__ += ["class_of", "from_args", "is_cancellable", "to_args"]


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
class StartBySteps(OperationWork):
    """Start an instance on its machine, on another node or on a new machine."""

    kind = "START_BY_STEPS"
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
class RecoverInstance(Work):
    """Bring an instance back after a spot reclaim or the loss of its machine, attempt by attempt."""

    kind = "RECOVER_INSTANCE"
    max_attempts = 100  # for errors of our own; reconcile makes a lost job again
    is_cancellable = False  # recovery is ended by updateInstance, stopInstance or cancelOperation

    instance_id: UUID


@dataclass(frozen=True, slots=True)
class ReplaceMachine(OperationWork):
    """Make another machine for an instance whose spot machine is about to be reclaimed, and let it take its place."""

    kind = "REPLACE_MACHINE"
    priority = Priority.HIGH


@dataclass(frozen=True, slots=True)
class RemoveMachine(Work):
    """Delete a machine that its instance no longer needs, and wait until it is gone."""

    kind = "REMOVE_MACHINE"
    job_class = JobClass.ENDS
    is_cancellable = False  # it is billed

    instance_id: UUID
    novita_id: str


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
class WatchPrewarms(Work):
    """Look at the images that are being prewarmed until all have ended; one job for all of them."""

    kind = "WATCH_PREWARMS"
    priority = Priority.LOW


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
class PollMarket(Work):
    """Read the provider's offers, place by place, and write what changed; one job for all processes."""

    kind = "POLL_MARKET"
    concurrency = 1
    max_attempts = 100  # for errors of our own; the next one is enqueued after MARKET_COLD
    is_cancellable = False


@dataclass(frozen=True, slots=True)
class WatchBudgets(Work):
    """Do the same for the budgets of one project, at the time at which the next of it happens."""

    kind = "WATCH_BUDGETS"
    priority = Priority.HIGH  # what ends late costs money
    is_cancellable = False

    project_id: UUID


@dataclass(frozen=True, slots=True)
class CheckBill(Work):
    """Compare the ledger with the provider's bill."""

    kind = "CHECK_BILL"


@dataclass(frozen=True, slots=True)
class ExpireWait(Work):
    """End the wait of an operation that has found no capacity in its time."""

    kind = "EXPIRE_WAIT"
    max_attempts = 100  # for errors of our own
    is_cancellable = False  # the operation is cancelled instead

    operation_id: UUID


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


DECLARED: Mapping[str, type[Work]] = declared()
