"""The budget and the quota that a token is created with; an ADMIN changes them like any other."""

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from server.auth.token_limits import Allowance
from server.clock import format_id, new_id
from server.db.pool import RawPool
from server.db.tables import BudgetRow, QuotaRow, Token
from server.db.tables.rows import make_rows, select_rows
from server.enums import BudgetAction, BudgetPeriod
from server.spend.budgets import DEFAULT_THRESHOLDS, BudgetChange, BudgetDraft, insert_budget
from server.spend.quotas import QuotaDraft, set_quota

TOKEN_PREFIX = "tok"
BUDGETS = f"{select_rows(BudgetRow)} WHERE token_id = ANY($1::uuid[]) ORDER BY id DESC"
QUOTAS = f"{select_rows(QuotaRow)} WHERE token_id = ANY($1::uuid[])"


async def add_allowance(session: AsyncSession, token: Token, allowance: Allowance, *, horizon: timedelta) -> None:
    """In the transaction that creates the token: it never exists without them."""
    if allowance.budget_micros is not None:
        settings = BudgetChange(_name(token.id), allowance.budget_micros, DEFAULT_THRESHOLDS, BudgetAction.BLOCK, ())
        draft = BudgetDraft(settings, BudgetPeriod.TOTAL, token_id=token.id, horizon=horizon)
        await insert_budget(session, draft, new_id(), project_id=token.project_id)
    quota = QuotaDraft(allowance.max_instances, max_price_e5=allowance.max_price_e5, token_id=token.id)
    if not quota.is_empty:
        await set_quota(session, quota, project_id=token.project_id)


def _name(token_id: UUID) -> str:
    """Unique in the project, which the name of a token is not."""
    return f"Token {format_id(TOKEN_PREFIX, token_id)}"


async def read_allowances(
    pool: RawPool, token_ids: Sequence[UUID]
) -> dict[UUID, tuple[BudgetRow | None, QuotaRow | None]]:
    """The oldest budget and the quota of each token."""
    budgets = {row.token_id: row for row in make_rows(BudgetRow, await pool.fetch_by_keys(BUDGETS, token_ids))}
    quotas = {row.token_id: row for row in make_rows(QuotaRow, await pool.fetch_by_keys(QUOTAS, token_ids))}
    return {id: (budgets.get(id), quotas.get(id)) for id in token_ids}
