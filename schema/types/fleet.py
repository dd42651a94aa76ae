"""Our instances beside the provider's machines, as callers see them."""

from datetime import datetime

import strawberry
from graphql import GraphQLError

from schema.types.instance import Endpoint, Instance
from schema.types.money import Money
from server.clock import now
from server.instances import fleet
from server.instances.outside import Change
from server.instances.reconcile import Report
from server.words import InstanceStatus

MOST_ITEMS = 1000

FleetSource = strawberry.enum(
    fleet.Source,
    name="FleetSource",
    description="Who knows of it: LOCAL we alone, NOVITA the provider alone, MERGED both.",
)


@strawberry.type(description="A machine or an instance.")
class FleetItem:
    source: FleetSource = strawberry.field(description="Who knows of it.")  # type: ignore[valid-type]
    status: InstanceStatus | None = strawberry.field(
        description="Where it stands, the provider's word winning; null where it uses a word that we don't know."
    )
    name: str = strawberry.field(description="Our name, or the provider's where it is no instance of ours.")
    instance: Instance | None = strawberry.field(description="Our instance; null where there is none.")
    novita_id: str | None = strawberry.field(description="The provider's id.")
    novita_status: str | None = strawberry.field(description="The provider's own word for its state.")
    region: str | None = strawberry.field(description="Where it is.")
    product_name: str | None = strawberry.field(description="What it is.")
    price_per_hour: Money | None = strawberry.field(description="What it costs an hour.")
    endpoints: list[Endpoint] = strawberry.field(description="Where it can be reached, as far as is known.")
    spot_reclaim_at: datetime | None = strawberry.field(description="When the provider will take it back.")

    @classmethod
    def of(cls, item: fleet.FleetItem) -> "FleetItem":
        row, seen = item.instance, item.glimpse
        instance = None if row is None else Instance.of(row)
        shown = [
            Endpoint(port=endpoint.port, type=endpoint.type, address=endpoint.address)
            for endpoint in (seen.endpoints if seen else ())
            if endpoint.address
        ]
        return cls(
            source=item.source,
            status=item.status,
            name=row.name if row else (seen.name if seen else ""),
            instance=instance,
            novita_id=seen.id if seen else (row.novita_id if row else None),
            novita_status=seen.status if seen else (row.novita_status if row else None),
            region=(row.region if row else None) or (seen.region if seen else None),
            product_name=row.product_name if row else (seen.product_name if seen else None),
            price_per_hour=Money.of(row.price_per_hour_e5 if row else (seen.price_e5 if seen else None)),
            endpoints=shown or (instance.endpoints if instance else []),
            spot_reclaim_at=seen.spot_reclaim_at if seen else (row.spot_reclaim_at if row else None),
        )


@strawberry.type(description="How many of each source.")
class FleetCounts:
    local: int = strawberry.field(description="Known to us alone: not made yet, or not in the provider's list.")
    novita: int = strawberry.field(description="Known to the provider alone; counted only if asked for.")
    merged: int = strawberry.field(description="Known to both.")
    total: int = strawberry.field(description="All of them.")


@strawberry.type(description="Why the provider's part is missing.")
class FleetProblem:
    code: str = strawberry.field(description="A stable word for programs, such as NETWORK_ERROR.")
    message: str = strawberry.field(description="A sentence for people.")


@strawberry.type(description="The whole fleet.")
class Fleet:
    all_items: strawberry.Private[list[fleet.FleetItem]]
    counts: FleetCounts = strawberry.field(description="How many of each source.")
    problem: FleetProblem | None = strawberry.field(
        description="Why the provider could not be asked; then these are our rows alone."
    )
    listed_at: datetime | None = strawberry.field(description="When the provider's list was asked for.")
    cache_age_seconds: float | None = strawberry.field(description="How old the provider's list is.")
    local_ms: float = strawberry.field(description="How long our rows took.")
    novita_ms: float = strawberry.field(
        description="How long the provider's list took; next to nothing from the cache."
    )

    @strawberry.field(description="The items, ours first, newest first. `first` is 1 to 1000.")
    def items(self, first: int = 100, skip: int = 0) -> list[FleetItem]:
        if not 1 <= first <= MOST_ITEMS or skip < 0:
            message = f"`first` must be 1 to {MOST_ITEMS}, `skip` not below 0."
            raise GraphQLError(message, extensions={"code": "INVALID_PAGE_SIZE"})
        return [FleetItem.of(item) for item in self.all_items[skip : skip + first]]

    @classmethod
    def of(cls, found: fleet.Fleet) -> "Fleet":
        problem = found.problem
        counts = found.counts
        return cls(
            all_items=list(found.items),
            counts=FleetCounts(
                local=counts[fleet.Source.LOCAL],
                novita=counts[fleet.Source.NOVITA],
                merged=counts[fleet.Source.MERGED],
                total=counts.total(),
            ),
            problem=None if problem is None else FleetProblem(code=problem.code, message=problem.message),
            listed_at=found.listed_at,
            cache_age_seconds=None if found.listed_at is None else (now() - found.listed_at).total_seconds(),
            local_ms=found.local_took.total_seconds() * 1000,
            novita_ms=found.novita_took.total_seconds() * 1000,
        )


@strawberry.type(description="What a comparison with the provider came to.")
class SyncReport:
    compared: int = strawberry.field(description="Instances that have a machine.")
    started: int = strawberry.field(description="Found running though they had exited; followed to READY now.")
    stopped: int = strawberry.field(description="Found exited though they had run.")
    reclaimed: int = strawberry.field(description="Spot instances that were taken back.")
    gone: int = strawberry.field(description="The provider no longer has them; FAILED with GONE_AT_PROVIDER now.")
    noted: int = strawberry.field(description="Others of which something new was learned.")

    @classmethod
    def of(cls, report: Report) -> "SyncReport":
        changes = report.changes
        return cls(
            compared=report.compared,
            started=changes[Change.STARTED],
            stopped=changes[Change.STOPPED],
            reclaimed=changes[Change.RECLAIMED],
            gone=changes[Change.GONE],
            noted=changes[Change.NOTED],
        )
