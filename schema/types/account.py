"""Types of the provider account: networks and prewarmed images."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import strawberry

from schema import ids
from schema.context import Info, visible_to
from schema.enums import described
from schema.ids import Node
from schema.pagination import Edge, ListConnection
from schema.scalars import BigInt
from schema.types.money import MICROS_PER_E5, Money
from server.account import prewarms
from server.account.balance import AccountState
from server.catalog.catalog import Cluster
from server.catalog.catalog import Network as ProviderNetwork
from server.conversion import convert
from server.enums import ProviderObjectKind


class NetworkStatus(StrEnum):
    """The provider's states; an unknown one becomes OTHER."""

    CREATING = "creating"
    READY = "ready"
    OTHER = "other"


described(
    NetworkStatus,
    description="Status of a private network.",
    values={
        "CREATING": "Being created.",
        "READY": "Instances can be created in it.",
        "OTHER": "A status that this server does not know.",
    },
)


class PrewarmStatus(StrEnum):
    """The provider's states; an unknown one becomes OTHER."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    OTHER = "other"


described(
    PrewarmStatus,
    description="Status of a prewarmed image.",
    values={
        "PENDING": "Waiting.",
        "RUNNING": "Being fetched.",
        "SUCCEEDED": "On the nodes of the region.",
        "FAILED": "Could not be fetched.",
        "OTHER": "A status that this server does not know.",
    },
)


@strawberry.type(description="A private network (VPC) of the provider account, in one region.")
class Network(Node):
    novita_id: str = strawberry.field(description="The provider's id; `networkId` accepts this and `id`.")
    name: str = strawberry.field(description="Name of the network.")
    region: str | None = strawberry.field(description="Region code.")
    status: NetworkStatus = strawberry.field(description="Status.")
    error: str | None = strawberry.field(description="The provider's error, if any.")
    segment: str | None = strawberry.field(description="Its addresses, such as 10.1.0.0/16.")
    created_at: datetime | None = strawberry.field(description="Creation time.")

    @classmethod
    def of(cls, network: ProviderNetwork, clusters: Sequence[Cluster]) -> "Network":
        return convert(
            cls,
            network,
            id=strawberry.ID(ids.format_provider_id(ids.NETWORK, network.id)),
            novita_id=network.id,
            region=_region(network.cluster_id, clusters),
            status=next((each for each in NetworkStatus if each.value == network.state), NetworkStatus.OTHER),
        )

    @classmethod
    async def load(cls, info: Info, id: str) -> "Network | None":
        """By our id or the provider's, if the project may see it."""
        services = info.context.services
        network = await services.catalog.network(ids.provider_id(ids.NETWORK, id))
        shown = [] if network is None else await visible_to(info, ProviderObjectKind.NETWORK, [network])
        return cls.of(shown[0], await services.catalog.regions()) if shown else None


@strawberry.type(description="An image that the provider fetches to the nodes of a region in advance.")
class Prewarm(Node):
    novita_id: str = strawberry.field(description="The provider's id.")
    image: str = strawberry.field(description="Container image.")
    region: str | None = strawberry.field(description="Region code.")
    product_ids: list[str] = strawberry.field(description="The provider's ids of the products whose nodes fetch it.")
    status: PrewarmStatus = strawberry.field(description="Status.")
    note: str | None = strawberry.field(description="Your own note.")
    created_at: datetime | None = strawberry.field(description="Creation time.")

    @classmethod
    def of(cls, prewarm: prewarms.Prewarm, clusters: Sequence[Cluster]) -> "Prewarm":
        return convert(
            cls,
            prewarm,
            id=strawberry.ID(ids.format_provider_id(ids.PREWARM, prewarm.id)),
            novita_id=prewarm.id,
            region=_region(prewarm.cluster_id, clusters),
            product_ids=list(prewarm.product_ids),
            status=next((each for each in PrewarmStatus if each.value == prewarm.state), PrewarmStatus.OTHER),
        )

    @classmethod
    async def load(cls, info: Info, id: str) -> "Prewarm | None":
        """By our id or the provider's, if the project may see it."""
        services, novita_id = info.context.services, ids.provider_id(ids.PREWARM, id)
        services.account.live_reads.take(info.context.caller)
        found = [task for task in await prewarms.all_prewarms(services.account) if task.id == novita_id]
        shown = await visible_to(info, ProviderObjectKind.PREWARM, found)
        return cls.of(shown[0], await services.catalog.regions()) if shown else None


@strawberry.type(description="The provider account that all projects share.")
class AccountInfo:
    balance: Money = strawberry.field(description="What is left to spend.")
    price_per_hour: Money = strawberry.field(description="What the provider bills per hour now, for all projects.")
    runway: timedelta | None = strawberry.field(
        description="How long the balance lasts at that price; null if no instance is billed."
    )
    observed_at: datetime = strawberry.field(description="When the balance was read.")

    @classmethod
    def of(cls, state: AccountState) -> "AccountInfo":
        return cls(
            balance=Money(amount_micros=BigInt(state.balance_e5 * MICROS_PER_E5), currency="USD"),
            price_per_hour=Money(amount_micros=BigInt(state.price_per_hour_e5 * MICROS_PER_E5), currency="USD"),
            runway=state.runway,
            observed_at=state.observed_at,
        )


@strawberry.type(description="How many images the account may prewarm.")
class PrewarmQuota:
    used: int | None = strawberry.field(description="Prewarmed images now.")
    limit: int | None = strawberry.field(description="At most this many.")
    gb_per_image: int | None = strawberry.field(description="Largest size of an image in GB.")


@strawberry.type(description="A private network with its cursor.")
class NetworkEdge(Edge[Network]):
    pass


@strawberry.type(description="A page of private networks.")
class NetworkConnection(ListConnection[NetworkEdge, Network]):
    pass


@strawberry.type(description="A prewarmed image with its cursor.")
class PrewarmEdge(Edge[Prewarm]):
    pass


@strawberry.type(description="A page of prewarmed images.")
class PrewarmConnection(ListConnection[PrewarmEdge, Prewarm]):
    pass


def _region(cluster_id: str | None, clusters: Sequence[Cluster]) -> str | None:
    return next((cluster.code for cluster in clusters if cluster.id == cluster_id), None)
