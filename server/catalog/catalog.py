"""The provider's regions, products, templates and registry credentials, read through caches."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

import structlog

from server.cache.cache import Cache
from server.cache.dated import Dated, DatedCache
from server.cache.registry import Caches
from server.catalog.derived import DerivedValues
from server.errors import NovitaError
from server.novita.client import NovitaClient
from server.novita.models import Cluster, Network, Product, ProviderPage, RegistryAuth, Template

__all__ = ["Catalog", "Cluster", "Listing", "Network", "Product", "RegistryAuth", "Template"]

log = structlog.get_logger(__name__)

REGIONS = "regions"
BILLING_MODES = ("spot", "onDemand")
REGISTRY_AUTHS = "registryAuths"
NETWORKS = "networks"
# Short: a credential or network that was just made must be usable soon.
REGISTRY_TTL = timedelta(seconds=30)
PAGE = 100
PAGES_MAX = 50

Item = TypeVar("Item", Network, Template)

# When it was read, and whether it is stale.
Listing = Dated[Sequence[Product]]


@dataclass(frozen=True, slots=True)
class Products:
    """Products of one region and billing mode. What is known about the `forgotten` ones, by id, is outdated.
    `seen_at`: when the tape's poll of them began; None if they came from the provider directly."""

    items: tuple[Product, ...]
    forgotten: tuple[str, ...] = ()
    seen_at: datetime | None = None

    def forget(self, product_id: str) -> "Products":
        is_listed = any(product.id == product_id for product in self.items)
        return replace(self, forgotten=(*self.forgotten, product_id)) if is_listed else self

    def completed(self, found: Iterable[Product]) -> "Products":
        """With what was found about the forgotten ones; one that is missing from it is out of stock."""
        by_id = {product.id: product for product in found}
        return replace(
            self,
            forgotten=(),
            items=tuple(
                by_id.get(product.id) or replace(product, is_deployable=False)
                if product.id in self.forgotten
                else product
                for product in self.items
            ),
        )


class Tape(Protocol):
    """What the market's poller has read lately, or None; see `server.market`."""

    async def regions(self) -> Sequence[Cluster] | None: ...

    async def products(
        self, clusters: Sequence[Cluster], *, mode: str, gpu_count: int
    ) -> tuple[Sequence[Product], datetime] | None: ...


def _key(cluster_id: str | None, billing_mode: str, gpu_count: int) -> str:
    if gpu_count == 0:
        return f"{cluster_id or '*'} cpu"
    return f"{cluster_id or '*'} {billing_mode} {gpu_count}"


class Catalog:
    """Reads through caches, so that a create with warm caches makes no provider call before its own.

    While the provider can't be reached, regions, products and templates are returned for `stale_for` after their TTL,
    marked as stale.
    """

    def __init__(
        self,
        novita: NovitaClient,
        *,
        product_ttl: timedelta,
        template_ttl: timedelta,
        stale_for: timedelta = timedelta(0),
        caches: Caches | None = None,
        tape: Tape | None = None,
    ) -> None:
        self._novita = novita
        self._tape = tape
        caches = caches or Caches()
        self._regions: DatedCache[Sequence[Cluster]] = caches.dated(
            REGIONS, tuple[Cluster, ...], ttl=product_ttl, stale_for=stale_for, max_size=1
        )
        self._products: DatedCache[Products] = caches.dated(
            "products", Products, ttl=product_ttl, stale_for=stale_for, max_size=500
        )
        self.derived = DerivedValues(self._regions, self._products, ttl=product_ttl)
        # Templates have environment variables, and those may be secrets.
        self._templates: DatedCache[Template] = caches.dated(
            "templates", Template, ttl=template_ttl, stale_for=stale_for, max_size=1000, is_secret=True
        )
        self._template_lists: Cache[Sequence[Template]] = caches.new(
            "templateLists", tuple[Template, ...], ttl=template_ttl, max_size=50, is_secret=True
        )
        self._registry_auths: Cache[Sequence[RegistryAuth]] = caches.new(
            REGISTRY_AUTHS, tuple[RegistryAuth, ...], ttl=REGISTRY_TTL, max_size=1
        )
        self._networks: Cache[Sequence[Network]] = caches.new(
            NETWORKS, tuple[Network, ...], ttl=REGISTRY_TTL, max_size=1
        )

    async def regions(self) -> Sequence[Cluster]:
        return (await self._regions.get(REGIONS, self._load_regions)).value

    async def _load_regions(self) -> Sequence[Cluster]:
        listed = None if self._tape is None else await self._tape.regions()
        return listed or await self._novita.clusters()

    async def products(self, cluster_id: str | None, billing_mode: str, *, gpu_count: int = 1) -> Listing:
        """Every product of one region that has this billing mode ("spot" or "onDemand").

        Stock is that for `gpu_count` GPUs in one machine. Without a region: of all regions, where a product counts as
        in stock if any of its regions has it. `gpu_count` 0: CPU products, which have one billing mode.
        """

        async def load(name: str | None = None) -> Products:
            listed = await self._on_tape(cluster_id, billing_mode, gpu_count)
            if listed is not None:
                return listed
            if gpu_count == 0:
                return Products(tuple(await self._cpu_products(cluster_id)))
            found = await self._novita.products(
                cluster_id=cluster_id, billing=billing_mode, gpu_count=gpu_count, product_name=name
            )
            return Products(tuple(found))

        key = _key(cluster_id, billing_mode, gpu_count)
        entry = await self._products.get(key, load)
        if entry.value.forgotten:
            entry = await self._remembered(key, entry, load)
        return Dated(entry.value.items, entry.value.seen_at or entry.fetched_at, entry.is_stale)

    async def _on_tape(self, cluster_id: str | None, billing_mode: str, gpu_count: int) -> Products | None:
        """The products as the market's poller has seen them lately; None if it has not."""
        if self._tape is None:
            return None
        clusters = [cluster for cluster in await self.regions() if cluster_id in (None, cluster.id)]
        mode = BILLING_MODES[1] if gpu_count == 0 else billing_mode
        listed = await self._tape.products(clusters, mode=mode, gpu_count=gpu_count) if clusters else None
        return None if listed is None else Products(tuple(listed[0]), seen_at=listed[1])

    async def forget_products(self) -> None:
        """The market has changed: read the tape again."""
        await self._products.clear()

    def is_cached(self, *, template_id: str | None = None) -> bool:
        """Whether the regions, and the template if given, are cached."""
        return self._regions.is_fresh(REGIONS) and (template_id is None or self._templates.is_fresh(template_id))

    def are_products_cached(self, cluster_id: str | None, billing_mode: str, *, gpu_count: int = 1) -> bool:
        return self._products.is_fresh(_key(cluster_id, billing_mode, gpu_count))

    async def template(self, template_id: str) -> Template:
        """Raises ProviderNotFound."""
        return (await self._templates.get(template_id, lambda: self._novita.template(template_id))).value

    async def templates(
        self, *, name: str | None = None, channels: Sequence[str] = (), fresh: bool = False
    ) -> Sequence[Template]:
        """All templates; `name` matches a part."""
        key = " ".join([*sorted(channels), name or ""])
        if fresh:
            await self._template_lists.drop(key)
        return await self._template_lists.get(key, lambda: self._all_templates(name, tuple(channels)))

    async def forget_template(self, template_id: str) -> None:
        """For a template that was created, changed or deleted."""
        await self._templates.drop(template_id)
        await self._template_lists.clear()

    async def registry_auths(self, *, fresh: bool = False) -> Sequence[RegistryAuth]:
        """Stored registry credentials, without their passwords."""
        if fresh:
            await self._registry_auths.drop(REGISTRY_AUTHS)
        return await self._registry_auths.get(REGISTRY_AUTHS, self._novita.registry_auths)

    async def has_registry_auth(self, auth_id: str) -> bool:
        """Whether the provider has that credential; on a miss the cache is bypassed once."""
        for fresh in (False, True):
            if any(auth.id == auth_id for auth in await self.registry_auths(fresh=fresh)):
                return True
        return False

    async def networks(self, *, fresh: bool = False) -> Sequence[Network]:
        """All private networks of the account."""
        if fresh:
            await self._networks.drop(NETWORKS)
        return await self._networks.get(NETWORKS, self._all_networks)

    async def network(self, network_id: str) -> Network | None:
        """One network; on a miss the cache is bypassed once."""
        for fresh in (False, True):
            for network in await self.networks(fresh=fresh):
                if network.id == network_id:
                    return network
        return None

    async def forget_product(self, cluster_id: str, billing_mode: str, product_id: str, *, gpu_count: int) -> None:
        """For a create that was refused as out of stock: what is cached about this product there is outdated.

        The product alone is read again when its list is used next; the rest of the list stays.
        """
        for place in (cluster_id, None):
            await self._products.change(_key(place, billing_mode, gpu_count), lambda known: known.forget(product_id))

    async def _remembered(
        self, key: str, entry: Dated[Products], load: Callable[[str], Awaitable[Products]]
    ) -> Dated[Products]:
        """The list with its forgotten products read again; out of stock while the provider can't be reached."""
        known = entry.value
        names = {product.name for product in known.items if product.id in known.forgotten}

        async def load_forgotten() -> Products:
            return known.completed([product for name in sorted(names) for product in (await load(name)).items])

        try:
            return await self._products.complete(key, entry, load_forgotten)
        except NovitaError as error:
            if not error.retryable:
                raise
            return replace(entry, value=known.completed(()), is_stale=True)

    async def warm(self) -> None:
        """Read what requests usually need: the regions, and the products of each for one GPU."""
        try:
            places = [cluster.id for cluster in await self.regions()]
            await asyncio.gather(*(self.products(place, mode) for place in places for mode in BILLING_MODES))
            await asyncio.gather(*(self.products(None, mode) for mode in BILLING_MODES))
        except NovitaError as error:
            log.info("catalog.not_warmed", code=error.code, error=error.message)

    async def _cpu_products(self, cluster_id: str | None) -> Sequence[Product]:
        """The provider does not say in which regions a CPU product is offered, so each region is asked."""
        clusters = [cluster for cluster in await self.regions() if cluster_id in (None, cluster.id)]
        listed = await asyncio.gather(*(self._novita.cpu_products(cluster_id=cluster.id) for cluster in clusters))
        found: dict[str, Product] = {}
        for cluster, products in zip(clusters, listed, strict=True):
            for product in products:
                known = found.get(product.id)
                here = product.as_product((*(known.regions if known else ()), cluster.code))
                is_deployable = here.is_deployable or (known is not None and known.is_deployable)
                found[product.id] = replace(here, is_deployable=is_deployable)
        return tuple(found.values())

    async def _all_templates(self, name: str | None, channels: Sequence[str]) -> Sequence[Template]:
        return await _all_pages(
            lambda page: self._novita.templates(page=page, page_size=PAGE, name=name, channels=channels)
        )

    async def _all_networks(self) -> Sequence[Network]:
        return await _all_pages(lambda page: self._novita.networks(page=page, page_size=PAGE))


async def _all_pages(read: Callable[[int], Awaitable[ProviderPage[Item]]]) -> tuple[Item, ...]:
    """The items of all pages, each once."""
    found: dict[str, Item] = {}
    for number in range(1, PAGES_MAX + 1):
        page = await read(number)
        before = len(found)
        found.update((item.id, item) for item in page.items)
        is_last = len(page.items) < PAGE and (page.total is None or len(found) >= page.total)
        if is_last or len(found) == before:
            break
    return tuple(found.values())
