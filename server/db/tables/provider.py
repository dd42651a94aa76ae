"""Tables about the provider: which one the database belongs to, machines without an instance, who owns what."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ARRAY, CheckConstraint, Float, ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from server.db.tables.base import Base, CreatedAt, Id, one_of
from server.enums import ProviderKind, ProviderObjectKind


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


class ProviderBalance(Base):
    """At most one row: the account's balance when it was last read, and since when it is too low."""

    __tablename__ = "provider_balance"
    __table_args__ = (CheckConstraint("is_the_only_row", name="has_one_row"),)

    is_the_only_row: Mapped[bool] = mapped_column(primary_key=True, server_default=text("true"))
    available_e4: Mapped[int]  # ten-thousandths of a dollar
    observed_at: Mapped[CreatedAt]
    low_since: Mapped[datetime | None]


class ProviderObject(Base):
    """An object of the provider account that a project created. Only ownership is stored: the provider has the rest.

    The row is committed before the provider is called; `novita_id` is set when its id is known.
    """

    __tablename__ = "provider_object"
    __table_args__ = (
        one_of("kind", ProviderObjectKind),
        Index("provider_object_novita_id_is_unique", "kind", "novita_id", unique=True),
        # The provider's response may have no id, so a new object is recognised by its name: one create at a time.
        Index(
            "provider_object_one_unconfirmed_per_name",
            "kind",
            "name",
            unique=True,
            postgresql_where=text("novita_id IS NULL AND deleted_at IS NULL"),
        ),
        Index("provider_object_by_project", "project_id", "kind"),
        Index("provider_object_deleted", "deleted_at", postgresql_where=text("deleted_at IS NOT NULL")),
    )

    id: Mapped[Id]
    project_id: Mapped[UUID] = mapped_column(ForeignKey("project.id"))
    kind: Mapped[str]
    name: Mapped[str]
    novita_id: Mapped[str | None]
    # Ids of the same name that the provider had before the call: none of them is the new one.
    known_before: Mapped[list[str]] = mapped_column(server_default=text("'[]'::jsonb"))
    created_by: Mapped[UUID | None] = mapped_column(ForeignKey("token.id", ondelete="SET NULL"))
    created_at: Mapped[CreatedAt]
    # When the provider was last called to create it.
    asked_at: Mapped[CreatedAt]
    # A gone object has both: `missing_since` tells it from one that a caller deleted.
    deleted_at: Mapped[datetime | None]
    missing_since: Mapped[datetime | None]
    # Digest of what the provider last showed, without secrets: a difference is a change.
    seen: Mapped[str | None]


class ProviderBudget(Base):
    """At most one row: the calls that all processes together may make to the provider. Times are seconds since 1970."""

    __tablename__ = "provider_budget"
    __table_args__ = (
        CheckConstraint("is_the_only_row", name="has_one_row"),
        # The row is updated with every call; without an index on what changes, in place.
        {"postgresql_with": {"fillfactor": "50"}},
    )

    is_the_only_row: Mapped[bool] = mapped_column(primary_key=True, server_default=text("true"))
    version: Mapped[int]
    rate: Mapped[float]  # calls a second; lower than NOVITA_RATE_LIMIT after the provider has refused calls
    tokens: Mapped[float]
    at: Mapped[float]
    lowered_at: Mapped[float]
    # By class of calls: what is left of its own share, and the calls a second that it made lately.
    own: Mapped[list[float]] = mapped_column(ARRAY(Float))
    used: Mapped[list[float]] = mapped_column(ARRAY(Float))
