"""Types of budgets."""

from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from operator import attrgetter
from uuid import UUID

import strawberry

from schema import ids
from schema.context import Info
from schema.enums import described
from schema.ids import Node
from schema.loaded import Lookup
from schema.pagination import CountedConnection, Edge
from schema.types.money import Money, money
from schema.types.spend.scope import BudgetScope
from server.conversion import convert
from server.db import tables
from server.enums import BudgetAction, BudgetPeriod
from server.spend.budgets import Exemption
from server.spend.usage import Usage

described(
    BudgetPeriod,
    description="After which time a budget begins anew, at midnight in its time zone.",
    values={
        "DAY": "Every day.",
        "WEEK": "Every Monday.",
        "MONTH": "On the first of every month.",
        "TOTAL": "Never.",
        "OTHER": "A period that this server does not know; refused as input.",
    },
)
described(
    BudgetAction,
    description="What a budget does. All of them announce thresholds.",
    values={
        "NOTIFY": "Nothing else.",
        "BLOCK": "Refuses creates, starts and extensions that may cost more than is left.",
        "STOP": "BLOCK, and stops the instances of its scope before it is used up.",
        "DELETE": "BLOCK, and deletes the instances of its scope before it is used up.",
        "OTHER": "An action that this server does not know; refused as input.",
    },
)


class BudgetState(StrEnum):
    """Whether anything is left."""

    OK = "OK"
    EXHAUSTED = "EXHAUSTED"
    OTHER = "OTHER"


described(
    BudgetState,
    description="Whether anything is left of a budget.",
    values={
        "OK": "Less than the limit was spent.",
        "EXHAUSTED": "The limit was spent.",
        "OTHER": "A state that this server does not know.",
    },
)


@strawberry.type(description="A condition on the labels of an instance.")
class LabelRule:
    key: str = strawberry.field(description="Label name.")
    values: list[str] | None = strawberry.field(description="One of these values; null: any.")
    negated: bool = strawberry.field(description="Whether it holds for all other instances.")

    @classmethod
    def of(cls, stored: Exemption) -> "LabelRule":
        values = None if stored.values is None else list(stored.values)
        return cls(key=stored.key, values=values, negated=stored.is_not)


def _amount(show: Callable[[Usage], int]) -> Lookup:
    return Lookup(attrgetter("budget_usage"), attrgetter("row_id"), lambda usage: money(show(usage)), is_shared=True)


SPENT = _amount(attrgetter("spent"))
COMMITTED = _amount(attrgetter("committed"))
RESERVED = _amount(attrgetter("reserved"))


@strawberry.type(description="A limit of what may be spent in a period: see docs/spend.md.")
class Budget(Node):
    row_id: strawberry.Private[UUID]
    limit_micros: strawberry.Private[int]
    name: str = strawberry.field(description="Unique name in the project.")
    scope: BudgetScope = strawberry.field(description="What it counts.")
    period: BudgetPeriod = strawberry.field(description="After which time it begins anew.")
    timezone: str = strawberry.field(description="IANA time zone of its periods.")
    limit: Money = strawberry.field(description="What may be spent in a period.")
    thresholds: list[int] = strawberry.field(description="Per cent of the limit that are announced once per period.")
    action: BudgetAction = strawberry.field(description="What it does.")
    exempt: list[LabelRule] = strawberry.field(
        description="Instances that match one of these are neither stopped nor deleted."
    )
    created_at: datetime = strawberry.field(description="Creation time.")

    @strawberry.field(description="What was paid for in this period so far.", metadata=SPENT.metadata)
    async def spent(self, info: Info) -> Money:
        return await SPENT.load(self, info)

    @strawberry.field(
        description="What the machines that are paid for now may still cost: until their hard end, without one for the "
        "next hour (BUDGET_HORIZON), and not past the end of the period.",
        metadata=COMMITTED.metadata,
    )
    async def committed(self, info: Info) -> Money:
        return await COMMITTED.load(self, info)

    @strawberry.field(
        description="The same for accepted creates and starts without a paid machine yet.", metadata=RESERVED.metadata
    )
    async def reserved(self, info: Info) -> Money:
        return await RESERVED.load(self, info)

    @strawberry.field(description="What is left of the limit; at least 0.")
    async def remaining(self, info: Info) -> Money:
        return money(max(0, self.limit_micros - (await self.usage(info)).used))

    @strawberry.field(description="When the next period begins; null: never.")
    async def resets_at(self, info: Info) -> datetime | None:
        return (await self.usage(info)).period.end

    @strawberry.field(description="When the limit is spent at the present burn rate; null if not in this period.")
    async def exhausts_at(self, info: Info) -> datetime | None:
        return (await self.usage(info)).exhausts_at(self.limit_micros)

    @strawberry.field(description="Whether anything is left.")
    async def state(self, info: Info) -> BudgetState:
        is_used_up = (await self.usage(info)).spent >= self.limit_micros
        return BudgetState.EXHAUSTED if is_used_up else BudgetState.OK

    async def usage(self, info: Info) -> Usage:
        return await info.context.loaders.budget_usage.load(self.row_id)

    @classmethod
    async def load(cls, info: Info, id: str) -> "Budget | None":
        row = await info.context.loaders.budget.load(ids.parse(ids.BUDGET, id))
        return None if row is None else cls.of(row)

    @classmethod
    def of(cls, row: tables.BudgetLike) -> "Budget":
        return convert(
            cls,
            row,
            row_id=row.id,
            id=strawberry.ID(ids.format_id(ids.BUDGET, row.id)),
            scope=BudgetScope.of(row),
            period=BudgetPeriod(row.period),
            limit=money(row.limit_micros),
            action=BudgetAction(row.action),
            exempt=[LabelRule.of(Exemption.of(each)) for each in row.exempt],
        )


@strawberry.type(description="A budget with its cursor.")
class BudgetEdge(Edge[Budget]):
    pass


@strawberry.type(description="A page of budgets.")
class BudgetConnection(CountedConnection[BudgetEdge, Budget]):
    pass
