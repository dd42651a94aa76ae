"""Tables of the last probe result of each endpoint, and of the instances whose endpoints are watched."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from server.db.tables.base import Base


class ProbeResult(Base):
    """The last result of one endpoint in the instance's present run. `attempts` counts within one check."""

    __tablename__ = "probe_result"
    __table_args__ = (
        CheckConstraint("is_healthy = (error_kind IS NULL)", name="unhealthy_says_why"),
        CheckConstraint("attempts >= 1", name="was_probed"),
    )

    instance_id: Mapped[UUID] = mapped_column(ForeignKey("instance.id", ondelete="CASCADE"), primary_key=True)
    port: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    type: Mapped[str]
    address: Mapped[str | None]
    is_healthy: Mapped[bool]
    http_status: Mapped[int | None]
    latency_ms: Mapped[float]
    error_kind: Mapped[str | None]
    message: Mapped[str | None]
    attempts: Mapped[int] = mapped_column(server_default=text("1"))
    checked_at: Mapped[datetime]


class HealthWatch(Base):
    """A READY instance whose endpoints are probed at an interval. Narrow, because each probe writes its row.

    `failures` and `successes` are consecutive. A row of an earlier run, with another `since`, is replaced.
    """

    __tablename__ = "health_watch"
    __table_args__ = (Index("health_watch_by_due_at", "due_at"),)

    instance_id: Mapped[UUID] = mapped_column(ForeignKey("instance.id", ondelete="CASCADE"), primary_key=True)
    since: Mapped[datetime]  # the instance's status_since
    due_at: Mapped[datetime]  # the next probe; while one is running, when another job may repeat it
    failures: Mapped[int] = mapped_column(server_default=text("0"))
    successes: Mapped[int] = mapped_column(server_default=text("0"))
