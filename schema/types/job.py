"""Jobs as operators see them."""

from datetime import datetime, timedelta
from enum import StrEnum

import strawberry

from schema import ids
from schema.types.node import Node
from schema.types.page import PageInfo
from schema.words import described
from server.db.tables.job import JobStatus
from server.events.cursor import Cursor
from server.queue import reads
from server.queue.kinds import DECLARED, Priority

described(
    JobStatus,
    description="Where a job stands. WAITING and RUNNING are open.",
    values={
        "WAITING": "For its time, or for a worker.",
        "RUNNING": "A worker has it.",
        "SUCCEEDED": "Done.",
        "FAILED": "Given up; it can be retried.",
        "CANCELLED": "Called off.",
    },
)
described(
    Priority,
    name="JobPriority",
    description="Who goes first. It ages: a LOW job that has waited for a minute goes before a new HIGH one.",
    values={
        "HIGH": "Somebody waits for it.",
        "NORMAL": "The usual.",
        "LOW": "It can wait.",
    },
)


class JobKind(StrEnum):
    """What this server can do, and a word for what it can't."""

    CREATE_INSTANCE = "CREATE_INSTANCE"
    MONITOR_INSTANCE = "MONITOR_INSTANCE"
    START_INSTANCE = "START_INSTANCE"
    MONITOR_STARTUP = "MONITOR_STARTUP"
    STOP_INSTANCE = "STOP_INSTANCE"
    RESTART_INSTANCE = "RESTART_INSTANCE"
    MIGRATE_INSTANCE = "MIGRATE_INSTANCE"
    UPDATE_INSTANCE = "UPDATE_INSTANCE"
    DELETE_INSTANCE = "DELETE_INSTANCE"
    HEALTH_CHECK = "HEALTH_CHECK"
    SEND_WEBHOOK = "SEND_WEBHOOK"
    RECONCILE = "RECONCILE"
    WATCH_RECLAIM = "WATCH_RECLAIM"
    CLEANUP = "CLEANUP"
    OTHER = "OTHER"

    @classmethod
    def of(cls, kind: str) -> "JobKind":
        return cls(kind) if kind in DECLARED else cls.OTHER


# A kind that is declared and not here, or the other way round, stops the import.
described(
    JobKind,
    description="What a job does.",
    values={kind: str(work.__doc__) for kind, work in DECLARED.items()}
    | {"OTHER": "Something that this server does not know: a newer one beside it wrote it."},
)


@strawberry.type(description="One row of background work.")
class Job(Node):
    kind: JobKind = strawberry.field(description="What is to be done.")
    status: JobStatus = strawberry.field(description="Where it stands.")
    priority: Priority = strawberry.field(description="Who goes first.")
    instance_id: strawberry.ID | None = strawberry.field(description="The instance it is about.")
    attempts: int = strawberry.field(description="Runs that failed so far; waiting for something is not failing.")
    error_code: str | None = strawberry.field(description="Why the last one failed, as a word.")
    error_message: str | None = strawberry.field(description="Why the last one failed, as a sentence.")
    cancel_requested: bool = strawberry.field(description="Whether somebody asked for it to be cancelled.")
    created_at: datetime = strawberry.field(description="When it was enqueued.")
    run_at: datetime = strawberry.field(description="When it may run.")
    claimed_at: datetime | None = strawberry.field(description="When a worker last took it.")
    finished_at: datetime | None = strawberry.field(description="When it was over.")

    @classmethod
    def of(cls, job: reads.JobView) -> "Job":
        return cls(
            id=strawberry.ID(ids.shown_number(ids.JOB, job.id)),
            kind=JobKind.of(job.kind),
            status=job.status,
            priority=job.priority,
            instance_id=strawberry.ID(ids.shown(ids.INSTANCE, job.instance_id)) if job.instance_id else None,
            attempts=job.attempts,
            error_code=job.error_code,
            error_message=job.error_message,
            cancel_requested=job.cancel_requested,
            created_at=job.created_at,
            run_at=job.run_at,
            claimed_at=job.claimed_at,
            finished_at=job.finished_at,
        )


@strawberry.type(description="One job of a page.")
class JobEdge:
    cursor: str = strawberry.field(description="The place right after this one.")
    node: Job = strawberry.field(description="The job.")


@strawberry.type(description="A page of jobs.")
class JobConnection:
    edges: list[JobEdge] = strawberry.field(description="The jobs with their cursors.")
    nodes: list[Job] = strawberry.field(description="The jobs alone.")
    page_info: PageInfo = strawberry.field(description="Where this page stands.")


@strawberry.type(description="How one kind of work is doing. Rates and times are of the last five minutes.")
class JobKindStats:
    kind: JobKind = strawberry.field(description="The kind.")
    waiting: int = strawberry.field(description="May run now and do not yet.")
    scheduled: int = strawberry.field(description="Are to run later.")
    running: int = strawberry.field(description="Are running.")
    failed: int = strawberry.field(description="Were given up and can be retried.")
    oldest_waiting: timedelta | None = strawberry.field(
        description="How long the first in the line has waited; null when none waits."
    )
    finished_per_minute: float = strawberry.field(description="How many are done a minute.")
    failed_per_minute: float = strawberry.field(description="How many are given up a minute.")
    pickup_p50: timedelta | None = strawberry.field(description="From when it may run to a worker, median.")
    pickup_p95: timedelta | None = strawberry.field(description="The same for the slowest twentieth.")
    run_p50: timedelta | None = strawberry.field(description="How long one run takes, median.")
    run_p95: timedelta | None = strawberry.field(description="The same for the slowest twentieth.")
    paused_at: datetime | None = strawberry.field(description="Since when it is held back, if it is.")

    @classmethod
    def of(cls, stats: reads.KindStats) -> "JobKindStats":
        return cls(
            kind=JobKind.of(stats.kind),
            waiting=stats.waiting,
            scheduled=stats.scheduled,
            running=stats.running,
            failed=stats.failed,
            oldest_waiting=stats.oldest_waiting,
            finished_per_minute=stats.finished_per_minute,
            failed_per_minute=stats.failed_per_minute,
            pickup_p50=stats.pickup_p50,
            pickup_p95=stats.pickup_p95,
            run_p50=stats.run_time_p50,
            run_p95=stats.run_time_p95,
            paused_at=stats.paused_at,
        )


@strawberry.type(description="How the queue is doing.")
class JobStats:
    kinds: list[JobKindStats] = strawberry.field(description="By kind of work.")
    workers: int = strawberry.field(description="Leases of worker processes that are alive.")
    cursor: str = strawberry.field(description="The place in the log that these figures belong to.")

    @classmethod
    def of(cls, stats: reads.JobStats, cursor: Cursor) -> "JobStats":
        return cls(kinds=[JobKindStats.of(kind) for kind in stats.kinds], workers=stats.workers, cursor=str(cursor))
