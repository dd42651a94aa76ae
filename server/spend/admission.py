"""Admits new work against the budgets and quotas of its scope, in the transaction that accepts it.

Their rows are locked first, budgets before quotas and each in the order of their ids: of two transactions, the second
waits, and then sees what the first has reserved. What was reserved counts while its operation is open and its machine
is not paid for yet; from then on the machine counts itself. So nothing is left over if a process is killed anywhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any
from uuid import UUID

import orjson
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.database import Fetch, fetch_in
from server.db.tables import BudgetRow, QuotaRow
from server.db.tables.rows import make_rows, select_rows
from server.errors import BudgetExceeded
from server.observe import metrics
from server.spend.quotas import QuotaUsage, maxima, read_quota_usage
from server.spend.refusals import QuotaExceeded
from server.spend.scope import Scoped, is_in_scope
from server.spend.usage import MICROS_PER_E5, Usage, read_usage


@dataclass(frozen=True, slots=True)
class Want:
    """A machine that is to be paid for at most `seconds` long; None: it has no hard end.

    A machine that counts already has `counted_labels`: those with which it counts, for `counted_s` (None: for the
    horizon).
    """

    project_id: UUID
    token_id: UUID | None
    labels: dict[str, str]
    price_e5: int
    seconds: float | None
    gpus: int
    instances: int = 1  # 0: a second machine of an instance that has one
    counted_s: float | None = 0
    counted_labels: dict[str, str] | None = None

    @property
    def reserve(self) -> dict[str, Any]:
        """The columns of its operation."""
        return {"reserved_price_e5": self.price_e5, "reserved_s": None if self.seconds is None else ceil(self.seconds)}

    def needs(self, budget: BudgetRow, usage: Usage) -> int:
        """In millionths of a dollar, within the budget's period."""
        wanted, counted = (
            min(budget.horizon_s if seconds is None else seconds, usage.seconds_left)
            for seconds in (self.seconds, self.counted_s if self.counts_in(budget) else 0)
        )
        return round(self.price_e5 * MICROS_PER_E5 * max(0, wanted - counted) / 3600)

    def is_in_scope(self, row: Scoped) -> bool:
        return is_in_scope(row, token_id=self.token_id, labels=self.labels)

    def counts_in(self, row: Scoped) -> bool:
        labels = self.counted_labels
        return labels is not None and is_in_scope(row, token_id=self.token_id, labels=labels)


# The same as in the ledger: the token that requested the run pays for it, also for time that another token adds.
RUN_TOKEN = text("""
    SELECT requested_by FROM operation
    WHERE instance_id = :instance_id AND kind IN ('CREATE', 'START') AND requested_by IS NOT NULL
    ORDER BY created_at DESC LIMIT 1
""")


async def token_of_run(session: AsyncSession, instance_id: UUID) -> UUID | None:
    """The token that the ledger counts the present run for; None if no caller requested it."""
    return (await session.execute(RUN_TOKEN, {"instance_id": instance_id})).scalar_one_or_none()


# Those of other tokens and labels need not be waited for.
SCOPED = """
    project_id = $1 AND (token_id IS NULL OR token_id = ANY($2::uuid[]))
    AND (label_key IS NULL OR EXISTS (
        SELECT FROM unnest($3::jsonb[]) AS of_one (labels) WHERE labels ->> label_key = label_value))
    ORDER BY id
    FOR NO KEY UPDATE
"""
LOCK_BUDGETS = f"{select_rows(BudgetRow)} WHERE action <> 'NOTIFY' AND {SCOPED}"
LOCK_QUOTAS = f"{select_rows(QuotaRow)} WHERE {SCOPED}"


class Admission:
    """The locked budgets and quotas of one project and what is left; each admitted work leaves less for the next."""

    def __init__(
        self, budgets: Sequence[tuple[BudgetRow, Usage]], quotas: Sequence[tuple[QuotaRow, QuotaUsage]]
    ) -> None:
        self._budgets = budgets
        self._quotas = quotas

    @classmethod
    async def lock(cls, fetch: Fetch, project_id: UUID, wants: Sequence[Want]) -> "Admission":
        tokens = list({want.token_id for want in wants if want.token_id is not None})
        labels = list({orjson.dumps(want.labels).decode() for want in wants})
        budgets = make_rows(BudgetRow, await fetch(LOCK_BUDGETS, project_id, tokens, labels))
        quotas = make_rows(QuotaRow, await fetch(LOCK_QUOTAS, project_id, tokens, labels))
        # Statements of their own: they see what the transactions have written that were waited for.
        spent = await read_usage(fetch, budgets) if budgets else {}
        used = await read_quota_usage(fetch, quotas) if quotas else {}
        return cls([(each, spent[each.id]) for each in budgets], [(each, used[each.id]) for each in quotas])

    def admit(self, want: Want) -> None:
        """Raise BudgetExceeded or QuotaExceeded, or count it."""
        needed = [
            (usage, self._check(budget, usage, want)) for budget, usage in self._budgets if want.is_in_scope(budget)
        ]
        quotas = [
            (quota, usage) for quota, usage in self._quotas if want.is_in_scope(quota) and not want.counts_in(quota)
        ]
        for quota, usage in quotas:
            _refuse_above(quota, usage, want)
        for usage, amount in needed:
            usage.reserved += amount
        for _, usage in quotas:
            usage.instances, usage.gpus = usage.instances + want.instances, usage.gpus + want.gpus
            usage.price_e5 += want.price_e5

    def _check(self, budget: BudgetRow, usage: Usage, want: Want) -> int:
        needed = want.needs(budget, usage)
        if needed and usage.used + needed > budget.limit_micros:
            metrics.BUDGET_REFUSALS.add()
            left = max(0, budget.limit_micros - usage.used)
            raise BudgetExceeded((budget.id, budget.name), left, needed, usage.period.end)
        return needed


def _refuse_above(quota: QuotaRow, usage: QuotaUsage, want: Want) -> None:
    for name, used, needed, allowed in maxima(
        quota, usage, instances=want.instances, gpus=want.gpus, price_e5=want.price_e5
    ):
        if needed and used + needed > allowed:
            metrics.BUDGET_REFUSALS.add()
            raise QuotaExceeded(quota.id, name, used=used, needed=needed, allowed=allowed)


async def admit(session: AsyncSession, want: Want) -> None:
    """Raise BudgetExceeded or QuotaExceeded if one of its scope has too little left; hold them until the commit."""
    (await Admission.lock(fetch_in(session), want.project_id, [want])).admit(want)
