"""What the last probe of each endpoint found."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, text
from sqlalchemy.orm import Mapped, mapped_column

from server.db.base import Base


class ProbeResult(Base):
    """One endpoint of one instance, as it was found last in the present run. `attempts` counts within one check."""

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
