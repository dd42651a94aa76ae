"""Types of alerts of the market."""

from datetime import datetime, timedelta

import strawberry

from schema import ids
from schema.context import Info
from schema.ids import Node
from schema.pagination import CountedConnection, Edge
from schema.types.money import BillingMode, Money
from server.db import tables


@strawberry.type(description="Announces offers that begin to match, as events `market.alert`: see docs/market.md.")
class MarketAlert(Node):
    product_names: list[str] | None = strawberry.field(description="Any of these products; null: any at all.")
    regions: list[str] | None = strawberry.field(description="Any of these region codes; null: any at all.")
    billing_modes: list[BillingMode] | None = strawberry.field(description="Any of these; null: any at all.")
    gpu_count: int = strawberry.field(description="GPUs of one machine; 0 for CPU products.")
    price_at_most: Money | None = strawberry.field(
        description="Highest price of the whole machine per hour; null: any."
    )
    held_for: timedelta = strawberry.field(description="How long an offer must match before the alert fires.")
    cooldown: timedelta = strawberry.field(description="Shortest time between two times that it fires.")
    expires_at: datetime | None = strawberry.field(description="When it ends; null: never.")
    webhook_url: str | None = strawberry.field(description="URL that receives its events as signed webhooks.")
    last_fired_at: datetime | None = strawberry.field(description="When it last fired; null: never.")
    created_at: datetime = strawberry.field(description="Creation time.")

    @classmethod
    async def load(cls, info: Info, id: str) -> "MarketAlert | None":
        row = await info.context.loaders.alert.load(ids.parse(ids.ALERT, id))
        return None if row is None else cls.of(row)

    @classmethod
    def of(cls, row: tables.MarketAlertLike) -> "MarketAlert":
        return cls(
            id=strawberry.ID(ids.format_id(ids.ALERT, row.id)),
            product_names=row.product_names,
            regions=row.regions,
            billing_modes=None if row.modes is None else [BillingMode(mode) for mode in row.modes],
            gpu_count=row.gpu_count,
            price_at_most=Money.of(row.price_at_most_e5),
            held_for=row.held_for,
            cooldown=row.cooldown,
            expires_at=row.expires_at,
            webhook_url=row.webhook_url,
            last_fired_at=row.fired_at,
            created_at=row.created_at,
        )


@strawberry.type(description="An alert with its cursor.")
class MarketAlertEdge(Edge[MarketAlert]):
    pass


@strawberry.type(description="A page of alerts.")
class MarketAlertConnection(CountedConnection[MarketAlertEdge, MarketAlert]):
    pass
