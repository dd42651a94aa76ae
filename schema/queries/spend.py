"""Queries: spend, what the project's machines cost; budgets."""

from datetime import UTC, datetime
from typing import Annotated

import strawberry

from schema import ids
from schema.context import Info
from schema.filters import check_values, invalid_filter
from schema.inputs import After, First, KeyValueInput, Which
from schema.permissions import query
from schema.types.spend.budget import Budget, BudgetConnection, BudgetEdge
from schema.types.spend.quota import Quota, QuotaConnection, QuotaEdge
from schema.types.spend.report import SpendReport
from server.clock import now
from server.db import tables
from server.spend.report import SpendGroup, SpendScope, month_of, read_spend
from server.spend.scope import shown_to

# Nothing was spent before or will be after; and the days around these times can be computed.
EARLIEST, LATEST = datetime(2000, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)


@strawberry.input(description="Filter for what was spent; all given conditions must match.")
class SpendFilter:
    since: datetime | None = strawberry.field(default=None, description="From this time on. Default: this month (UTC).")
    until: datetime | None = strawberry.field(default=None, description="Before this time. Default: now.")
    instance_ids: list[strawberry.ID] | None = strawberry.field(default=None, description="Ids of instances, 1 to 100.")
    labels: list[KeyValueInput] | None = strawberry.field(
        default=None, description="All of these labels, as the instance had them at the time."
    )

    def to_domain(self, info: Info) -> SpendScope:
        moment = now()
        labels = tuple((label.key, label.value) for label in self.labels or ())
        check_values(self.instance_ids, self.labels, texts=[text for pair in labels for text in pair])
        since, until = self.since or month_of(moment), self.until or moment
        if since > until:
            raise invalid_filter("`since` must not be after `until`.")
        since, until = (min(max(each, EARLIEST), LATEST) for each in (since, until))
        instances = self.instance_ids
        return SpendScope(
            info.context.caller.project_id,
            since,
            until,
            None if instances is None else tuple(ids.parse_or_unused(ids.INSTANCE, id) for id in instances),
            labels,
            info.context.caller.owner_id,
        )


@strawberry.type
class SpendQueries:
    @query("What the project's machines cost, by the ledger. `groupBy: LABEL` needs `labelKey`.")
    async def spend(
        self,
        info: Info,
        filter: Annotated[SpendFilter | None, Which] = None,
        group_by: Annotated[SpendGroup, strawberry.argument(description="What to group by.")] = SpendGroup.DAY,
        label_key: Annotated[
            str | None, strawberry.argument(description="Name of a label, for `groupBy: LABEL` only.")
        ] = None,
    ) -> SpendReport:
        if (group_by is SpendGroup.LABEL) != (label_key is not None):
            raise invalid_filter("Give `labelKey` with `groupBy: LABEL`, and only then.")
        check_values(texts=[label_key or ""])
        scope = (filter or SpendFilter()).to_domain(info)
        async with info.context.read() as session:
            spend = await read_spend(session, scope, group=group_by, label_key=label_key)
        return SpendReport.of(spend, group_by, scope, label_key)

    @query("Budgets of the project, newest first.")
    async def budgets(self, info: Info, first: First = 50, after: After = None) -> BudgetConnection:
        return await BudgetConnection.newest_first(
            info,
            tables.BudgetRow,
            shown_to(info.context.caller),
            BudgetEdge,
            Budget.of,
            first=first,
            after=after,
        )

    @query("Quotas of the project, newest first.")
    async def quotas(self, info: Info, first: First = 50, after: After = None) -> QuotaConnection:
        return await QuotaConnection.newest_first(
            info,
            tables.QuotaRow,
            shown_to(info.context.caller),
            QuotaEdge,
            Quota.of,
            first=first,
            after=after,
        )
