"""Table of the machines that an instance has had at the provider."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from server.db.tables.base import Base

OPEN = "ended_at IS NULL"


class Machine(Base):
    """A machine of an instance, from its creation until the provider has it no more. Only
    `server.instances.machines` writes it.

    It serves, or is to be removed (`removing_from`), or is gone (`ended_at`). One that is none of them belongs to an
    open operation.
    """

    __tablename__ = "machine"
    __table_args__ = (
        CheckConstraint("(ended_at IS NULL) = (end_reason IS NULL)", name="ended_says_why"),
        Index("machine_of_instance", "instance_id", "novita_id", unique=True),
        Index(
            "machine_one_serving_per_instance",
            "instance_id",
            unique=True,
            postgresql_where=text(f"serving_from IS NOT NULL AND removing_from IS NULL AND {OPEN}"),
        ),
        Index("machine_by_novita_id", "novita_id", postgresql_where=text(OPEN)),
        Index("machine_to_remove", "instance_id", postgresql_where=text(f"removing_from IS NOT NULL AND {OPEN}")),
    )

    instance_id: Mapped[UUID] = mapped_column(ForeignKey("instance.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)  # 1, 2, ...
    novita_id: Mapped[str]
    region: Mapped[str | None]
    product_id: Mapped[str | None]
    billing_mode: Mapped[str | None]
    price_e5: Mapped[int | None]  # of the whole machine for an hour
    began_at: Mapped[datetime]
    serving_from: Mapped[datetime | None]
    # From when on it is to be removed; when the call that has no response yet was sent; and when the provider accepted
    # that, or was first seen without it.
    removing_from: Mapped[datetime | None]
    removal_sent_at: Mapped[datetime | None]
    removal_accepted_at: Mapped[datetime | None]
    missing_since: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    end_reason: Mapped[str | None]
