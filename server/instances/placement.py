"""Chooses the product and region for a create, and says why the others do not fit."""

import asyncio
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from server.catalog.catalog import Catalog, Listing
from server.db.tables import Instance
from server.enums import Billing, PlacementOrder
from server.novita.models import Cluster, Product, find_cluster

SPOT = "spot"
ON_DEMAND = "onDemand"
OUT_OF_STOCK = "OUT_OF_STOCK"

MODES: dict[Billing, tuple[str, ...]] = {
    Billing.SPOT: (SPOT,),
    Billing.ON_DEMAND: (ON_DEMAND,),
    Billing.SPOT_THEN_ON_DEMAND: (SPOT, ON_DEMAND),
}


@dataclass(frozen=True, slots=True)
class Requirements:
    """What a product and a region have to fulfil. `regions` is also the order for equal prices.

    `gpu_count` 0 is a CPU instance.
    """

    product_name: str
    gpu_count: int
    rootfs_size_gb: int
    billing: Billing
    max_hourly_price_e5: int | None
    regions: tuple[str, ...]
    order: PlacementOrder = PlacementOrder.REGION_ORDER


def requirements_of(instance: Instance) -> Requirements:
    """What a machine of this instance has to fulfil."""
    return Requirements(
        product_name=instance.product_name,
        gpu_count=instance.gpu_count,
        rootfs_size_gb=instance.rootfs_size_gb,
        billing=Billing(instance.billing),
        max_hourly_price_e5=instance.max_hourly_price_e5,
        regions=tuple(instance.regions),
        order=PlacementOrder(instance.placement or PlacementOrder.REGION_ORDER),
    )


@dataclass(frozen=True, slots=True)
class Candidate:
    """One product in one region and billing mode."""

    region: str
    cluster_id: str
    product_id: str
    billing_mode: str
    price_per_hour_e5: int

    @property
    def key(self) -> tuple[str, str, str]:
        return self.region, self.product_id, self.billing_mode


@dataclass(frozen=True, slots=True)
class RegionRefusal:
    """Why one region can't serve in one billing mode."""

    region: str
    billing_mode: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Placement:
    """Candidates and refusals, each in the order in which they would be tried. `fetched_at` is the age of the oldest
    list of products that was used; `is_stale`: one of them could not be replaced in time."""

    evaluated: tuple[Candidate | RegionRefusal, ...]
    fetched_at: datetime | None = None
    is_stale: bool = False

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        return tuple(item for item in self.evaluated if isinstance(item, Candidate))

    @property
    def refusals(self) -> tuple[RegionRefusal, ...]:
        return tuple(item for item in self.evaluated if isinstance(item, RegionRefusal))


@dataclass(frozen=True, slots=True)
class _Place:
    """One region and billing mode, with the products there; `cluster` is None for a region that does not exist."""

    region: str
    cluster: Cluster | None
    mode: str
    listing: Listing | None


async def place(catalog: Catalog, requirements: Requirements) -> Placement:
    """Evaluate every region and billing mode.

    REGION_ORDER: region by region in the caller's order; within one, spot before on demand. PRICE: spot in all regions,
    then on demand in all regions, by price; regions that do not offer the product are left out if another does.
    """
    version = catalog.derived.version
    known: Placement | None = catalog.derived.get(requirements)
    if known is not None:
        return known
    places = await _places(catalog, requirements)
    evaluated = [_evaluate(requirements, place) for place in places]
    if requirements.order is PlacementOrder.PRICE:
        modes = MODES[requirements.billing]
        ranked = sorted(enumerate(evaluated), key=lambda each: _price_rank(each[1], modes, each[0]))
        offered = [each for _, each in ranked if isinstance(each, Candidate) or each.code != "PRODUCT_NOT_FOUND"]
        evaluated = offered or [each for _, each in ranked]
    listings = [each.listing for each in places if each.listing is not None]
    placement = Placement(
        tuple(evaluated),
        fetched_at=min((each.fetched_at for each in listings), default=None),
        is_stale=any(each.is_stale for each in listings),
    )
    if not placement.is_stale:
        catalog.derived.put(requirements, placement, version=version)
    return placement


def _price_rank(each: Candidate | RegionRefusal, modes: Sequence[str], index: int) -> tuple[int, int, int]:
    """Spot before on demand, then by price; what was refused comes last in its mode. Ties: the order of regions."""
    price = each.price_per_hour_e5 if isinstance(each, Candidate) else sys.maxsize
    return modes.index(each.billing_mode), price, index


async def prefetch_products(catalog: Catalog, requirements: Requirements) -> None:
    """Fetch the products that `place` will need, while other lookups run."""
    await _places(catalog, requirements)


async def _places(catalog: Catalog, requirements: Requirements) -> list[_Place]:
    """Every region and billing mode with its products, region by region."""
    clusters = await catalog.regions()
    modes = MODES[requirements.billing]
    wanted = [(region, find_cluster(clusters, region), mode) for region in requirements.regions for mode in modes]
    count = requirements.gpu_count
    everywhere: dict[str, Listing] = {}
    if requirements.order is PlacementOrder.PRICE:
        # Two calls say where the product is offered; without them, each region would be asked.
        await _load(catalog, [(None, mode) for mode in modes], count)
        everywhere = {mode: await catalog.products(None, mode, gpu_count=count) for mode in modes}
    known = {
        (cluster.id, mode): listing
        for _, cluster, mode in wanted
        if cluster is not None
        and mode in everywhere
        and (listing := _listing_there(everywhere[mode], cluster, requirements.product_name)) is not None
    }
    await _load(
        catalog,
        [(cluster.id, mode) for _, cluster, mode in wanted if cluster is not None and (cluster.id, mode) not in known],
        count,
    )
    return [
        _Place(
            region,
            cluster,
            mode,
            None
            if cluster is None
            else known.get((cluster.id, mode)) or await catalog.products(cluster.id, mode, gpu_count=count),
        )
        for region, cluster, mode in wanted
    ]


def _listing_there(everywhere: Listing, cluster: Cluster, product_name: str) -> Listing | None:
    """The products of that name in one region, if the list of all regions says enough about them.

    It does not for a product of several regions: it is in stock in some of them.
    """
    there = [
        product
        for product in everywhere.value
        if product.name == product_name and (not product.regions or cluster.code in product.regions)
    ]
    return replace(everywhere, value=there) if all(len(product.regions) == 1 for product in there) else None


async def _load(catalog: Catalog, wanted: Sequence[tuple[str | None, str]], gpu_count: int) -> None:
    """Fetch what is not cached, all at once; if all is cached, tasks would only add cost."""
    missing = [each for each in wanted if not catalog.are_products_cached(*each, gpu_count=gpu_count)]
    if missing:
        await asyncio.gather(*(catalog.products(*each, gpu_count=gpu_count) for each in missing))


def _evaluate(requirements: Requirements, place: _Place) -> Candidate | RegionRefusal:
    cluster, mode = place.cluster, place.mode
    if cluster is None or place.listing is None:
        return RegionRefusal(place.region, mode, "INVALID_REGION", f"The provider has no region {place.region}.")
    products = [product for product in place.listing.value if product.name == requirements.product_name]
    if not products:
        return RegionRefusal(
            cluster.code, mode, "PRODUCT_NOT_FOUND", f"{requirements.product_name} is not offered in this region."
        )
    fitting = sorted(_fitting(products, requirements, mode))
    if not fitting:
        return RegionRefusal(cluster.code, mode, *_reason(products, requirements))
    price, product_id = fitting[0]
    if requirements.max_hourly_price_e5 is not None and price > requirements.max_hourly_price_e5:
        return RegionRefusal(
            cluster.code, mode, "PRICE_ABOVE_MAX", f"The lowest price there is {price / 100_000:.5f} USD/h."
        )
    return Candidate(cluster.code, cluster.id, product_id, mode, price)


def _fitting(products: Sequence[Product], requirements: Requirements, mode: str) -> Iterator[tuple[int, str]]:
    for product in products:
        per_gpu = product.spot_price_per_gpu_hour_e5 if mode == SPOT else product.price_per_gpu_hour_e5
        if per_gpu is not None and product.is_deployable and _disk_fits(product, requirements):
            yield per_gpu * max(requirements.gpu_count, 1), product.id


def _disk_fits(product: Product, requirements: Requirements) -> bool:
    return (
        (product.min_rootfs_gb or 0)
        <= requirements.rootfs_size_gb
        <= (product.max_rootfs_gb or requirements.rootfs_size_gb)
    )


def _reason(products: Sequence[Product], requirements: Requirements) -> tuple[str, str]:
    if not any(product.is_deployable for product in products):
        with_count = f" with {requirements.gpu_count} GPUs" if requirements.gpu_count > 1 else ""
        return OUT_OF_STOCK, f"Out of stock{with_count} in this region."
    if not any(_disk_fits(product, requirements) for product in products if product.is_deployable):
        return (
            "INVALID_ROOTFS_SIZE",
            f"No product in this region takes a root disk of {requirements.rootfs_size_gb} GB.",
        )
    return "BILLING_NOT_OFFERED", "This billing mode is not offered in this region."
