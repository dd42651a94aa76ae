"""Tables of network volumes and of the instances that hold them."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from server.db.tables.base import Base, CreatedAt, Id, one_of
from server.enums import VolumeStatus


class Volume(Base):
    """A network volume of a project. Only `server.volumes.rows` writes it."""

    __tablename__ = "volume"
    __table_args__ = (
        one_of("status", VolumeStatus),
        CheckConstraint("(status = 'DELETED') = (deleted_at IS NOT NULL)", name="deleted_has_a_time"),
        CheckConstraint("status <> 'FAILED' OR failure_code IS NOT NULL", name="failed_says_why"),
        Index(
            "volume_name_is_unique_among_the_living",
            "project_id",
            "name",
            unique=True,
            postgresql_where=text("status <> 'DELETED'"),
        ),
        Index(
            "volume_novita_id_is_unique_among_the_living",
            "novita_id",
            unique=True,
            postgresql_where=text("novita_id IS NOT NULL AND status <> 'DELETED'"),
        ),
        Index("volume_by_marker", "marker", unique=True, postgresql_where=text("marker IS NOT NULL")),
        Index("volume_by_project", "project_id", "created_at", "id", postgresql_where=text("status <> 'DELETED'")),
    )

    id: Mapped[Id]
    project_id: Mapped[UUID] = mapped_column(ForeignKey("project.id"))
    name: Mapped[str]
    region: Mapped[str]
    cluster_id: Mapped[str]
    size_gb: Mapped[int]
    status: Mapped[str]
    # Why it FAILED, or why a delete is not carried out yet.
    failure_code: Mapped[str | None]
    failure_message: Mapped[str | None]
    novita_id: Mapped[str | None]
    price_e5: Mapped[int | None]  # as the provider says it: see server/volumes/price.py
    # The create call: its number, the marker in the provider-side name, and when it was sent. `asked_at` is null again
    # when its result is known; until then the volume may exist and be billed.
    attempt: Mapped[int] = mapped_column(server_default=text("0"))
    marker: Mapped[str | None]
    asked_at: Mapped[datetime | None]
    delete_accepted_at: Mapped[datetime | None]
    # Since when the provider does not list it.
    missing_since: Mapped[datetime | None]
    created_by: Mapped[UUID | None] = mapped_column(ForeignKey("token.id", ondelete="SET NULL"))
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[CreatedAt]
    deleted_at: Mapped[datetime | None]


class VolumeAttachment(Base):
    """A volume that an instance holds until it is DELETED. What its machine mounts is in `instance.volumes`."""

    __tablename__ = "volume_attachment"
    __table_args__ = (
        # Of two creates that name the same volume at the same time, one is refused.
        Index("volume_attachment_is_exclusive", "volume_id", unique=True, postgresql_where=text("is_exclusive")),
        Index("volume_attachment_of_volume", "volume_id"),
    )

    instance_id: Mapped[UUID] = mapped_column(ForeignKey("instance.id", ondelete="CASCADE"), primary_key=True)
    volume_id: Mapped[UUID] = mapped_column(ForeignKey("volume.id"), primary_key=True)
    is_exclusive: Mapped[bool]
