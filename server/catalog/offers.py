"""Offers: every product of every region in one list, with prices."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from server.catalog.catalog import Catalog, Cluster, Product
from server.novita.models import find_cluster

SPOT = "spot"
ON_DEMAND = "onDemand"


@dataclass(frozen=True, slots=True)
class Offer:
    """One product in one region. A price of None means that this billing mode is not offered there."""

    product: Product
    region: Cluster
    price_per_gpu_hour_e5: int | None
    spot_price_per_gpu_hour_e5: int | None
    is_available: bool
    is_spot_available: bool
    fetched_at: datetime
    is_stale: bool


async def offers(
    catalog: Catalog,
    *,
    name: str | None = None,
    regions: Sequence[str] = (),
    available_only: bool = False,
    is_cpu: bool = False,
) -> list[Offer]:
    """By region in the provider's order, then by price. `name` matches a part; unknown regions are ignored."""
    clusters = await catalog.regions()
    if regions:
        named = [find_cluster(clusters, region) for region in dict.fromkeys(regions)]
        clusters = [cluster for cluster in named if cluster is not None]
    offers_by_region = await asyncio.gather(*(_of_region(catalog, cluster, 0 if is_cpu else 1) for cluster in clusters))
    part = (name or "").strip().casefold()
    return [
        offer
        for region in offers_by_region
        for offer in region
        if part in offer.product.name.casefold()
        and (offer.is_available or offer.is_spot_available or not available_only)
    ]


async def _of_region(catalog: Catalog, region: Cluster, gpu_count: int) -> list[Offer]:
    on_demand, spot = await asyncio.gather(
        catalog.products(region.id, ON_DEMAND, gpu_count=gpu_count),
        catalog.products(region.id, SPOT, gpu_count=gpu_count),
    )
    fetched_at, is_stale = min(on_demand.fetched_at, spot.fetched_at), on_demand.is_stale or spot.is_stale
    by_demand = {product.id: product for product in on_demand.value}
    by_spot = {product.id: product for product in spot.value if product.spot_price_per_gpu_hour_e5 is not None}
    region_offers = [
        _offer(region, by_demand.get(product_id), by_spot.get(product_id), fetched_at, is_stale)
        for product_id in dict.fromkeys([*by_demand, *by_spot])
    ]
    return sorted(region_offers, key=lambda offer: (offer.price_per_gpu_hour_e5 or 0, offer.product.id))


def _offer(
    region: Cluster, on_demand: Product | None, spot: Product | None, fetched_at: datetime, is_stale: bool
) -> Offer:
    product = on_demand or spot
    if product is None:
        raise LookupError("an offer needs a product")
    return Offer(
        product=product,
        region=region,
        price_per_gpu_hour_e5=on_demand.price_per_gpu_hour_e5 if on_demand else None,
        spot_price_per_gpu_hour_e5=spot.spot_price_per_gpu_hour_e5 if spot else None,
        is_available=on_demand is not None and on_demand.is_deployable,
        is_spot_available=spot is not None and spot.is_deployable,
        fetched_at=fetched_at,
        is_stale=is_stale,
    )
