"""Tables of webhook secrets, deliveries and delivery attempts."""

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Identity, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from server.db.tables.base import Base, CreatedAt, Id, one_of


class DeliveryStatus(StrEnum):
    """Status of a delivery."""

    PENDING = "PENDING"
    DELIVERED = "DELIVERED"
    FAILED = "FAILED"


class WebhookSecret(Base):
    """One generation of a project's secret. The secret is not stored: it is derived from the salt and the signing key.

    `key_check` shows whether a process has the key that the secret was derived from. `retires_at` is set when a newer
    generation is created; until then both sign.
    """

    __tablename__ = "webhook_secret"

    project_id: Mapped[UUID] = mapped_column(ForeignKey("project.id", ondelete="CASCADE"), primary_key=True)
    generation: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    salt: Mapped[bytes]
    key_check: Mapped[bytes]
    created_at: Mapped[CreatedAt]
    retires_at: Mapped[datetime | None]


class Delivery(Base):
    """One message to one receiver. The body is stored, so every attempt sends the same bytes."""

    __tablename__ = "delivery"
    __table_args__ = (
        one_of("status", DeliveryStatus),
        CheckConstraint("(status = 'PENDING') = (finished_at IS NULL)", name="over_has_a_time"),
        CheckConstraint("status <> 'FAILED' OR error_code IS NOT NULL", name="failed_says_why"),
        Index(
            "delivery_waiting_by_instance",
            "instance_id",
            "seq",
            postgresql_where=text("status = 'PENDING' AND keeps_order"),
        ),
        Index("delivery_by_project", "project_id", "created_at", "id"),
        Index("delivery_by_instance", "instance_id", "created_at", "id"),
        Index("delivery_over", "finished_at", postgresql_where=text("finished_at IS NOT NULL")),
    )

    id: Mapped[Id]
    # Drawn under the instance's row lock, so it increases in the order of the instance's events.
    seq: Mapped[int] = mapped_column(Identity(always=True))
    project_id: Mapped[UUID] = mapped_column(ForeignKey("project.id"))
    instance_id: Mapped[UUID | None] = mapped_column(ForeignKey("instance.id"))
    event_id: Mapped[UUID | None]
    event_type: Mapped[str]
    url: Mapped[str]
    body: Mapped[str]
    status: Mapped[str]
    # Whether deliveries of the instance are sent in order with this one.
    keeps_order: Mapped[bool]
    attempts: Mapped[int] = mapped_column(server_default=text("0"))
    # Attempts that count towards giving up; a redelivery starts again at 0.
    counted: Mapped[int] = mapped_column(server_default=text("0"))
    error_code: Mapped[str | None]
    created_at: Mapped[CreatedAt]
    asked_at: Mapped[CreatedAt]
    next_attempt_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]


class DeliveryAttempt(Base):
    """One request to the receiver, written before it is sent. Without `finished_at` the process died during it."""

    __tablename__ = "delivery_attempt"

    delivery_id: Mapped[UUID] = mapped_column(ForeignKey("delivery.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    started_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]
    http_status: Mapped[int | None]
    error_code: Mapped[str | None]
    message: Mapped[str | None]
