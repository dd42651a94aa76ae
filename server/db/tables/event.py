"""The event log: what was committed and not yet numbered, the numbered log, and the one row that names it."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, Identity, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from server.db.base import Base

# When it was written, not when its transaction began: writers of one instance queue up for its row, and the one
# that began first may come last.
WRITTEN_AT = text("clock_timestamp()")


class Outbox(Base):
    """Events as their transactions wrote them. Rows stay for milliseconds: the sequencer moves them to `event`.

    No foreign keys here nor in `event`: the log outlives what it tells of.
    """

    __tablename__ = "outbox"

    seq: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    id: Mapped[UUID]
    type: Mapped[str]
    project_id: Mapped[UUID]
    instance_id: Mapped[UUID | None]
    operation_id: Mapped[UUID | None]
    caused_by: Mapped[UUID | None]
    data: Mapped[dict[str, Any]]
    occurred_at: Mapped[datetime] = mapped_column(server_default=WRITTEN_AT)


class LoggedEvent(Base):
    """The log: append-only, positions without a gap, partitioned by position. Written by the sequencer alone."""

    __tablename__ = "event"
    __table_args__ = (
        Index("event_by_project", "project_id", "position"),
        Index("event_by_instance", "instance_id", "position"),
        {"postgresql_partition_by": "RANGE (position)"},
    )

    position: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    id: Mapped[UUID]
    type: Mapped[str]
    project_id: Mapped[UUID]
    instance_id: Mapped[UUID | None]
    operation_id: Mapped[UUID | None]
    caused_by: Mapped[UUID | None]
    data: Mapped[dict[str, Any]]
    occurred_at: Mapped[datetime]


class EventLog(Base):
    """One row: which log this is, and the last position given out."""

    __tablename__ = "event_log"
    __table_args__ = (CheckConstraint("is_the_only_row", name="has_one_row"),)

    is_the_only_row: Mapped[bool] = mapped_column(primary_key=True, server_default=text("true"))
    epoch: Mapped[int]
    home: Mapped[str]
    head: Mapped[int]
    is_replicated: Mapped[bool] = mapped_column(server_default=text("false"))  # whoever is promoted next has it all
