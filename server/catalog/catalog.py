"""What there is to buy and to run, as the provider last said: regions, products, templates."""

from collections.abc import Sequence
from datetime import timedelta

from server.catalog.cache import Cache
from server.novita.client import NovitaClient
from server.novita.wire import Cluster, Product, Template

REGIONS = "regions"


class Catalog:
    """Read through caches, so that a warm create makes no provider call at all."""

    def __init__(self, novita: NovitaClient, *, product_ttl: timedelta, template_ttl: timedelta) -> None:
        self._novita = novita
        self._regions: Cache[Sequence[Cluster]] = Cache(ttl=product_ttl, max_size=1)
        self._products: Cache[Sequence[Product]] = Cache(ttl=product_ttl, max_size=500)
        self._templates: Cache[Template] = Cache(ttl=template_ttl, max_size=1000)

    async def regions(self) -> Sequence[Cluster]:
        return await self._regions.get(REGIONS, self._novita.clusters)

    async def products(self, cluster_id: str, billing_mode: str) -> Sequence[Product]:
        """Every product of one region that can be paid in that way ("spot" or "onDemand")."""
        return await self._products.get(
            f"{cluster_id} {billing_mode}",
            lambda: self._novita.products(cluster_id=cluster_id, billing=billing_mode),
        )

    async def template(self, template_id: str) -> Template:
        """Raises ProviderNotFound."""
        return await self._templates.get(template_id, lambda: self._novita.template(template_id))

    async def forget_products(self) -> None:
        """After a refusal for want of stock: what we hold is out of date."""
        await self._products.clear()
