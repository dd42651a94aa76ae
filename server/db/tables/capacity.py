"""Tables of waiting for capacity: the operations that wait, and whose turn it was."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, ForeignKey, Index, SmallInteger, text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import Mapped, mapped_column
from sqlalchemy.types import Text

from server.db.tables.base import Base


class CapacityWait(Base):
    """An operation that waits until the provider offers what it needs. It is asleep while `job_id` is null.

    `kind` and `args` are the job that carries it out. `offer_*` is the offer that it was woken for. `unfit` are offers
    that the provider refused for another reason than stock.
    """

    __tablename__ = "capacity_wait"
    __table_args__ = (
        Index("capacity_wait_for_product", "product_name", "gpu_count"),
        Index("capacity_wait_of_project", "project_id"),
    )

    operation_id: Mapped[UUID] = mapped_column(ForeignKey("operation.id", ondelete="CASCADE"), primary_key=True)
    project_id: Mapped[UUID]
    instance_id: Mapped[UUID]
    kind: Mapped[str]
    args: Mapped[dict[str, Any]]
    product_name: Mapped[str]
    product_id: Mapped[str | None]  # that of a machine which is to be started again
    gpu_count: Mapped[int] = mapped_column(SmallInteger)
    rootfs_size_gb: Mapped[int | None]
    regions: Mapped[list[str]] = mapped_column(ARRAY(Text))
    modes: Mapped[list[str]] = mapped_column(ARRAY(Text))
    max_price_e5: Mapped[int | None] = mapped_column(BigInteger)
    priority: Mapped[int] = mapped_column(SmallInteger)
    since: Mapped[datetime]
    until: Mapped[datetime]
    tries: Mapped[int] = mapped_column(server_default=text("0"))
    unfit: Mapped[list[str]] = mapped_column(JSONB, server_default=text("'[]'"))
    blocked_by: Mapped[str | None]  # BUDGET or QUOTA
    blocked_until: Mapped[datetime | None]
    refused_at: Mapped[datetime | None]  # a start, by a host that may be full although the product is offered
    job_id: Mapped[int | None] = mapped_column(BigInteger)
    offer_region: Mapped[str | None]
    offer_product_id: Mapped[str | None]
    offer_mode: Mapped[str | None]
    woken_at: Mapped[datetime | None]


class CapacityTurn(Base):
    """When a waiting operation of the project was last served: a number that rises with each one."""

    __tablename__ = "capacity_turn"

    project_id: Mapped[UUID] = mapped_column(ForeignKey("project.id", ondelete="CASCADE"), primary_key=True)
    served: Mapped[int] = mapped_column(BigInteger)
