"""Admits new work against the budgets of its scope, in the transaction that accepts it.

The budget rows are locked first, in the order of their ids: of two transactions, the second waits, and then sees what
the first has reserved. What was reserved counts while its operation is open and its machine is not paid for yet; from
then on the machine counts itself. So nothing is left over if a process is killed anywhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any
from uuid import UUID

import orjson
from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.tables import Budget
from server.enums import BudgetAction
from server.errors import BudgetExceeded
from server.observe import metrics
from server.spend.usage import MICROS_PER_E5, Usage, read_usage


@dataclass(frozen=True, slots=True)
class Want:
    """A machine that is to be paid for at most `seconds` long; None: it has no hard end.

    `counted_s`: the part of it that counts already, for other limits; None: it counts for the horizon.
    """

    project_id: UUID
    token_id: UUID | None
    labels: dict[str, str]
    price_e5: int
    seconds: float | None
    counted_s: float | None = 0

    @property
    def reserve(self) -> dict[str, Any]:
        """The columns of its operation."""
        return {"reserved_price_e5": self.price_e5, "reserved_s": None if self.seconds is None else ceil(self.seconds)}

    def needs(self, budget: Budget, usage: Usage) -> int:
        """In millionths of a dollar, within the budget's period."""
        wanted, counted = (
            min(budget.horizon_s if seconds is None else seconds, usage.seconds_left)
            for seconds in (self.seconds, self.counted_s)
        )
        return round(self.price_e5 * MICROS_PER_E5 * max(0, wanted - counted) / 3600)

    def is_in_scope(self, budget: Budget) -> bool:
        if budget.token_id is not None:
            return budget.token_id == self.token_id
        return budget.label_key is None or self.labels.get(budget.label_key) == budget.label_value


# The same as in the ledger: the token that requested the run pays for it, also for time that another token adds.
RUN_TOKEN = text("""
    SELECT requested_by FROM operation
    WHERE instance_id = :instance_id AND kind IN ('CREATE', 'START') AND requested_by IS NOT NULL
    ORDER BY created_at DESC LIMIT 1
""")


async def token_of_run(session: AsyncSession, instance_id: UUID) -> UUID | None:
    """The token that the ledger counts the present run for; None if no caller requested it."""
    return (await session.execute(RUN_TOKEN, {"instance_id": instance_id})).scalar_one_or_none()


# Budgets of other tokens and labels need not be waited for.
SCOPED = text("""
    (budget.token_id IS NULL OR budget.token_id = ANY(CAST(:token_ids AS uuid[])))
    AND (budget.label_key IS NULL OR EXISTS (
        SELECT FROM unnest(CAST(:labels AS jsonb[])) AS of_one (labels)
        WHERE labels ->> budget.label_key = budget.label_value))
""")


class Admission:
    """The locked budgets of one project and what is left of them; each admitted work leaves less for the next."""

    def __init__(self, budgets: Sequence[Budget], usages: dict[UUID, Usage]) -> None:
        self._budgets = budgets
        self._usages = usages

    @classmethod
    async def lock(cls, session: AsyncSession, project_id: UUID, wants: Sequence[Want]) -> "Admission":
        found = await session.execute(
            select(Budget)
            .where(Budget.project_id == project_id, Budget.action != BudgetAction.NOTIFY, SCOPED)
            .order_by(Budget.id)
            .with_for_update(key_share=True)
            .execution_options(populate_existing=True),
            {
                "token_ids": [want.token_id for want in wants if want.token_id is not None],
                "labels": [orjson.dumps(want.labels).decode() for want in wants],
            },
        )
        budgets = found.scalars().all()
        # A statement of its own: it sees what the transactions have written that were waited for.
        return cls(budgets, await read_usage(session, budgets) if budgets else {})

    def admit(self, want: Want) -> None:
        """Raise BudgetExceeded, or count it."""
        needed = [
            (self._usages[budget.id], self._needs(budget, want)) for budget in self._budgets if want.is_in_scope(budget)
        ]
        for usage, amount in needed:
            usage.reserved += amount

    def _needs(self, budget: Budget, want: Want) -> int:
        usage = self._usages[budget.id]
        needed = want.needs(budget, usage)
        if needed and usage.used + needed > budget.limit_micros:
            metrics.BUDGET_REFUSALS.add()
            left = max(0, budget.limit_micros - usage.used)
            raise BudgetExceeded((budget.id, budget.name), left, needed, usage.period.end)
        return needed


async def admit(session: AsyncSession, want: Want) -> None:
    """Raise BudgetExceeded if one of the budgets of its scope has too little left; hold them until the commit."""
    (await Admission.lock(session, want.project_id, [want])).admit(want)
