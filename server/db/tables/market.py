"""Tables of the market: what the provider offers, how that changed, and when it was read."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, ForeignKey, Identity, Index, SmallInteger, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from server.db.tables.base import Base, CreatedAt, Id


class MarketRegion(Base):
    """A region of the provider as last listed; `cluster` is the provider's description."""

    __tablename__ = "market_region"

    region: Mapped[str] = mapped_column(primary_key=True)
    cluster_id: Mapped[str]
    list_order: Mapped[int] = mapped_column(SmallInteger)
    cluster: Mapped[dict[str, Any]]
    polled_at: Mapped[datetime]  # when the last call began, successful or not
    seen_at: Mapped[datetime]


class MarketSegment(Base):
    """One region, billing mode and number of GPUs: what one provider call lists. 0 GPUs: CPU products."""

    __tablename__ = "market_segment"

    region: Mapped[str] = mapped_column(primary_key=True)
    mode: Mapped[str] = mapped_column(primary_key=True)
    gpu_count: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False)
    polled_at: Mapped[datetime | None]  # when the last call began, successful or not
    seen_at: Mapped[datetime | None]  # when the last successful call began
    used_at: Mapped[datetime | None]  # when a catalogue read last used it
    watched_until: Mapped[datetime | None]  # subscribers renew it


class MarketCall(Base):
    """A call of the market poller within the last minute: they are limited together."""

    __tablename__ = "market_call"

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    at: Mapped[datetime]


class MarketAlert(Base):
    """Conditions on offers; null: any. `price_at_most_e5` is for the whole machine and hour."""

    __tablename__ = "market_alert"
    __table_args__ = (Index("market_alert_by_project", "project_id", "created_at", "id"),)

    id: Mapped[Id]
    project_id: Mapped[UUID] = mapped_column(ForeignKey("project.id"))
    product_names: Mapped[list[str] | None] = mapped_column(JSONB(none_as_null=True))
    regions: Mapped[list[str] | None] = mapped_column(JSONB(none_as_null=True))
    modes: Mapped[list[str] | None] = mapped_column(JSONB(none_as_null=True))
    gpu_count: Mapped[int] = mapped_column(SmallInteger)
    price_at_most_e5: Mapped[int | None]
    held_for: Mapped[timedelta]
    cooldown: Mapped[timedelta]
    expires_at: Mapped[datetime | None]
    webhook_url: Mapped[str | None]
    fired_at: Mapped[datetime | None]  # the last time
    created_by: Mapped[UUID | None] = mapped_column(ForeignKey("token.id", ondelete="SET NULL"))
    created_at: Mapped[CreatedAt]


class MarketAlertMatch(Base):
    """An offer that matches an alert since `since`; it has fired it at `fired_at`."""

    __tablename__ = "market_alert_match"
    __table_args__ = (Index("market_alert_match_of_offer", "region", "mode", "gpu_count", "product_id"),)

    alert_id: Mapped[UUID] = mapped_column(ForeignKey("market_alert.id", ondelete="CASCADE"), primary_key=True)
    region: Mapped[str] = mapped_column(primary_key=True)
    product_id: Mapped[str] = mapped_column(primary_key=True)
    mode: Mapped[str] = mapped_column(primary_key=True)
    gpu_count: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False)
    since: Mapped[datetime]
    fired_at: Mapped[datetime | None]


class Offer(Base):
    """A product in a segment, as last seen. `price_e5` is that of the whole machine for an hour; null: not sold in this
    mode. `is_listed`: the provider still lists it. `product` is the provider's description."""

    __tablename__ = "offer"
    __table_args__ = (Index("offer_by_name", "product_name", "gpu_count"),)

    region: Mapped[str] = mapped_column(primary_key=True)
    product_id: Mapped[str] = mapped_column(primary_key=True)
    mode: Mapped[str] = mapped_column(primary_key=True)
    gpu_count: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False)
    product_name: Mapped[str]
    price_e5: Mapped[int | None]
    is_available: Mapped[bool]
    inventory: Mapped[str | None]
    is_listed: Mapped[bool] = mapped_column(server_default=text("true"))
    product: Mapped[dict[str, Any]]
    seen_at: Mapped[datetime]
    changed_at: Mapped[datetime]


class OfferChange(Base):
    """Another price, stock or availability of an offer. Two rows in sequence always differ."""

    __tablename__ = "offer_change"
    __table_args__ = (
        Index("offer_change_of_product", "product_name", "region", "mode", "gpu_count", "product_id", "at", "id"),
        Index("offer_change_by_time", "at"),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    region: Mapped[str]
    product_id: Mapped[str]
    product_name: Mapped[str]
    mode: Mapped[str]
    gpu_count: Mapped[int] = mapped_column(SmallInteger)
    price_e5: Mapped[int | None]
    is_available: Mapped[bool]
    inventory: Mapped[str | None]
    at: Mapped[datetime]
