"""Types of the catalog: regions, products, templates, quotes, caches."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from enum import StrEnum

import strawberry

from schema import ids
from schema.context import Info, visible_to
from schema.enums import described
from schema.errors import MutationError
from schema.ids import Node
from schema.inputs import First
from schema.pagination import Edge, ListConnection, check_first
from schema.types.instance_parts import EnvVariable, Port, Tool, tools_of
from schema.types.money import MICROS_PER_E5, BillingMode, Money, money
from server.catalog.catalog import Cluster, RegistryAuth
from server.catalog.catalog import Template as CatalogTemplate
from server.catalog.offers import Offer
from server.conversion import convert
from server.enums import InstanceKind, ProviderObjectKind
from server.errors import ProviderNotFound
from server.instances import quote as domain
from server.instances.binding_quote import BindingQuote
from server.instances.placement import Candidate, RegionRefusal

MAX_TEMPLATE_ID = 255  # characters


@strawberry.type(description="A region where instances can be created.")
class Region:
    code: str = strawberry.field(description="Region code, such as AS-SGP-02; use it as `region`.")
    cluster_id: str = strawberry.field(description="The provider's id of the region.")
    place: str | None = strawberry.field(description="Location, if the provider gives one.")
    gpu_types: list[str] = strawberry.field(description="Products of the region, in stock or not.")
    supports_network_storage: bool = strawberry.field(description="Whether network volumes can be attached.")
    supports_networks: bool = strawberry.field(description="Whether it can have private networks.")

    @classmethod
    def of(cls, cluster: Cluster) -> "Region":
        return convert(cls, cluster, cluster_id=cluster.id, gpu_types=list(cluster.gpu_types))


FETCHED_AT = "When price and stock were read from the provider."
STALE = "Whether the provider could not be read in time, so that price and stock are older than PRODUCT_CACHE_TTL."


@strawberry.type(description="A machine type in one region.")
class Product(Node):
    novita_id: str = strawberry.field(description="The provider's id; the same in all regions.")
    name: str = strawberry.field(description="Product name, such as RTX 4090 24GB; use it as `productName`.")
    kind: InstanceKind = strawberry.field(
        description="Whether it has GPUs. Of a CPU product, what is said per GPU holds for the whole machine."
    )
    region: Region = strawberry.field(description="Region where it is offered.")
    vram_gb: int | None = strawberry.field(description="Memory per GPU in GB.")
    cpu_per_gpu: int | None = strawberry.field(description="CPU cores per GPU.")
    memory_gb_per_gpu: int | None = strawberry.field(description="Host memory per GPU in GB.")
    min_rootfs_size_gb: int | None = strawberry.field(description="Minimum root disk in GB.")
    max_rootfs_size_gb: int | None = strawberry.field(description="Maximum root disk in GB.")
    price_per_gpu_hour: Money | None = strawberry.field(
        description="On-demand price per GPU and hour; null if not offered."
    )
    spot_price_per_gpu_hour: Money | None = strawberry.field(
        description="Spot price per GPU and hour; null if not offered."
    )
    is_available: bool = strawberry.field(description="Whether it is in stock on demand.")
    is_spot_available: bool = strawberry.field(description="Whether it is in stock as spot.")
    inventory: str | None = strawberry.field(description="The provider's stock level: none, low, normal or high.")
    fetched_at: datetime = strawberry.field(description=FETCHED_AT)
    stale: bool = strawberry.field(description=STALE)

    @classmethod
    def of(cls, offer: Offer, kind: InstanceKind) -> "Product":
        product = offer.product
        return convert(
            cls,
            product,
            id=product_node_id(kind, offer.region.id, product.id),
            novita_id=product.id,
            kind=kind,
            region=Region.of(offer.region),
            min_rootfs_size_gb=product.min_rootfs_gb,
            max_rootfs_size_gb=product.max_rootfs_gb,
            price_per_gpu_hour=Money.of(offer.price_per_gpu_hour_e5),
            spot_price_per_gpu_hour=Money.of(offer.spot_price_per_gpu_hour_e5),
            is_available=offer.is_available,
            is_spot_available=offer.is_spot_available,
            fetched_at=offer.fetched_at,
            stale=offer.is_stale,
        )


def product_node_id(kind: InstanceKind, cluster_id: str, product_id: str) -> strawberry.ID:
    """A product is one in its region: the provider uses the same id in several regions."""
    return strawberry.ID(ids.format_provider_id(ids.PRODUCT, kind.value.lower(), cluster_id, product_id))


class TemplateChannel(StrEnum):
    """The provider's values; an unknown one becomes OTHER."""

    PRIVATE = "private"
    OFFICIAL = "official"
    COMMUNITY = "community"
    OTHER = "other"

    @classmethod
    def of(cls, value: str) -> "TemplateChannel":
        return cls(value) if value in _CHANNELS else cls.OTHER


_CHANNELS = frozenset(TemplateChannel)

described(
    TemplateChannel,
    description="Origin of a template.",
    values={
        "PRIVATE": "Owned by the account.",
        "OFFICIAL": "Published by the provider.",
        "COMMUNITY": "Published by another user.",
        "OTHER": "A channel that this server does not know.",
    },
)


@strawberry.type(description="A template for instances, stored at the provider.")
class Template(Node):
    novita_id: str = strawberry.field(description="The provider's id; `templateId` accepts this and `id`.")
    name: str = strawberry.field(description="Name of the template.")
    channel: TemplateChannel = strawberry.field(description="Origin of the template.")
    image: str = strawberry.field(description="Container image.")
    registry_auth_id: strawberry.ID | None = strawberry.field(
        description="Id of the registry credential for a private image."
    )
    command: str | None = strawberry.field(description="Start command; null if it is the image's.")
    entrypoint: str | None = strawberry.field(description="Entrypoint; null if it is the image's.")
    tools: list[Tool] = strawberry.field(description="Tools that run beside the container.")
    min_cuda_version: str | None = strawberry.field(description="Lowest CUDA version of the node's driver, if any.")
    rootfs_size_gb: int | None = strawberry.field(description="Root disk in GB.")
    ports: list[Port] = strawberry.field(description="Ports to expose.")
    env: list[EnvVariable] = strawberry.field(description="Environment variables.")
    created_at: datetime | None = strawberry.field(description="Creation time.")
    problems: list[str] = strawberry.field(
        description="Why no instance can be created from it, each starting with the field name; empty if usable."
    )

    @classmethod
    async def load(cls, info: Info, id: str) -> "Template | None":
        """By our id or the provider's; the catalog reads each only once."""
        template_id = ids.provider_id(ids.TEMPLATE, id)
        if not 1 <= len(template_id) <= MAX_TEMPLATE_ID:
            return None
        try:
            template = await info.context.services.catalog.template(template_id)
        except ProviderNotFound:
            return None
        shown = await visible_to(info, ProviderObjectKind.TEMPLATE, [template])
        return cls.of(shown[0]) if shown else None

    @classmethod
    def of(cls, template: CatalogTemplate) -> "Template":
        auth = template.image_auth_id
        return convert(
            cls,
            template,
            id=strawberry.ID(ids.format_provider_id(ids.TEMPLATE, template.id)),
            novita_id=template.id,
            channel=TemplateChannel.of(template.channel),
            registry_auth_id=None if auth is None else _auth_id(auth),
            command=template.start_command,
            rootfs_size_gb=template.rootfs_gb,
            ports=[Port(port=port.port, type=port.type) for port in template.ports],
            tools=tools_of([asdict(tool) for tool in template.tools]),
            env=EnvVariable.list_of({variable.key: variable.value for variable in template.envs}),
            problems=list(domain.template_problems(template)),
        )


@strawberry.type(description="A template with its cursor.")
class TemplateEdge(Edge[Template]):
    pass


@strawberry.type(description="A page of templates.")
class TemplateConnection(ListConnection[TemplateEdge, Template]):
    pass


@strawberry.type(name="RegistryAuth", description="A credential for an image registry, stored at the provider.")
class RegistryAuthType(Node):
    novita_id: str = strawberry.field(description="The provider's id; `registryAuthId` accepts this and `id`.")
    name: str = strawberry.field(description="Host name of the registry, or a label.")
    username: str = strawberry.field(description="User name. The password is never shown.")

    @classmethod
    def of(cls, auth: RegistryAuth) -> "RegistryAuthType":
        return convert(cls, auth, id=_auth_id(auth.id), novita_id=auth.id)


def _auth_id(auth_id: str) -> strawberry.ID:
    return strawberry.ID(ids.format_provider_id(ids.REGISTRY_AUTH, auth_id))


@strawberry.type(description="One region and billing mode, evaluated.")
class QuoteCandidate:
    rank: int = strawberry.field(description="Order of attempts: 1 is tried first. Refused candidates have a rank too.")
    region: str = strawberry.field(description="Region code.")
    billing_mode: BillingMode | None = strawberry.field(description="Billing mode.")
    accepted: bool = strawberry.field(description="Whether it could be created now.")
    product_id: strawberry.ID | None = strawberry.field(description="Id of the product that would be used.")
    price_per_hour: Money | None = strawberry.field(description="Price per hour of the whole instance.")
    reason_code: str | None = strawberry.field(description="Reason code if refused.")
    reason_message: str | None = strawberry.field(description="Reason as readable text if refused.")

    @classmethod
    def of(cls, rank: int, evaluated: Candidate | RegionRefusal, kind: InstanceKind) -> "QuoteCandidate":
        is_accepted = isinstance(evaluated, Candidate)
        return cls(
            rank=rank,
            region=evaluated.region,
            billing_mode=BillingMode.of(evaluated.billing_mode),
            accepted=is_accepted,
            product_id=product_node_id(kind, evaluated.cluster_id, evaluated.product_id) if is_accepted else None,
            price_per_hour=Money.of(evaluated.price_per_hour_e5) if is_accepted else None,
            reason_code=None if is_accepted else evaluated.code,
            reason_message=None if is_accepted else evaluated.message,
        )


@strawberry.type(
    description="What createInstance with the same input would choose now. Nothing is reserved; with `quoteId`, "
    "createInstance takes exactly this machine at this price or is refused."
)
class Quote:
    quote_id: strawberry.ID | None = strawberry.field(
        default=None, description="Signed id for `createInstance(quoteId)`; null without a candidate."
    )
    expires_at: datetime | None = strawberry.field(
        default=None, description="Until when `quoteId` holds: five minutes."
    )
    max_cost: Money | None = strawberry.field(
        default=None, description="What it costs until its hard end; null if it has none."
    )
    candidates: list[QuoteCandidate] = strawberry.field(
        default_factory=list["QuoteCandidate"], description="Candidates, in the order they would be tried."
    )
    best: QuoteCandidate | None = strawberry.field(
        default=None, description="First accepted candidate; null if there is none."
    )
    price_per_hour: Money | None = strawberry.field(
        default=None, description="Price per hour of the best candidate, all GPUs together."
    )
    rootfs_size_gb: int | None = strawberry.field(default=None, description="Root disk it would get, in GB.")
    fetched_at: datetime | None = strawberry.field(default=None, description=f"{FETCHED_AT} The oldest counts.")
    stale: bool = strawberry.field(default=False, description=STALE)
    errors: list[MutationError] = strawberry.field(
        default_factory=list["MutationError"],
        description="Why createInstance would refuse this: problems with the input, or no candidate.",
    )

    def bound(self, id: str, binding: BindingQuote, seconds: float | None) -> "Quote":
        """With what createInstance needs to hold it; `seconds` is how long the run can last."""
        self.quote_id, self.expires_at = strawberry.ID(id), binding.expires_at
        if seconds is not None:
            self.max_cost = money(round(binding.price_e5 * MICROS_PER_E5 * seconds / 3600))
        return self

    @classmethod
    def of(cls, quote: domain.Quote, errors: Sequence[MutationError] = ()) -> "Quote":
        placement = quote.placement
        kind = InstanceKind.GPU if quote.requirements.gpu_count else InstanceKind.CPU
        candidates = [QuoteCandidate.of(rank, each, kind) for rank, each in enumerate(placement.evaluated, start=1)]
        best = next((candidate for candidate in candidates if candidate.accepted), None)
        return cls(
            candidates=candidates,
            best=best,
            price_per_hour=best.price_per_hour if best else None,
            rootfs_size_gb=quote.requirements.rootfs_size_gb,
            fetched_at=placement.fetched_at,
            stale=placement.is_stale,
            errors=list(errors),
        )


@strawberry.type(description="Statistics of one cache.")
class CacheStats:
    name: str = strawberry.field(description="Cache name; use it in `clearCache`.")
    size: int = strawberry.field(description="Number of entries.")
    hits: int = strawberry.field(description="Lookups of this process that found an entry.")
    misses: int = strawberry.field(description="Lookups of this process that found none.")
    ratio: float = strawberry.field(description="Share of hits in all lookups, 0 to 1.")
    evictions: int = strawberry.field(description="Entries that this process evicted because the cache was full.")
    all_keys: strawberry.Private[list[str]]

    @strawberry.field(description="Some keys, in alphabetical order.")
    def keys(self, first: First = 20) -> list[str]:
        return self.all_keys[: check_first(first)]
