"""Tables of the event log: outbox, numbered events, and the log's identity."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, Identity, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from server.db.tables.base import Base

# The time of writing, not of the transaction's begin: writers of one instance wait for its row, and the first to begin
# may be the last to write.
WRITTEN_AT = text("clock_timestamp()")


class Outbox(Base):
    """Events that have no position yet. Rows stay for milliseconds, until the sequencer moves them to `event`.

    No foreign keys here or in `event`: the log outlives the rows that it refers to.
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
    """The log: append-only, positions without gaps, partitioned by position. Only the sequencer writes it."""

    __tablename__ = "event"
    __table_args__ = (
        Index("event_by_project", "project_id", "position"),
        Index("event_of_project", "project_id", "position", postgresql_where=text("instance_id IS NULL")),
        Index("event_by_instance", "instance_id", "position"),
        Index("event_by_id", "id"),
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
    """One row: the log's epoch and home (see log_identity.py) and the last assigned position."""

    __tablename__ = "event_log"
    __table_args__ = (CheckConstraint("is_the_only_row", name="has_one_row"),)

    is_the_only_row: Mapped[bool] = mapped_column(primary_key=True, server_default=text("true"))
    epoch: Mapped[int]
    home: Mapped[str]
    head: Mapped[int]
    is_replicated: Mapped[bool] = mapped_column(
        server_default=text("false")
    )  # the next promoted standby has every event
    # When the database was last found to be restored: creates from before then look for their machine first.
    restored_at: Mapped[datetime | None]
