"""Types of the fleet: instances merged with the provider's machines."""

from datetime import datetime, timedelta

import strawberry

from schema.context import Info
from schema.enums import described
from schema.inputs import After, First
from schema.pagination import Edge, ListConnection
from schema.types.instance import Instance
from schema.types.instance_parts import Endpoint
from schema.types.money import Money
from server.billing import is_billed
from server.clock import now
from server.enums import InstanceStatus
from server.instances.provider.drift import Correction
from server.instances.provider.reconcile import Report
from server.instances.queries import fleet
from server.queue.queries import count_workers
from server.server_info import NO_WORKERS, REDIS_LOST

described(
    fleet.FleetSource,
    name="FleetSource",
    description="Where an item of the fleet is known.",
    values={
        "LOCAL": "Only in Pilotlight: not created yet, or missing from the provider's list.",
        "NOVITA": "Only at the provider: a machine without an instance.",
        "MERGED": "In both; also a machine that an instance has besides the one that serves it.",
    },
)


@strawberry.type(description="An instance, a provider machine, or both.")
class FleetItem:
    source: fleet.FleetSource = strawberry.field(description="Where an item of the fleet is known.")
    status: InstanceStatus | None = strawberry.field(
        description="Status; the provider's state wins. Null if the provider reports an unknown state."
    )
    name: str = strawberry.field(description="Name of the instance, or of the machine if there is none.")
    instance: Instance | None = strawberry.field(description="The instance; null if there is none.")
    is_serving: bool = strawberry.field(
        description="False for a machine that does not serve its instance, because it is about to replace another one "
        "or is being removed, and for a machine without an instance. It may be billed as well."
    )
    novita_id: str | None = strawberry.field(description="The provider's id.")
    novita_status: str | None = strawberry.field(description="State as reported by the provider.")
    region: str | None = strawberry.field(description="Region code.")
    product_name: str | None = strawberry.field(description="Product name.")
    price_per_hour: Money | None = strawberry.field(
        description="Price per hour that is billed now; null if it is not billed, or the price is not known."
    )
    endpoints: list[Endpoint] = strawberry.field(description="Known public endpoints.")
    spot_reclaim_at: datetime | None = strawberry.field(description="When the provider will reclaim the spot machine.")

    @classmethod
    def of(cls, item: fleet.FleetItem) -> "FleetItem":
        row, seen = item.instance if item.is_serving else None, item.snapshot
        instance = None if item.instance is None else Instance.of(item.instance)
        novita_status = seen.status if seen else (row.novita_status if row else None)
        price_e5 = row.price_per_hour_e5 if row else (seen.price_e5 if seen else None)
        shown = [
            Endpoint(port=endpoint.port, type=endpoint.type, address=endpoint.address)
            for endpoint in (seen.endpoints if seen else ())
            if endpoint.address
        ]
        return cls(
            source=item.source,
            status=item.status,
            name=item.instance.name if item.instance else (seen.name if seen else ""),
            instance=instance,
            is_serving=item.is_serving,
            novita_id=seen.id if seen else (row.novita_id if row else None),
            novita_status=novita_status,
            region=(row.region if row else None) or (seen.region if seen else None),
            product_name=row.product_name if row else (seen.product_name if seen else None),
            price_per_hour=Money.of(price_e5) if is_billed(item.status, novita_status) else None,
            endpoints=shown or (instance.endpoints if instance and item.is_serving else []),
            spot_reclaim_at=seen.spot_reclaim_at if seen else (row.spot_reclaim_at if row else None),
        )


@strawberry.type(description="An item of the fleet with its cursor.")
class FleetItemEdge(Edge[FleetItem]):
    pass


@strawberry.type(description="A page of the fleet.")
class FleetItemConnection(ListConnection[FleetItemEdge, FleetItem]):
    pass


@strawberry.type(description="Number of items by source.")
class FleetCounts:
    local: int = strawberry.field(description="Only in Pilotlight.")
    novita: int = strawberry.field(
        description="Only at the provider; those that were made outside of Pilotlight only with `includeNovitaOnly`."
    )
    merged: int = strawberry.field(description="In both.")
    total: int = strawberry.field(description="Sum of all.")


@strawberry.type(description="Why the provider's list is missing.")
class FleetProblem:
    code: str = strawberry.field(description="Stable error code, such as NETWORK_ERROR.")
    message: str = strawberry.field(description="Readable message.")


@strawberry.type(description="Something that the server lacks now.")
class FleetWarning:
    code: str = strawberry.field(description="PROVIDER_UNREACHABLE, NO_WORKERS or REDIS_UNAVAILABLE.")
    message: str = strawberry.field(description="What that means, for people.")


@strawberry.type(description="Instances merged with the provider's machines.")
class Fleet:
    all_items: strawberry.Private[list[fleet.FleetItem]]
    counts: FleetCounts = strawberry.field(description="Number of items by source.")
    problem: FleetProblem | None = strawberry.field(
        description="Why the provider's list is missing; the items then come from the database only."
    )
    listed_at: datetime | None = strawberry.field(description="When the provider's list was read.")
    cache_age: timedelta | None = strawberry.field(description="Age of the provider's list.")
    local_took: timedelta = strawberry.field(description="Time to read the database.")
    novita_took: timedelta = strawberry.field(description="Time to read the provider's list; almost zero if cached.")

    @strawberry.field(description="What the server lacks now, as in `/readyz`; empty if all is well.")
    async def warnings(self, info: Info) -> list[FleetWarning]:
        found: list[FleetWarning] = []
        if self.problem is not None:
            message = f"The provider's list could not be read: {self.problem.message}"
            found.append(FleetWarning(code="PROVIDER_UNREACHABLE", message=message))
        async with info.context.read() as session:
            if not await count_workers(session):
                found.append(FleetWarning(code="NO_WORKERS", message=NO_WORKERS))
        if not await info.context.services.caches.reach_redis():
            found.append(FleetWarning(code="REDIS_UNAVAILABLE", message=REDIS_LOST))
        return found

    @strawberry.field(description="Items: instances first, newest first.")
    def items(self, first: First = 100, after: After = None) -> FleetItemConnection:
        return FleetItemConnection.page_of(
            self.all_items, FleetItemEdge, FleetItem.of, key=_key, first=first, after=after
        )

    @classmethod
    def of(cls, merged: fleet.Fleet) -> "Fleet":
        problem = merged.problem
        counts = merged.counts
        return cls(
            all_items=list(merged.items),
            counts=FleetCounts(
                local=counts[fleet.FleetSource.LOCAL],
                novita=counts[fleet.FleetSource.NOVITA],
                merged=counts[fleet.FleetSource.MERGED],
                total=counts.total(),
            ),
            problem=None if problem is None else FleetProblem(code=problem.code, message=problem.message),
            listed_at=merged.listed_at,
            cache_age=None if merged.listed_at is None else now() - merged.listed_at,
            local_took=merged.local_took,
            novita_took=merged.novita_took,
        )


@strawberry.type(description="Result of a comparison with the provider.")
class SyncReport:
    compared: int = strawberry.field(description="Instances with a machine.")
    started: int = strawberry.field(description="EXITED instances found running; they are monitored until READY.")
    stopped: int = strawberry.field(description="Running instances found stopped.")
    reclaimed: int = strawberry.field(description="Spot instances that the provider reclaimed.")
    gone: int = strawberry.field(description="Instances missing at the provider; now FAILED with GONE_AT_PROVIDER.")
    noted: int = strawberry.field(description="Instances with other differences that were recorded.")

    @classmethod
    def of(cls, report: Report) -> "SyncReport":
        changes = report.changes
        return cls(
            compared=report.compared,
            started=changes[Correction.STARTED],
            stopped=changes[Correction.STOPPED],
            reclaimed=changes[Correction.RECLAIMED],
            gone=changes[Correction.GONE],
            noted=changes[Correction.NOTED],
        )


def _key(item: fleet.FleetItem) -> str:
    if item.instance is not None and item.is_serving:
        return item.instance.id.hex
    return f"novita {item.snapshot.id if item.snapshot else ''}"


@strawberry.type(description="Number of instances in one status.")
class StatusCount:
    status: InstanceStatus = strawberry.field(description="The status.")
    count: int = strawberry.field(description="Number of instances.")


@strawberry.type(description="Statistics of the project's instances, or of those that match a filter.")
class FleetStats:
    stats: strawberry.Private[fleet.FleetStats]
    cursor: str = strawberry.field(description="Position of these numbers in the event log.")
    total: int = strawberry.field(description="Number of instances that are not deleted.")
    by_status: list[StatusCount] = strawberry.field(description="Counts by status, without zeros.")
    billed: int = strawberry.field(
        description="Number of instances whose machine the provider bills now: from the pull of the image on, while it "
        "runs, stops, restarts or migrates, also if the instance has FAILED."
    )
    billed_at_unknown_rate: int = strawberry.field(
        description="How many of these have no known price; `pricePerHour` lacks them."
    )
    price_per_hour: Money | None = strawberry.field(
        description="Total price per hour of the billed instances. Without disks of stopped instances, whose price "
        "the provider does not tell."
    )

    @classmethod
    def of(cls, stats: fleet.FleetStats, cursor: str) -> "FleetStats":
        return cls(
            stats=stats,
            cursor=cursor,
            total=sum(stats.by_status.values()),
            by_status=[StatusCount(status=status, count=count) for status, count in sorted(stats.by_status.items())],
            billed=stats.billed,
            billed_at_unknown_rate=stats.unpriced,
            price_per_hour=Money.of(stats.price_per_hour_e5),
        )
