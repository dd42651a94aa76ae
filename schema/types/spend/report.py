"""Types of what instances cost."""

import asyncio
from datetime import datetime, timedelta
from typing import Annotated

import strawberry

from schema import ids
from schema.context import Info
from schema.enums import described
from schema.filters import invalid_filter
from schema.types.money import MICROS_PER_E5, Money, money
from server.spend import report
from server.spend.bill import Bill, read_bill
from server.spend.report import SpendGroup

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


CELL_GROUPS_MAX = 20


def _shown_key(key: str | None, by: SpendGroup) -> str | None:
    prefix = {SpendGroup.INSTANCE: ids.INSTANCE, SpendGroup.TOKEN: ids.TOKEN}.get(by)
    return key if key is None or prefix is None else f"{prefix}_{key.replace('-', '')}"


@strawberry.type(description="A part of what was spent.")
class SpendPart:
    key: str | None = strawberry.field(
        description="What its entries have in common; null for those without it, such as without the label."
    )
    amount: Money = strawberry.field(description="What it cost.")
    paid_time: timedelta = strawberry.field(description="How long machines were paid for.")

    @classmethod
    def of(cls, group: report.Group, by: SpendGroup) -> "SpendPart":
        key = _shown_key(group.key, by)
        return cls(key=key, amount=money(group.amount_micros), paid_time=group.paid_time)


@strawberry.type(description="What one group cost on one day.")
class SpendCell:
    day: str = strawberry.field(description="The day in UTC, such as 2026-11-16.")
    key: str | None = strawberry.field(description="The group's key.")
    amount: Money = strawberry.field(description="What it cost on that day.")


@strawberry.type(description="A day (UTC) that was compared with the provider's bill.")
class BilledDay:
    day: str = strawberry.field(description="The day, such as 2026-11-16.")
    billed: Money = strawberry.field(description="What the provider has billed.")
    ledger: Money = strawberry.field(description="What the ledger has.")


@strawberry.type(description="What machines cost in a time, by the ledger: see docs/spend.md.")
class SpendReport:
    scope: strawberry.Private[report.SpendScope]
    group: strawberry.Private[SpendGroup]
    label_key: strawberry.Private[str | None]
    bill: strawberry.Private["asyncio.Future[Bill | None] | None"]
    total: Money = strawberry.field(description="What they cost together.")
    paid_time: timedelta = strawberry.field(description="How long machines were paid for, together.")
    groups: list[SpendPart] = strawberry.field(
        description="At most 1,000: days in order, others by amount, the largest first."
    )

    @strawberry.field(
        description="What the provider has billed for the same machines on the whole days (UTC) of the time that are "
        "compared already; null if there is none, and with a filter by labels, which the bill does not know."
    )
    async def billed(self, info: Info) -> Money | None:
        bill = await self._bill(info)
        return None if bill is None else money(bill.billed_micros)

    @strawberry.field(description="`billed` without what the ledger has for the same days; null if that is null.")
    async def difference(self, info: Info) -> Money | None:
        bill = await self._bill(info)
        return None if bill is None else money(bill.difference_micros)

    @strawberry.field(description="End of the last day that is in `billed`; null if that is null.")
    async def billed_until(self, info: Info) -> datetime | None:
        bill = await self._bill(info)
        return None if bill is None else bill.until

    @strawberry.field(description="The compared days, in order, at most 1,000; those without cost are left out.")
    async def billed_days(self, info: Info) -> list[BilledDay]:
        bill = await self._bill(info)
        if bill is None:
            return []
        return [
            BilledDay(day=each.day.isoformat(), billed=money(each.billed_micros), ledger=money(each.ledger_micros))
            for each in bill.days
        ]

    def _bill(self, info: Info) -> "asyncio.Future[Bill | None]":
        """Read once for all of these fields."""
        if self.bill is None:
            self.bill = asyncio.ensure_future(self._read_bill(info))
        return self.bill

    async def _read_bill(self, info: Info) -> Bill | None:
        async with info.context.read() as session:
            return await read_bill(session, self.scope)

    @strawberry.field(
        description="What the largest groups cost on each day: days in order, the largest group first. A day without "
        "cost is left out."
    )
    async def by_day(
        self,
        info: Info,
        groups: Annotated[int, strawberry.argument(description="How many groups, 1 to 20.")] = 8,
    ) -> list[SpendCell]:
        if not 1 <= groups <= CELL_GROUPS_MAX:
            raise invalid_filter(f"`groups` must be 1 to {CELL_GROUPS_MAX}.")
        async with info.context.read() as session:
            cells = await report.read_days(
                session, self.scope, group=self.group, label_key=self.label_key, limit=groups
            )
        return [
            SpendCell(day=cell.day.isoformat(), key=_shown_key(cell.key, self.group), amount=money(cell.amount_micros))
            for cell in cells
        ]

    @classmethod
    def of(cls, spend: report.Spend, by: SpendGroup, scope: report.SpendScope, label_key: str | None) -> "SpendReport":
        return cls(
            scope=scope,
            group=by,
            label_key=label_key,
            bill=None,
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
