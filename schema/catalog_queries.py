"""What callers can read of the provider's catalogue, and what a create would cost."""

from dataclasses import replace
from typing import Annotated

import strawberry
from graphql import GraphQLError

from schema.arguments import Input, Which
from schema.context import Info
from schema.errors import errors_of
from schema.guards import Requires, RunsServer
from schema.mutations.instances import CreateInstanceInput
from schema.types.catalog import CacheStats, Product, Quote, Region, RegistryAuthType, Template, TemplateChannel
from server.catalog.offers import offers
from server.errors import ProviderNotFound, Refused
from server.instances.choice import Defaults, choose
from server.words import Role

LONGEST_WORD = 255
MOST_KEYS = 100


@strawberry.input(description="Which products; without it, all.")
class ProductFilter:
    name: str | None = strawberry.field(default=None, description="Only those with this in their name, such as 4090.")
    regions: list[str] | None = strawberry.field(default=None, description="Only in these regions.")
    available_only: bool = strawberry.field(default=False, description="Only where one is free now, in any way to pay.")


@strawberry.input(description="The same as for createInstance; a name and what to run need not be given.")
class QuoteInput(CreateInstanceInput):
    name: str | None = strawberry.field(default=None, description="Not looked at.")  # type: ignore[assignment]


@strawberry.type
class CatalogQueries:
    @strawberry.field(description="Products by region, with prices and stock.", extensions=[Requires(Role.READER)])
    async def products(self, info: Info, filter: Annotated[ProductFilter | None, Which] = None) -> list[Product]:
        wanted = filter or ProductFilter()
        found = await offers(
            info.context.services.catalog,
            name=_word(wanted.name),
            regions=[_word(region) or "" for region in (wanted.regions or [])[:MOST_KEYS]],
            available_only=wanted.available_only,
        )
        return [Product.of(offer) for offer in found]

    @strawberry.field(description="The provider's regions.", extensions=[Requires(Role.READER)])
    async def regions(self, info: Info) -> list[Region]:
        return [Region.of(cluster) for cluster in await info.context.services.catalog.regions()]

    @strawberry.field(description="Templates, private ones and others.", extensions=[Requires(Role.READER)])
    async def templates(
        self,
        info: Info,
        name: Annotated[str | None, strawberry.argument(description="A part of the name, such as comfy.")] = None,
        channels: Annotated[
            list[TemplateChannel] | None, strawberry.argument(description="Only of these; without it, all.")
        ] = None,
    ) -> list[Template]:
        known = [channel.value for channel in channels or [] if channel is not TemplateChannel.OTHER]
        found = await info.context.services.catalog.templates(name=_word(name), channels=known)
        return [Template.of(template) for template in found]

    @strawberry.field(
        description="One template; null when there is none of that id.", extensions=[Requires(Role.READER)]
    )
    async def template(
        self, info: Info, id: Annotated[strawberry.ID, strawberry.argument(description="The provider's id of it.")]
    ) -> Template | None:
        if not 1 <= len(id) <= LONGEST_WORD:
            return None
        try:
            return Template.of(await info.context.services.catalog.template(str(id)))
        except ProviderNotFound:
            return None

    @strawberry.field(
        description="Stored credentials for image registries, without their passwords.",
        extensions=[Requires(Role.READER)],
    )
    async def registry_auths(self, info: Info) -> list[RegistryAuthType]:
        return [RegistryAuthType.of(auth) for auth in await info.context.services.catalog.registry_auths()]

    @strawberry.field(
        description="What createInstance would choose now and what it would cost. Nothing is written or reserved.",
        extensions=[Requires(Role.READER)],
    )
    async def quote(self, info: Info, input: Annotated[QuoteInput, Input]) -> Quote:
        services = info.context.services
        input.name = input.name or "quote"
        draft = input.to_draft()
        if draft.template_id is None and draft.image is None:
            draft = replace(draft, image="any")
        defaults = Defaults(services.settings.default_regions, services.settings.estimated_ready_time)
        try:
            draft.check()
            return Quote.of(await choose(services.catalog, draft, defaults=defaults))
        except Refused as refused:
            return Quote(errors=list(await errors_of(refused, info)))

    @strawberry.field(
        description="How this process's caches are doing. Needs the role ADMIN of the project `default`.",
        extensions=[RunsServer()],
    )
    async def cache_stats(self, info: Info) -> list[CacheStats]:
        return [
            CacheStats(
                name=stats.name,
                size=stats.size,
                hits=stats.hits,
                misses=stats.misses,
                ratio=stats.ratio,
                evictions=stats.evictions,
                all_keys=list(stats.keys),
            )
            for stats in await info.context.services.caches.stats(first=MOST_KEYS)
        ]


def _word(value: str | None) -> str | None:
    if value is not None and len(value) > LONGEST_WORD:
        raise GraphQLError(f"That is longer than {LONGEST_WORD} characters.", extensions={"code": "BAD_REQUEST"})
    return value
