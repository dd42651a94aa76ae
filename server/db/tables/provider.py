"""Tables about the provider: which one the database belongs to, and machines there that no instance has."""

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from server.db.tables.base import Base, CreatedAt, one_of
from server.enums import ProviderKind


class ProviderIdentity(Base):
    """At most one row, written at first use: the world of a simulator, or an account at a base URL.

    An API key is recognised by a salted hash and not stored.
    """

    __tablename__ = "provider_identity"
    __table_args__ = (
        CheckConstraint("is_the_only_row", name="has_one_row"),
        one_of("kind", ProviderKind),
        CheckConstraint("(kind = 'SIMULATOR') = (world_id IS NOT NULL)", name="simulator_has_a_world"),
    )

    is_the_only_row: Mapped[bool] = mapped_column(primary_key=True, server_default=text("true"))
    kind: Mapped[str]
    base_url: Mapped[str]
    world_id: Mapped[str | None]
    salt: Mapped[str]
    # Of every key that is known to be of this account, newest last.
    key_hashes: Mapped[list[str]]
    bound_at: Mapped[CreatedAt]
    # What `pilotlight doctor --live` found out about the provider, and when.
    answers: Mapped[dict[str, Any] | None]
    answered_at: Mapped[datetime | None]


class UnlinkedCount(Base):
    """How many machines without a row the last reconcile found, by where they come from."""

    __tablename__ = "unlinked_count"

    origin: Mapped[str] = mapped_column(primary_key=True)
    machines: Mapped[int]
    counted_at: Mapped[CreatedAt]
