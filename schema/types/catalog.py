"""What there is to buy and to run, as callers see it."""

from datetime import datetime
from enum import StrEnum

import strawberry

from schema.arguments import First
from schema.errors import MutationError
from schema.paging import check_first
from schema.types.billing import BillingMode
from schema.types.instance import KeyValue, Port
from schema.types.money import Money
from schema.words import described
from server.catalog.catalog import Cluster, RegistryAuth
from server.catalog.catalog import Template as CatalogTemplate
from server.catalog.offers import Offer
from server.instances.choice import Choice, template_problems
from server.instances.placement import Candidate, Refusal


@strawberry.type(description="A place where instances can be made.")
class Region:
    code: str = strawberry.field(description="What to give as `region`, such as AS-SGP-02.")
    cluster_id: str = strawberry.field(description="The provider's own id of it.")
    place: str | None = strawberry.field(description="Where that is, if the provider says so.")
    gpu_types: list[str] = strawberry.field(description="Products that it has at all, in stock or not.")
    supports_network_storage: bool = strawberry.field(description="Whether volumes can be attached there.")

    @classmethod
    def of(cls, cluster: Cluster) -> "Region":
        return cls(
            code=cluster.code,
            cluster_id=cluster.id,
            place=cluster.place,
            gpu_types=list(cluster.gpu_types),
            supports_network_storage=cluster.supports_network_storage,
        )


@strawberry.type(description="One kind of machine in one region.")
class Product:
    id: strawberry.ID = strawberry.field(description="The provider's id; the same in every region.")
    name: str = strawberry.field(description="What to give as `productName`, such as RTX 4090 24GB.")
    region: Region = strawberry.field(description="Where it is offered.")
    vram_gb: int | None = strawberry.field(description="Memory of one GPU in GB.")
    cpu_per_gpu: int | None = strawberry.field(description="Processor cores for each GPU.")
    memory_gb_per_gpu: int | None = strawberry.field(description="The host's memory in GB for each GPU.")
    min_rootfs_size_gb: int | None = strawberry.field(description="The smallest root disk in GB.")
    max_rootfs_size_gb: int | None = strawberry.field(description="The largest root disk in GB.")
    price_per_gpu_hour: Money | None = strawberry.field(description="On demand; null where it is not offered so.")
    spot_price_per_gpu_hour: Money | None = strawberry.field(description="As spot; null where it is not offered so.")
    is_available: bool = strawberry.field(description="Whether one is free on demand now.")
    is_spot_available: bool = strawberry.field(description="Whether one is free as spot now.")
    inventory: str | None = strawberry.field(description="The provider's word for its stock: none, low, normal, high.")

    @classmethod
    def of(cls, offer: Offer) -> "Product":
        product = offer.product
        return cls(
            id=strawberry.ID(product.id),
            name=product.name,
            region=Region.of(offer.region),
            vram_gb=product.vram_gb,
            cpu_per_gpu=product.cpu_per_gpu,
            memory_gb_per_gpu=product.memory_gb_per_gpu,
            min_rootfs_size_gb=product.min_rootfs_gb,
            max_rootfs_size_gb=product.max_rootfs_gb,
            price_per_gpu_hour=Money.of(offer.price_per_gpu_hour_e5),
            spot_price_per_gpu_hour=Money.of(offer.spot_price_per_gpu_hour_e5),
            is_available=offer.is_available,
            is_spot_available=offer.is_spot_available,
            inventory=product.inventory,
        )


class TemplateChannel(StrEnum):
    """The provider's words, as far as they are known."""

    PRIVATE = "private"
    OFFICIAL = "official"
    COMMUNITY = "community"
    OTHER = "other"

    @classmethod
    def of(cls, word: str) -> "TemplateChannel":
        return cls(word) if word in _CHANNELS else cls.OTHER


_CHANNELS = frozenset(TemplateChannel)

described(
    TemplateChannel,
    description="Whose template it is.",
    values={
        "PRIVATE": "The account's own.",
        "OFFICIAL": "The provider's.",
        "COMMUNITY": "Somebody else's, made public.",
        "OTHER": "One that this server has no word for.",
    },
)


@strawberry.type(description="A recipe for instances, kept at the provider.")
class Template:
    id: strawberry.ID = strawberry.field(description="What to give as `templateId`.")
    name: str = strawberry.field(description="Its name.")
    channel: TemplateChannel = strawberry.field(description="Whose it is.")
    image: str = strawberry.field(description="The container image.")
    registry_auth_id: strawberry.ID | None = strawberry.field(description="The registry auth for a private image.")
    command: str | None = strawberry.field(description="What runs in it, where it is not the image's own.")
    rootfs_size_gb: int | None = strawberry.field(description="Root disk in GB.")
    ports: list[Port] = strawberry.field(description="Ports to expose.")
    env: list[KeyValue] = strawberry.field(description="Environment variables.")
    created_at: datetime | None = strawberry.field(description="When it was made.")
    problems: list[str] = strawberry.field(
        description="Why no instance can be made from it, each beginning with the field; empty when all is well."
    )

    @classmethod
    def of(cls, template: CatalogTemplate) -> "Template":
        auth = template.image_auth_id
        return cls(
            id=strawberry.ID(template.id),
            name=template.name,
            channel=TemplateChannel.of(template.channel),
            image=template.image,
            registry_auth_id=None if auth is None else strawberry.ID(auth),
            command=template.start_command,
            rootfs_size_gb=template.rootfs_gb,
            ports=[Port(port=port.port, type=port.type) for port in template.ports],
            env=[KeyValue(key=variable.key, value=variable.value) for variable in template.envs],
            created_at=template.created_at,
            problems=list(template_problems(template)),
        )


@strawberry.type(name="RegistryAuth", description="A credential for an image registry, kept at the provider.")
class RegistryAuthType:
    id: strawberry.ID = strawberry.field(description="What to give as `registryAuthId`.")
    name: str = strawberry.field(description="The registry's host, or a label.")
    username: str = strawberry.field(description="Whose it is. The password is never shown.")

    @classmethod
    def of(cls, auth: RegistryAuth) -> "RegistryAuthType":
        return cls(id=strawberry.ID(auth.id), name=auth.name, username=auth.username)


@strawberry.type(description="One region and way to pay, judged.")
class QuoteCandidate:
    rank: int = strawberry.field(description="1 is tried first; those refused have a rank all the same.")
    region: str = strawberry.field(description="The region's code.")
    billing_mode: BillingMode | None = strawberry.field(description="How it would be paid.")
    accepted: bool = strawberry.field(description="Whether it could serve now.")
    product_id: strawberry.ID | None = strawberry.field(description="The product that would be taken.")
    price_per_hour: Money | None = strawberry.field(description="What the whole instance would cost an hour.")
    reason_code: str | None = strawberry.field(description="Why it was refused, as a word.")
    reason_message: str | None = strawberry.field(description="Why it was refused, as a sentence.")

    @classmethod
    def of(cls, rank: int, judged: Candidate | Refusal) -> "QuoteCandidate":
        is_accepted = isinstance(judged, Candidate)
        return cls(
            rank=rank,
            region=judged.region,
            billing_mode=BillingMode.of(judged.billing_mode),
            accepted=is_accepted,
            product_id=strawberry.ID(judged.product_id) if is_accepted else None,
            price_per_hour=Money.of(judged.price_per_hour_e5) if is_accepted else None,
            reason_code=None if is_accepted else judged.code,
            reason_message=None if is_accepted else judged.message,
        )


@strawberry.type(description="What a create with the same input would choose now. Nothing is reserved.")
class Quote:
    candidates: list[QuoteCandidate] = strawberry.field(
        default_factory=list["QuoteCandidate"], description="In the order in which they would be tried."
    )
    best: QuoteCandidate | None = strawberry.field(
        default=None, description="The first that could serve; null when none could."
    )
    price_per_hour: Money | None = strawberry.field(
        default=None, description="What that one costs an hour, all GPUs together."
    )
    rootfs_size_gb: int | None = strawberry.field(default=None, description="The root disk that it would get, in GB.")
    errors: list[MutationError] = strawberry.field(
        default_factory=list["MutationError"], description="Why the input itself is refused; empty when it is not."
    )

    @classmethod
    def of(cls, choice: Choice) -> "Quote":
        candidates = [QuoteCandidate.of(rank, judged) for rank, judged in enumerate(choice.judged, start=1)]
        best = next((candidate for candidate in candidates if candidate.accepted), None)
        return cls(
            candidates=candidates,
            best=best,
            price_per_hour=best.price_per_hour if best else None,
            rootfs_size_gb=choice.wish.rootfs_size_gb,
        )


@strawberry.type(description="How one cache is doing.")
class CacheStats:
    name: str = strawberry.field(description="What to give to `clearCache`.")
    size: int = strawberry.field(description="How many values it holds.")
    hits: int = strawberry.field(description="Look-ups of this process that found a value.")
    misses: int = strawberry.field(description="Look-ups of this process that did not.")
    ratio: float = strawberry.field(description="Hits in all look-ups, 0 to 1.")
    evictions: int = strawberry.field(description="Values that this process threw out for want of room.")
    all_keys: strawberry.Private[list[str]]

    @strawberry.field(description="Some of its keys, in alphabetical order.")
    def keys(self, first: First = 20) -> list[str]:
        return self.all_keys[: check_first(first)]
