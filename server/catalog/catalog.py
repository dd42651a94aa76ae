"""What there is to buy and to run, as the provider last said: regions, products, templates, registry auths."""

from collections.abc import Sequence
from datetime import timedelta

from server.catalog.cache import Cache
from server.catalog.caches import Caches
from server.novita.client import NovitaClient
from server.novita.wire import Cluster, Product, RegistryAuth, Template

__all__ = ["Catalog", "Cluster", "Product", "RegistryAuth", "Template"]

REGIONS = "regions"
REGISTRY_AUTHS = "registryAuths"
# Short: somebody who has just stored a credential wants to use it.
REGISTRY_TTL = timedelta(seconds=30)
TEMPLATE_PAGE = 100
MOST_TEMPLATE_PAGES = 50


class Catalog:
    """Read through caches, so that a warm create makes no provider call at all."""

    def __init__(
        self, novita: NovitaClient, *, product_ttl: timedelta, template_ttl: timedelta, caches: Caches | None = None
    ) -> None:
        self._novita = novita
        caches = caches or Caches()
        self._regions: Cache[Sequence[Cluster]] = caches.new(REGIONS, Sequence[Cluster], ttl=product_ttl, max_size=1)
        self._products: Cache[Sequence[Product]] = caches.new(
            "products", Sequence[Product], ttl=product_ttl, max_size=500
        )
        self._templates: Cache[Template] = caches.new("templates", Template, ttl=template_ttl, max_size=1000)
        self._template_lists: Cache[Sequence[Template]] = caches.new(
            "templateLists", Sequence[Template], ttl=template_ttl, max_size=50
        )
        self._registry_auths: Cache[Sequence[RegistryAuth]] = caches.new(
            REGISTRY_AUTHS, Sequence[RegistryAuth], ttl=REGISTRY_TTL, max_size=1
        )

    async def regions(self) -> Sequence[Cluster]:
        return await self._regions.get(REGIONS, self._novita.clusters)

    async def products(self, cluster_id: str, billing_mode: str) -> Sequence[Product]:
        """Every product of one region that can be paid in that way ("spot" or "onDemand")."""
        return await self._products.get(
            f"{cluster_id} {billing_mode}",
            lambda: self._novita.products(cluster_id=cluster_id, billing=billing_mode),
        )

    def is_at_hand(self, *, template_id: str | None = None) -> bool:
        """Whether the regions, and that template, are known without asking anybody."""
        return self._regions.is_at_hand(REGIONS) and (template_id is None or self._templates.is_at_hand(template_id))

    def has_products(self, cluster_id: str, billing_mode: str) -> bool:
        """Whether they are known without asking anybody."""
        return self._products.is_at_hand(f"{cluster_id} {billing_mode}")

    async def template(self, template_id: str) -> Template:
        """Raises ProviderNotFound."""
        return await self._templates.get(template_id, lambda: self._novita.template(template_id))

    async def templates(self, *, name: str | None = None, channels: Sequence[str] = ()) -> Sequence[Template]:
        """Every template, all pages of them; `name` matches a part."""
        key = " ".join([*sorted(channels), name or ""])
        return await self._template_lists.get(key, lambda: self._all_templates(name, tuple(channels)))

    async def registry_auths(self, *, fresh: bool = False) -> Sequence[RegistryAuth]:
        """Stored credentials by name, without the credential."""
        if fresh:
            await self._registry_auths.drop(REGISTRY_AUTHS)
        return await self._registry_auths.get(REGISTRY_AUTHS, self._novita.registry_auths)

    async def has_registry_auth(self, auth_id: str) -> bool:
        """Whether the provider has that credential; a missing one is looked for once more, past the cache."""
        for fresh in (False, True):
            if any(auth.id == auth_id for auth in await self.registry_auths(fresh=fresh)):
                return True
        return False

    async def forget_products(self) -> None:
        """After a refusal for want of stock: what we hold is out of date."""
        await self._products.clear()

    async def _all_templates(self, name: str | None, channels: Sequence[str]) -> Sequence[Template]:
        found: dict[str, Template] = {}
        for page in range(1, MOST_TEMPLATE_PAGES + 1):
            answer = await self._novita.templates(page=page, page_size=TEMPLATE_PAGE, name=name, channels=channels)
            before = len(found)
            found.update((template.id, template) for template in answer.items)
            is_last = len(answer.items) < TEMPLATE_PAGE and (answer.total is None or len(found) >= answer.total)
            if is_last or len(found) == before:
                break
        return tuple(found.values())
