"""Queries of the provider's catalog: products, regions, templates, registryAuths, quote, cacheStats."""

from dataclasses import replace
from typing import Annotated

import strawberry
from graphql import GraphQLError

from schema.context import Info, visible_to
from schema.errors import errors_of
from schema.inputs import After, First, Input, Which
from schema.mutations.create import NewInstanceInput
from schema.permissions import RequiresServerAdmin, query
from schema.types.catalog import (
    CacheStats,
    Product,
    Quote,
    Region,
    RegistryAuthType,
    Template,
    TemplateChannel,
    TemplateConnection,
    TemplateEdge,
)
from server.catalog.offers import offers
from server.catalog.owners import owned_by_others
from server.clock import now
from server.conversion import convert
from server.enums import InstanceKind, ProviderObjectKind
from server.errors import Refused
from server.instances.availability import refuse
from server.instances.binding_quote import BindingQuote
from server.instances.commands.create import objects_of, refuse_foreign
from server.instances.limits.of_token import policy_for
from server.instances.limits.policy import PATH
from server.instances.limits.spec import refuse_near_deadline, seconds_to_end
from server.instances.quote import Defaults, limited_draft, quote_draft
from server.volumes.attach import find_mounted

MAX_TEXT_LENGTH = 255
MAX_KEYS = 100


@strawberry.input(description="Filter for products. Without a filter: all.")
class ProductFilter:
    name: str | None = strawberry.field(default=None, description="Part of the product name, such as 4090.")
    regions: list[str] | None = strawberry.field(default=None, description="Any of these regions.")
    kind: InstanceKind = strawberry.field(default=InstanceKind.GPU, description="Products with GPUs, or CPU products.")
    available_only: bool = strawberry.field(default=False, description="Only products in stock, in any billing mode.")


@strawberry.input(description="The input of createInstance; name and source are optional.")
class QuoteInput(NewInstanceInput):
    name: str | None = strawberry.field(default=None, description="Ignored.")  # type: ignore[assignment]


@strawberry.type
class CatalogQueries:
    @query("Products by region, with prices and stock.")
    async def products(self, info: Info, filter: Annotated[ProductFilter | None, Which] = None) -> list[Product]:
        filter = filter or ProductFilter()
        matching = await offers(
            info.context.services.catalog,
            name=_checked_text(filter.name),
            regions=[_checked_text(region) or "" for region in (filter.regions or [])[:MAX_KEYS]],
            available_only=filter.available_only,
            is_cpu=filter.kind is InstanceKind.CPU,
        )
        return [Product.of(offer, filter.kind) for offer in matching]

    @query("The provider's regions.")
    async def regions(self, info: Info) -> list[Region]:
        return [Region.of(cluster) for cluster in await info.context.services.catalog.regions()]

    @query("Templates: private, official and community.")
    async def templates(
        self,
        info: Info,
        name: Annotated[str | None, strawberry.argument(description="Part of the name, such as comfy.")] = None,
        channels: Annotated[
            list[TemplateChannel] | None, strawberry.argument(description="Any of these channels. Default: all.")
        ] = None,
        first: First = 100,
        after: After = None,
    ) -> TemplateConnection:
        known = [channel.value for channel in channels or [] if channel is not TemplateChannel.OTHER]
        listed = await info.context.services.catalog.templates(name=_checked_text(name), channels=known)
        templates = await visible_to(info, ProviderObjectKind.TEMPLATE, listed)
        return TemplateConnection.page_of(
            templates, TemplateEdge, Template.of, key=lambda each: each.id, first=first, after=after
        )

    @query("One template; null if not found.")
    async def template(
        self,
        info: Info,
        id: Annotated[strawberry.ID, strawberry.argument(description="Id of the template, ours or the provider's.")],
    ) -> Template | None:
        return await Template.load(info, id)

    @query("Stored credentials for image registries, without passwords.")
    async def registry_auths(self, info: Info) -> list[RegistryAuthType]:
        listed = await info.context.services.catalog.registry_auths()
        auths = await visible_to(info, ProviderObjectKind.REGISTRY_AUTH, listed)
        return [RegistryAuthType.of(auth) for auth in auths]

    @query("What createInstance would choose now, with its price. Nothing is written or reserved.")
    async def quote(self, info: Info, input: Annotated[QuoteInput, Input]) -> Quote:
        services = info.context.services
        input.name = input.name or "quote"
        draft = input.to_draft()
        if draft.template_id is None and draft.image is None:
            draft = replace(draft, image="any")
        defaults = Defaults(services.settings.default_regions, services.settings.estimated_ready_time)
        caller, moment = info.context.caller, now()
        try:
            draft.check()
            refuse_near_deadline(draft.lifetime, PATH, at=moment)
            project_id = caller.project_id
            policy = policy_for(await info.context.loaders.lifetime_policy.load(project_id), caller)
            limits = policy.applied(
                draft.lifetime,
                at=moment,
                server_default=services.settings.default_max_duration,
                has_gpu=draft.kind is InstanceKind.GPU,
            )
            foreign = await owned_by_others(services.database, objects_of(draft), project_id=project_id)
            refuse_foreign(draft, foreign)
            volumes = await find_mounted(services.database, draft.volumes, project_id=project_id)
            within = await limited_draft(services.catalog, draft, defaults.regions, by=caller)
            quote = await quote_draft(services.catalog, within, defaults=defaults, volumes=volumes)
        except Refused as refused:
            return Quote(errors=list(await errors_of(refused, info)))
        if quote.best is not None:
            binding = BindingQuote.of(draft, quote.best, project_id=project_id, at=moment)
            return Quote.of(quote).bound(
                binding.sign(services.seals.quote_key), binding, seconds_to_end(limits, at=moment)
            )
        try:
            await refuse(services.catalog, quote)
        except Refused as refused:
            return Quote.of(quote, await errors_of(refused, info))

    @query("Cache statistics of this process. Needs the role ADMIN of the project `default`.", RequiresServerAdmin())
    async def cache_stats(self, info: Info) -> list[CacheStats]:
        return [
            convert(CacheStats, stats, all_keys=list(stats.keys))
            for stats in await info.context.services.caches.stats(first=MAX_KEYS)
        ]


def _checked_text(value: str | None) -> str | None:
    if value is not None and len(value) > MAX_TEXT_LENGTH:
        raise GraphQLError(f"The text is longer than {MAX_TEXT_LENGTH} characters.", extensions={"code": "BAD_REQUEST"})
    return value
