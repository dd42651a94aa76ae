"""Types of quotas."""

from collections.abc import Callable
from datetime import datetime
from operator import attrgetter
from typing import Any
from uuid import UUID

import strawberry

from schema import ids
from schema.context import Info
from schema.ids import Node
from schema.loaded import Lookup
from schema.pagination import CountedConnection, Edge
from schema.types.money import MICROS_PER_E5, Money, money
from schema.types.spend.scope import BudgetScope
from server.conversion import convert
from server.db import tables
from server.spend.quotas import QuotaUsage


def _used(show: Callable[[QuotaUsage], Any]) -> Lookup:
    return Lookup(attrgetter("quota_usage"), attrgetter("row_id"), show, is_shared=True)


USED_INSTANCES = _used(attrgetter("instances"))
USED_GPUS = _used(attrgetter("gpus"))
USED_PRICE = _used(lambda usage: money(usage.price_e5 * MICROS_PER_E5))


@strawberry.type(
    description="How many machines a scope may have at once. Machines that are paid for count, and accepted creates "
    "and starts: see docs/spend.md."
)
class Quota(Node):
    row_id: strawberry.Private[UUID]
    scope: BudgetScope = strawberry.field(description="What it counts.")
    max_instances: int | None = strawberry.field(description="Most instances with a machine; null: no limit.")
    max_gpus: int | None = strawberry.field(description="Most GPUs; null: no limit.")
    max_price_per_hour: Money | None = strawberry.field(
        description="Highest price per hour of all machines together; null: no limit."
    )
    created_at: datetime = strawberry.field(description="Creation time.")

    @strawberry.field(description="Instances that count now.", metadata=USED_INSTANCES.metadata)
    async def used_instances(self, info: Info) -> int:
        return await USED_INSTANCES.load(self, info)

    @strawberry.field(description="GPUs that count now.", metadata=USED_GPUS.metadata)
    async def used_gpus(self, info: Info) -> int:
        return await USED_GPUS.load(self, info)

    @strawberry.field(description="Price per hour that counts now.", metadata=USED_PRICE.metadata)
    async def used_price_per_hour(self, info: Info) -> Money:
        return await USED_PRICE.load(self, info)

    @classmethod
    async def load(cls, info: Info, id: str) -> "Quota | None":
        row = await info.context.loaders.quota.load(ids.parse(ids.QUOTA, id))
        return None if row is None else cls.of(row)

    @classmethod
    def of(cls, row: tables.QuotaLike) -> "Quota":
        return convert(
            cls,
            row,
            row_id=row.id,
            id=strawberry.ID(ids.format_id(ids.QUOTA, row.id)),
            scope=BudgetScope.of(row),
            max_price_per_hour=None if row.max_price_e5 is None else money(row.max_price_e5 * MICROS_PER_E5),
        )


@strawberry.type(description="A quota with its cursor.")
class QuotaEdge(Edge[Quota]):
    pass


@strawberry.type(description="A page of quotas.")
class QuotaConnection(CountedConnection[QuotaEdge, Quota]):
    pass
