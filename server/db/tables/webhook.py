"""Tables of webhook secrets, deliveries and delivery attempts."""

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Identity, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from server.db.tables.base import Base, CreatedAt, Id, one_of

OF_A_PROJECT = text("project_webhook_id IS NOT NULL")


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


class ProjectWebhook(Base):
    """Where events of a whole project are sent. It gets events of `types` behind the position `after`."""

    __tablename__ = "project_webhook"
    __table_args__ = (Index("project_webhook_by_project", "project_id", "created_at", "id"),)

    id: Mapped[Id]
    project_id: Mapped[UUID] = mapped_column(ForeignKey("project.id"))
    url: Mapped[str]
    types: Mapped[list[str]]
    after: Mapped[int]
    created_by: Mapped[UUID | None] = mapped_column(ForeignKey("token.id", ondelete="SET NULL"))
    created_at: Mapped[CreatedAt]
    disabled_at: Mapped[datetime | None]


class WebhookFeed(Base):
    """At most one row: up to where the log was compared with the webhooks of projects."""

    __tablename__ = "webhook_feed"
    __table_args__ = (CheckConstraint("is_the_only_row", name="has_one_row"),)

    is_the_only_row: Mapped[bool] = mapped_column(primary_key=True, server_default=text("true"))
    position: Mapped[int]


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
        Index(
            "delivery_waiting_by_webhook",
            "project_webhook_id",
            "subject_id",
            "seq",
            postgresql_where=text("status = 'PENDING' AND project_webhook_id IS NOT NULL"),
        ),
        Index("delivery_by_webhook", "project_webhook_id", "created_at", "id", postgresql_where=OF_A_PROJECT),
        Index("delivery_by_subject", "subject_id", "created_at", "id", postgresql_where=OF_A_PROJECT),
        Index("delivery_by_project", "project_id", "created_at", "id"),
        Index("delivery_by_instance", "instance_id", "created_at", "id"),
        Index("delivery_over", "finished_at", postgresql_where=text("finished_at IS NOT NULL")),
    )

    id: Mapped[Id]
    # Drawn under the instance's row lock, so it increases in the order of the instance's events.
    seq: Mapped[int] = mapped_column(Identity(always=True))
    project_id: Mapped[UUID] = mapped_column(ForeignKey("project.id"))
    instance_id: Mapped[UUID | None] = mapped_column(ForeignKey("instance.id"))
    # The project's webhook that it is for; no foreign key, because the delivery outlives it.
    project_webhook_id: Mapped[UUID | None]
    # The instance that a delivery of a project's webhook is about. Not in `instance_id`: processes of the release
    # before would send the instance's own messages only after these.
    subject_id: Mapped[UUID | None]
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
