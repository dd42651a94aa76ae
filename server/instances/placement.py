"""Which product in which region, in which order, and why not the others."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from server.catalog.catalog import Catalog
from server.novita.wire import Cluster, Product, find_cluster
from server.words import Billing

SPOT = "spot"
ON_DEMAND = "onDemand"

MODES: dict[Billing, tuple[str, ...]] = {
    Billing.SPOT: (SPOT,),
    Billing.ON_DEMAND: (ON_DEMAND,),
    Billing.SPOT_THEN_ON_DEMAND: (SPOT, ON_DEMAND),
}


@dataclass(frozen=True, slots=True)
class Wish:
    """What decides a placement."""

    product_name: str
    gpu_count: int
    rootfs_size_gb: int
    billing: Billing
    max_hourly_price_e5: int | None
    regions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One product in one region, paid in one way."""

    region: str
    cluster_id: str
    product_id: str
    billing_mode: str
    price_per_hour_e5: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why one region can't serve in one billing mode."""

    region: str
    billing_mode: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Placement:
    """Candidates in the order in which they are to be tried, and what was refused."""

    candidates: tuple[Candidate, ...]
    refusals: tuple[Refusal, ...]


async def place(catalog: Catalog, wish: Wish) -> Placement:
    """Region by region in the caller's order; within one, spot before on demand; within that, the lowest price."""
    judged = await judge(catalog, wish)
    return Placement(
        candidates=tuple(item for item in judged if isinstance(item, Candidate)),
        refusals=tuple(item for item in judged if isinstance(item, Refusal)),
    )


async def judge(catalog: Catalog, wish: Wish) -> tuple[Candidate | Refusal, ...]:
    """Every region and way to pay, in the order in which they are to be tried."""
    clusters = await catalog.regions()
    pairs = [(region, mode) for region in wish.regions for mode in MODES[wish.billing]]
    steps = [_judge(catalog, clusters, wish, region, mode) for region, mode in pairs]
    if not missing(catalog, clusters, wish.regions, wish.billing):
        return tuple([await step for step in steps])  # nobody is waited for, so side by side would only cost
    return tuple(await asyncio.gather(*steps))


async def warm(catalog: Catalog, regions: Sequence[str], billing: Billing) -> None:
    """Fetch what judging will need, while something else is being looked up."""
    wanted = missing(catalog, await catalog.regions(), regions, billing)
    if wanted:
        await asyncio.gather(*(catalog.products(cluster_id, mode) for cluster_id, mode in wanted))


def missing(
    catalog: Catalog, clusters: Sequence[Cluster], regions: Sequence[str], billing: Billing
) -> list[tuple[str, str]]:
    """What judging would have to wait for: clusters and ways to pay whose products are not known."""
    ids = [cluster.id for region in regions if (cluster := find_cluster(clusters, region)) is not None]
    return [(id, mode) for id in ids for mode in MODES[billing] if not catalog.has_products(id, mode)]


async def _judge(
    catalog: Catalog, clusters: Sequence[Cluster], wish: Wish, region: str, mode: str
) -> Candidate | Refusal:
    cluster = find_cluster(clusters, region)
    if cluster is None:
        return Refusal(region, mode, "INVALID_REGION", f"The provider has no region {region}.")
    named = [product for product in await catalog.products(cluster.id, mode) if product.name == wish.product_name]
    if not named:
        return Refusal(cluster.code, mode, "PRODUCT_NOT_FOUND", f"{wish.product_name} is not offered there.")
    fitting = sorted(_fitting(named, wish, mode))
    if not fitting:
        return Refusal(cluster.code, mode, *_why_none_fits(named, wish))
    price, product_id = fitting[0]
    if wish.max_hourly_price_e5 is not None and price > wish.max_hourly_price_e5:
        return Refusal(cluster.code, mode, "PRICE_ABOVE_MAX", f"The lowest price there is {price / 100_000:.5f} USD/h.")
    return Candidate(cluster.code, cluster.id, product_id, mode, price)


def _fitting(products: Sequence[Product], wish: Wish, mode: str) -> Iterator[tuple[int, str]]:
    for product in products:
        per_gpu = product.spot_price_per_gpu_hour_e5 if mode == SPOT else product.price_per_gpu_hour_e5
        if per_gpu is not None and product.is_deployable and _disk_fits(product, wish):
            yield per_gpu * wish.gpu_count, product.id


def _disk_fits(product: Product, wish: Wish) -> bool:
    return (product.min_rootfs_gb or 0) <= wish.rootfs_size_gb <= (product.max_rootfs_gb or wish.rootfs_size_gb)


def _why_none_fits(products: Sequence[Product], wish: Wish) -> tuple[str, str]:
    if not any(product.is_deployable for product in products):
        return "OUT_OF_STOCK", "None is free there now."
    if not any(_disk_fits(product, wish) for product in products if product.is_deployable):
        return "INVALID_ROOTFS_SIZE", f"None there takes a root disk of {wish.rootfs_size_gb} GB."
    return "BILLING_NOT_OFFERED", "It can't be paid in that way there."
