"""Types of what instances cost, and of budgets."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import strawberry

from schema import ids
from schema.context import Info
from schema.enums import described
from schema.ids import Node
from schema.pagination import CountedConnection, Edge
from schema.types.money import MICROS_PER_E5, Money, money
from server.conversion import convert
from server.db import tables
from server.enums import BudgetAction, BudgetPeriod
from server.spend import report
from server.spend.budgets import Exemption
from server.spend.report import SpendGroup
from server.spend.usage import Usage

if TYPE_CHECKING:
    from schema.types.instance import KeyValue

described(
    SpendGroup,
    name="SpendGroupBy",
    description="What amounts are grouped by.",
    values={
        "DAY": "The day in UTC, such as 2026-11-16.",
        "INSTANCE": "The instance, by its id.",
        "PRODUCT": "The name of the product.",
        "REGION": "The region.",
        "TOKEN": "The token that requested the run, by its id.",
        "LABEL": "The value of the label `labelKey`.",
    },
)


@strawberry.type(description="A part of what was spent.")
class SpendPart:
    key: str | None = strawberry.field(
        description="What its entries have in common; null for those without it, such as without the label."
    )
    amount: Money = strawberry.field(description="What it cost.")
    paid_time: timedelta = strawberry.field(description="How long machines were paid for.")

    @classmethod
    def of(cls, group: report.Group, by: SpendGroup) -> "SpendPart":
        prefix = {SpendGroup.INSTANCE: ids.INSTANCE, SpendGroup.TOKEN: ids.TOKEN}.get(by)
        key = group.key if group.key is None or prefix is None else f"{prefix}_{group.key.replace('-', '')}"
        return cls(key=key, amount=money(group.amount_micros), paid_time=group.paid_time)


@strawberry.type(description="What machines cost in a time, by the ledger: see docs/spend.md.")
class SpendReport:
    total: Money = strawberry.field(description="What they cost together.")
    paid_time: timedelta = strawberry.field(description="How long machines were paid for, together.")
    groups: list[SpendPart] = strawberry.field(
        description="At most 1,000: days in order, others by amount, the largest first."
    )

    @classmethod
    def of(cls, spend: report.Spend, by: SpendGroup) -> "SpendReport":
        return cls(
            total=money(spend.total_micros),
            paid_time=spend.paid_time,
            groups=[SpendPart.of(group, by) for group in spend.groups],
        )


@strawberry.type(description="What a project spends. Months are in UTC.")
class SpendSummary:
    summary: strawberry.Private[report.Summary]
    burn_rate: Money = strawberry.field(description="Price per hour of the machines that are paid for now.")
    spent_this_month: Money = strawberry.field(description="What this month has cost so far.")
    forecast_month_end: Money = strawberry.field(
        description="What this month will have cost if exactly the present machines run until its end."
    )
    cursor: str = strawberry.field(description="Position of these numbers in the event log.")

    @classmethod
    def of(cls, summary: report.Summary, cursor: str) -> "SpendSummary":
        return cls(
            summary=summary,
            burn_rate=money(summary.burn_e5 * MICROS_PER_E5),
            spent_this_month=money(summary.spent_micros),
            forecast_month_end=money(summary.forecast_micros),
            cursor=cursor,
        )


@strawberry.type(description="What an instance has cost. Months are in UTC.")
class InstanceSpend:
    total: Money = strawberry.field(description="Since it was created.")
    this_run: Money = strawberry.field(description="Since its machine was last started, or in its last run.")
    this_month: Money = strawberry.field(description="In this month.")

    @classmethod
    def of(cls, spend: report.InstanceSpend) -> "InstanceSpend":
        return cls(
            total=money(spend.total_micros), this_run=money(spend.run_micros), this_month=money(spend.month_micros)
        )


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


@strawberry.type(description="What a budget counts: one of its fields is set.")
class BudgetScope:
    project: bool = strawberry.field(description="Whether it is everything in the project.")
    label: Annotated["KeyValue", strawberry.lazy("schema.types.instance")] | None = strawberry.field(
        description="Instances with this label."
    )
    token_id: strawberry.ID | None = strawberry.field(description="What this token created or started.")


@strawberry.type(description="A condition on the labels of an instance.")
class LabelRule:
    key: str = strawberry.field(description="Label name.")
    values: list[str] | None = strawberry.field(description="One of these values; null: any.")
    negated: bool = strawberry.field(description="Whether it holds for all other instances.")

    @classmethod
    def of(cls, stored: Exemption) -> "LabelRule":
        values = None if stored.values is None else list(stored.values)
        return cls(key=stored.key, values=values, negated=stored.is_not)


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

    @strawberry.field(description="What was paid for in this period so far.")
    async def spent(self, info: Info) -> Money:
        return money((await self.usage(info)).spent)

    @strawberry.field(
        description="What the machines that are paid for now may still cost: until their hard end, without one for the "
        "next hour (BUDGET_HORIZON), and not past the end of the period."
    )
    async def committed(self, info: Info) -> Money:
        return money((await self.usage(info)).committed)

    @strawberry.field(description="The same for accepted creates and starts without a paid machine yet.")
    async def reserved(self, info: Info) -> Money:
        return money((await self.usage(info)).reserved)

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
        from schema.types.instance_parts import KeyValue  # noqa: PLC0415 - the two modules refer to each other

        label = None if row.label_key is None else KeyValue(key=row.label_key, value=row.label_value or "")
        token_id = None if row.token_id is None else strawberry.ID(ids.format_id(ids.TOKEN, row.token_id))
        return convert(
            cls,
            row,
            row_id=row.id,
            id=strawberry.ID(ids.format_id(ids.BUDGET, row.id)),
            scope=BudgetScope(project=label is None and token_id is None, label=label, token_id=token_id),
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
