"""Tables of the market: what the provider offers, how that changed, and when it was read."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Identity, Index, SmallInteger, text
from sqlalchemy.orm import Mapped, mapped_column

from server.db.tables.base import Base


class MarketPlace(Base):
    """One region, billing mode and number of GPUs: what one provider call lists. 0 GPUs: CPU products."""

    __tablename__ = "market_place"

    region: Mapped[str] = mapped_column(primary_key=True)
    mode: Mapped[str] = mapped_column(primary_key=True)
    gpu_count: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False)
    cluster_id: Mapped[str]
    asked_at: Mapped[datetime | None]  # when the last call began, successful or not
    seen_at: Mapped[datetime | None]  # when the last successful call began
    wanted_at: Mapped[datetime | None]  # when a catalogue read last needed it
    watched_until: Mapped[datetime | None]  # subscribers renew it


class MarketCall(Base):
    """A call of the market poller within the last minute: they are limited together."""

    __tablename__ = "market_call"

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    at: Mapped[datetime]


class Offer(Base):
    """A product in a place, as last seen. `price_e5` is that of the whole machine for an hour; null: not sold there in
    this mode. `is_listed`: the provider still lists it. `product` is the provider's description."""

    __tablename__ = "offer"
    __table_args__ = (Index("offer_by_name", "product_name", "gpu_count"),)

    region: Mapped[str] = mapped_column(primary_key=True)
    product_id: Mapped[str] = mapped_column(primary_key=True)
    mode: Mapped[str] = mapped_column(primary_key=True)
    gpu_count: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False)
    cluster_id: Mapped[str]
    product_name: Mapped[str]
    price_e5: Mapped[int | None]
    is_available: Mapped[bool]
    inventory: Mapped[str | None]
    min_rootfs_gb: Mapped[int | None]
    max_rootfs_gb: Mapped[int | None]
    is_listed: Mapped[bool] = mapped_column(server_default=text("true"))
    product: Mapped[dict[str, Any]]
    seen_at: Mapped[datetime]
    changed_at: Mapped[datetime]


class OfferChange(Base):
    """Another price, stock or availability of an offer. Two rows in sequence always differ."""

    __tablename__ = "offer_change"
    __table_args__ = (
        Index("offer_change_of_offer", "product_name", "region", "mode", "gpu_count", "at"),
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
