"""Reads the offers that match a filter."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.tables import Offer, OfferRow
from server.market import segments
from server.market.tape import OfferKey


@dataclass(frozen=True, slots=True)
class OfferFilter:
    """Conditions that must all hold; None: any. Offers that the provider no longer lists are left out."""

    product_names: tuple[str, ...] | None = None
    regions: tuple[str, ...] | None = None
    modes: tuple[str, ...] | None = None
    gpu_count: int = 1
    available_only: bool = False


async def read_offers(session: AsyncSession, wanted: OfferFilter) -> Sequence[OfferRow]:
    """By product, region, mode and price."""
    shown = [getattr(Offer, name) for name in OfferRow._fields]
    query = select(*shown).where(Offer.gpu_count == wanted.gpu_count, Offer.is_listed)
    if wanted.product_names is not None:
        query = query.where(Offer.product_name.in_(wanted.product_names))
    if wanted.regions is not None:
        query = query.where(Offer.region.in_(wanted.regions))
    if wanted.modes is not None:
        query = query.where(Offer.mode.in_(wanted.modes))
    if wanted.available_only:
        query = query.where(Offer.is_available)
    order = (Offer.product_name, Offer.region, Offer.mode, Offer.price_e5, Offer.product_id)
    return [OfferRow._make(row) for row in await session.execute(query.order_by(*order))]


async def watch_offers(session: AsyncSession, wanted: OfferFilter) -> None:
    """Let the poller read these offers often, for the next minute."""
    await segments.watch(session, regions=wanted.regions, modes=wanted.modes, gpu_count=wanted.gpu_count)


def key_of(offer: OfferRow) -> OfferKey:
    return OfferKey(offer.region, offer.product_id, offer.mode, offer.gpu_count)
