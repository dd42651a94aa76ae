"""Tables of the queue: jobs, finished jobs, workers, pauses and schedules."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, Identity, Index, Interval, SmallInteger, text
from sqlalchemy.orm import Mapped, mapped_column

from server.db.tables.base import Base, CreatedAt


class JobStatus(StrEnum):
    """Status of a job. The first two are in `job`, the others in `job_history`."""

    WAITING = "WAITING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


LINES = {
    "ends": ("STOP_INSTANCE", "DELETE_INSTANCE", "REMOVE_MACHINE"),
    "starts": (
        "START_INSTANCE",
        "RESTART_INSTANCE",
        "MIGRATE_INSTANCE",
        "UPDATE_INSTANCE",
        "SAVE_IMAGE",
        "UPGRADE_INSTANCE",
        "START_BY_STEPS",
    ),
    "creates": ("CREATE_INSTANCE",),
}


def _is_in_line(line: str) -> str:
    kinds = ", ".join(f"'{kind}'" for kind in LINES[line])
    return f"kind IN ({kinds})"


class Job(Base):
    """A job that has not ended. Finished jobs move to `job_history`, so this table stays small and its indexes dense.

    No index contains a column that a claim changes, not even in its condition: a claim must not write to any index.
    No foreign keys: each would be checked at every insert, and a job may outlive the rows that it works on.
    """

    __tablename__ = "job"
    __table_args__ = (
        CheckConstraint("status IN ('WAITING', 'RUNNING')", name="status_is_known"),
        CheckConstraint(
            "(status = 'RUNNING') = (claim IS NOT NULL AND worker_id IS NOT NULL AND claimed_at IS NOT NULL)",
            name="running_has_a_claim",
        ),
        CheckConstraint("due_at >= run_at", name="is_not_due_before_it_may_run"),
        Index("job_claimable", "kind", "due_at", "id", "run_at"),
        # The lines of the classes in server/queue/kinds.py whose projects take turns. A new kind of such a class needs
        # a migration that adds it here.
        *(
            Index(f"job_line_{line}", "project_id", "due_at", "id", postgresql_where=text(_is_in_line(line)))
            for line in LINES
        ),
        Index("job_to_cancel", "id", postgresql_where=text("cancel_requested")),
        Index("job_unique_key", "unique_key", unique=True, postgresql_where=text("unique_key IS NOT NULL")),
        Index("job_by_instance", "instance_id", "id", postgresql_where=text("instance_id IS NOT NULL")),
    )

    id: Mapped[int] = mapped_column(Identity(always=False), primary_key=True)
    kind: Mapped[str]
    args: Mapped[dict[str, Any]]
    priority: Mapped[int] = mapped_column(SmallInteger)
    status: Mapped[str] = mapped_column(server_default=text("'WAITING'"))
    project_id: Mapped[UUID | None]
    instance_id: Mapped[UUID | None]
    unique_key: Mapped[str | None]
    run_at: Mapped[datetime]
    due_at: Mapped[datetime]
    # From when it was scheduled until `run_at`. Null if an older process scheduled it.
    pause: Mapped[timedelta | None] = mapped_column(Interval, server_default=text("'00:00:00'"))
    attempts: Mapped[int] = mapped_column(SmallInteger, server_default=text("0"))
    losses: Mapped[int] = mapped_column(SmallInteger, server_default=text("0"))
    cancel_requested: Mapped[bool] = mapped_column(server_default=text("false"))
    claim: Mapped[int | None]
    worker_id: Mapped[UUID | None]
    claimed_at: Mapped[datetime | None]
    error_code: Mapped[str | None]
    error_message: Mapped[str | None]
    created_at: Mapped[CreatedAt]
    origin: Mapped[str | None]


class JobHistory(Base):
    """A job that has ended. FAILED ones can be retried from here."""

    __tablename__ = "job_history"
    __table_args__ = (
        CheckConstraint("status IN ('SUCCEEDED', 'FAILED', 'CANCELLED')", name="status_is_known"),
        CheckConstraint("status <> 'FAILED' OR error_code IS NOT NULL", name="failed_says_why"),
        # Two indexes, because retention differs: a scan from the oldest must not pass the other's rows.
        Index("job_history_over", "finished_at", postgresql_where=text("status <> 'FAILED'")),
        Index("job_history_failed", "finished_at", postgresql_where=text("status = 'FAILED'")),
        Index("job_history_by_instance", "instance_id", "id", postgresql_where=text("instance_id IS NOT NULL")),
        Index("job_history_by_project", "project_id", "id", postgresql_where=text("project_id IS NOT NULL")),
    )

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    kind: Mapped[str]
    args: Mapped[dict[str, Any]]
    priority: Mapped[int] = mapped_column(SmallInteger)
    status: Mapped[str]
    project_id: Mapped[UUID | None]
    instance_id: Mapped[UUID | None]
    unique_key: Mapped[str | None]
    run_at: Mapped[datetime]
    attempts: Mapped[int] = mapped_column(SmallInteger)
    error_code: Mapped[str | None]
    error_message: Mapped[str | None]
    created_at: Mapped[datetime]
    claimed_at: Mapped[datetime | None]
    finished_at: Mapped[datetime]


class JobWorker(Base):
    """One session of a worker. Until `lease_until` it owns the jobs that it claimed."""

    __tablename__ = "job_worker"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    name: Mapped[str]
    started_at: Mapped[CreatedAt]
    lease_until: Mapped[datetime]
    lease: Mapped[timedelta | None] = mapped_column(Interval)  # its length; null for an older process


class JobPause(Base):
    """A paused kind, which no worker claims. A row, so that it survives restarts and applies to every process."""

    __tablename__ = "job_pause"

    kind: Mapped[str] = mapped_column(primary_key=True)
    paused_at: Mapped[CreatedAt]


class JobSchedule(Base):
    """When each recurring job is due next; the worker that first updates `next_at` enqueues it."""

    __tablename__ = "job_schedule"

    kind: Mapped[str] = mapped_column(primary_key=True)
    every: Mapped[timedelta] = mapped_column(Interval)
    next_at: Mapped[datetime]
