"""Tables of lifetimes: the rules of projects, and the pace at which metrics are read."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from server.db.tables.base import Base, CreatedAt


class MetricsReading(Base):
    """One row: the time before which no process may read metrics."""

    __tablename__ = "metrics_reading"
    __table_args__ = (CheckConstraint("only_row", name="has_one_row"),)

    only_row: Mapped[bool] = mapped_column(primary_key=True)
    next_at: Mapped[datetime]


class LifetimePolicy(Base):
    """Which lifetimes a project allows and which it gives by default."""

    __tablename__ = "lifetime_policy"

    project_id: Mapped[UUID] = mapped_column(ForeignKey("project.id"), primary_key=True)
    required: Mapped[bool] = mapped_column(server_default=text("false"))
    max_duration_at_most_s: Mapped[int | None]
    default_max_duration_s: Mapped[int | None]
    default_idle: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
    updated_at: Mapped[CreatedAt]
