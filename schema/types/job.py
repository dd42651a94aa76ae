"""Types of the job queue."""

from datetime import datetime, timedelta
from enum import StrEnum

import strawberry

from schema import ids
from schema.enums import described
from schema.ids import Node
from schema.pagination import Connection, Edge
from server.conversion import convert
from server.db.seals import Seals
from server.db.tables.job import JobStatus
from server.queue import queries
from server.queue.kinds import DECLARED, Priority

described(
    JobStatus,
    description="Status of a job. WAITING and RUNNING are open.",
    values={
        "WAITING": "Waiting for its time or for a worker.",
        "RUNNING": "Being run by a worker.",
        "SUCCEEDED": "Done.",
        "FAILED": "Failed for good; it can be retried.",
        "CANCELLED": "Cancelled.",
    },
)
described(
    Priority,
    name="JobPriority",
    description="Order of execution. Waiting raises it: a LOW job that has waited a minute runs before a new HIGH one.",
    values={
        "HIGH": "Urgent: a user is waiting.",
        "NORMAL": "The default.",
        "LOW": "Not urgent.",
    },
)


class JobKind(StrEnum):
    """The kinds this server knows, and OTHER for those of a newer version."""

    CREATE_INSTANCE = "CREATE_INSTANCE"
    SETTLE_ATTEMPT = "SETTLE_ATTEMPT"
    MONITOR_INSTANCE = "MONITOR_INSTANCE"
    START_INSTANCE = "START_INSTANCE"
    MONITOR_STARTUP = "MONITOR_STARTUP"
    STOP_INSTANCE = "STOP_INSTANCE"
    RESTART_INSTANCE = "RESTART_INSTANCE"
    MIGRATE_INSTANCE = "MIGRATE_INSTANCE"
    UPDATE_INSTANCE = "UPDATE_INSTANCE"
    SAVE_IMAGE = "SAVE_IMAGE"
    UPGRADE_INSTANCE = "UPGRADE_INSTANCE"
    DELETE_INSTANCE = "DELETE_INSTANCE"
    CREATE_VOLUME = "CREATE_VOLUME"
    DELETE_VOLUME = "DELETE_VOLUME"
    WATCH_PREWARMS = "WATCH_PREWARMS"
    REMOVE_MACHINE = "REMOVE_MACHINE"
    START_BY_STEPS = "START_BY_STEPS"
    RECOVER_INSTANCE = "RECOVER_INSTANCE"
    REPLACE_MACHINE = "REPLACE_MACHINE"
    HEALTH_CHECK = "HEALTH_CHECK"
    SEND_WEBHOOK = "SEND_WEBHOOK"
    SEND_PROJECT_WEBHOOK = "SEND_PROJECT_WEBHOOK"
    RECONCILE = "RECONCILE"
    WATCH_RECLAIM = "WATCH_RECLAIM"
    LOOK_AT_MACHINE = "LOOK_AT_MACHINE"
    WATCH_HEALTH = "WATCH_HEALTH"
    PROBE_WATCHED = "PROBE_WATCHED"
    END_LIFETIME = "END_LIFETIME"
    CHECK_BUDGETS = "CHECK_BUDGETS"
    WATCH_BUDGETS = "WATCH_BUDGETS"
    CHECK_BILL = "CHECK_BILL"
    UPDATE_ESTIMATES = "UPDATE_ESTIMATES"
    POLL_MARKET = "POLL_MARKET"
    EXPIRE_WAIT = "EXPIRE_WAIT"
    CLEANUP = "CLEANUP"
    OTHER = "OTHER"

    @classmethod
    def of(cls, kind: str) -> "JobKind":
        return cls(kind) if kind in DECLARED else cls.OTHER


# The import fails if a declared kind is missing above, or the reverse.
described(
    JobKind,
    description="Kind of a job: what it does.",
    values={kind: str(work.__doc__) for kind, work in DECLARED.items()}
    | {"OTHER": "A kind that this server does not know, written by a newer version."},
)


@strawberry.type(description="A background job.")
class Job(Node):
    kind: JobKind = strawberry.field(description="Kind of the job.")
    status: JobStatus = strawberry.field(description="Status.")
    priority: Priority = strawberry.field(description="Priority.")
    instance_id: strawberry.ID | None = strawberry.field(description="Id of its instance, if any.")
    attempts: int = strawberry.field(description="Failed runs so far; polling does not count.")
    error_code: str | None = strawberry.field(description="Error code of the last failure.")
    error_message: str | None = strawberry.field(description="Error message of the last failure.")
    cancel_requested: bool = strawberry.field(description="Whether cancellation was requested.")
    created_at: datetime = strawberry.field(description="When it was enqueued.")
    run_at: datetime = strawberry.field(description="Earliest time of the next run.")
    claimed_at: datetime | None = strawberry.field(description="When a worker last claimed it.")
    finished_at: datetime | None = strawberry.field(description="When it ended.")

    @classmethod
    def of(cls, job: queries.JobView, seals: Seals) -> "Job":
        return convert(
            cls,
            job,
            id=ids.format_job(seals, job.id),
            kind=JobKind.of(job.kind),
            instance_id=strawberry.ID(ids.format_id(ids.INSTANCE, job.instance_id)) if job.instance_id else None,
        )


@strawberry.type(description="A job with its cursor.")
class JobEdge(Edge[Job]):
    pass


@strawberry.type(description="A page of jobs.")
class JobConnection(Connection[JobEdge, Job]):
    pass


@strawberry.type(description="Statistics of one job kind. Rates and times are of the last five minutes.")
class JobKindStats:
    kind: JobKind = strawberry.field(description="Job kind.")
    waiting: int = strawberry.field(description="Jobs due now and not yet running.")
    scheduled: int = strawberry.field(description="Jobs scheduled for later.")
    running: int = strawberry.field(description="Running jobs.")
    failed: int = strawberry.field(description="Failed jobs; they can be retried.")
    oldest_waiting: timedelta | None = strawberry.field(
        description="Waiting time of the oldest due job; null if none waits."
    )
    finished_per_minute: float = strawberry.field(description="Jobs completed per minute.")
    failed_per_minute: float = strawberry.field(description="Jobs failed per minute.")
    pickup_p50: timedelta | None = strawberry.field(description="Time from due to claimed, median.")
    pickup_p95: timedelta | None = strawberry.field(description="95th percentile of the same.")
    run_p50: timedelta | None = strawberry.field(description="Duration of one run, median.")
    run_p95: timedelta | None = strawberry.field(description="95th percentile of the same.")
    paused_at: datetime | None = strawberry.field(description="When the kind was paused; null if it is not.")

    @classmethod
    def of(cls, stats: queries.KindStats) -> "JobKindStats":
        kind = JobKind.of(stats.kind)
        return convert(cls, stats, kind=kind, run_p50=stats.run_time_p50, run_p95=stats.run_time_p95)


@strawberry.type(description="Statistics of the queue.")
class JobStats:
    kinds: list[JobKindStats] = strawberry.field(description="Statistics by job kind.")
    workers: int = strawberry.field(description="Number of live workers.")
    cursor: str = strawberry.field(description="Position of these numbers in the event log.")

    @classmethod
    def of(cls, stats: queries.JobStats, cursor: str) -> "JobStats":
        return cls(kinds=[JobKindStats.of(kind) for kind in stats.kinds], workers=stats.workers, cursor=cursor)
