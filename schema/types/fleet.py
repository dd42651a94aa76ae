"""Our instances beside the provider's machines, as callers see them."""

from base64 import urlsafe_b64encode
from datetime import datetime, timedelta

import strawberry
from graphql import GraphQLError

from schema.arguments import After, First
from schema.paging import check_first
from schema.types.instance import Endpoint, Instance
from schema.types.money import Money
from schema.types.page import PageInfo
from schema.words import described
from server.clock import now
from server.instances import fleet
from server.instances.outside import Change
from server.instances.reconcile import Report
from server.words import InstanceStatus

described(
    fleet.Source,
    name="FleetSource",
    description="Who knows of it.",
    values={
        "LOCAL": "We alone: it was not made yet, or is not in the provider's list.",
        "NOVITA": "The provider alone: it is no instance of anybody's.",
        "MERGED": "Both.",
    },
)


@strawberry.type(description="A machine or an instance.")
class FleetItem:
    source: fleet.Source = strawberry.field(description="Who knows of it.")
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


@strawberry.type(description="One item of a page of the fleet.")
class FleetItemEdge:
    cursor: str = strawberry.field(description="The place right after this one.")
    node: FleetItem = strawberry.field(description="The item.")


@strawberry.type(description="A page of the fleet.")
class FleetItemConnection:
    edges: list[FleetItemEdge] = strawberry.field(description="The items with their cursors.")
    nodes: list[FleetItem] = strawberry.field(description="The items alone.")
    page_info: PageInfo = strawberry.field(description="Where this page stands.")
    total_count: int = strawberry.field(description="How many there are in all.")


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
    cache_age: timedelta | None = strawberry.field(description="How old the provider's list is.")
    local_took: timedelta = strawberry.field(description="How long our rows took.")
    novita_took: timedelta = strawberry.field(
        description="How long the provider's list took; next to nothing from the cache."
    )

    @strawberry.field(description="The items: ours first, newest first.")
    def items(self, first: First = 100, after: After = None) -> FleetItemConnection:
        size = check_first(first)
        start = 0 if after is None else self._place_behind(after)
        shown = self.all_items[start : start + size]
        edges = [FleetItemEdge(cursor=_cursor(item), node=FleetItem.of(item)) for item in shown]
        return FleetItemConnection(
            edges=edges,
            nodes=[edge.node for edge in edges],
            page_info=PageInfo.of(edges, has_more=len(self.all_items) > start + size, after=after),
            total_count=len(self.all_items),
        )

    def _place_behind(self, after: str) -> int:
        """The list is made anew for each request, so a place in it is known by what stands there."""
        for place, item in enumerate(self.all_items, start=1):
            if _cursor(item) == after:
                return place
        message = "What this cursor points at is not in the fleet any more; start again without one."
        raise GraphQLError(message, extensions={"code": "INVALID_CURSOR"})

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
            cache_age=None if found.listed_at is None else now() - found.listed_at,
            local_took=found.local_took,
            novita_took=found.novita_took,
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


def _cursor(item: fleet.FleetItem) -> str:
    of = item.instance.id.hex if item.instance is not None else f"novita {item.glimpse.id if item.glimpse else ''}"
    return urlsafe_b64encode(of.encode()).decode()
