"""When something of a project's budgets happens next, and the job that looks then.

Every change of the burn rate makes the job due in its own transaction; the job reads the budgets and waits for the next
time. So what a change means is computed once, after its commit, and the change waits for no budget's row.
"""

from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from server.db.tables import Budget
from server.enums import BudgetAction
from server.queue.control import wake_job
from server.queue.kinds import WatchBudgets
from server.spend.usage import MICROS_PER_E5, STOP_LEAD, Usage

ENDS = (BudgetAction.STOP, BudgetAction.DELETE)
# An end that can't begin yet, because another operation is open, is tried again.
RETRY = timedelta(seconds=10)
SOON = timedelta(milliseconds=200)  # an amount is whole millionths: at its exact time it may lack one


def job_key(project_id: UUID) -> str:
    return f"budgets {project_id}"


async def wake(session: AsyncSession, project_id: UUID, *, at: datetime | None = None) -> None:
    """Look at the project's budgets then, or now; an earlier time that is set already stays."""
    work = WatchBudgets(project_id)
    await wake_job(session, work, unique_key=job_key(project_id), project_id=project_id, at=at)


def is_ending(budget: Budget, usage: Usage) -> bool:
    exhausts_at = usage.exhausts_at(budget.limit_micros)
    return exhausts_at is not None and exhausts_at - STOP_LEAD <= usage.at


def next_time(budget: Budget, usage: Usage) -> datetime | None:
    """When the next threshold, the end of machines, the exhaustion or the next period is due; None: not by itself."""
    if budget.action in ENDS and usage.burn_e5 > 0 and is_ending(budget, usage):
        return usage.at + RETRY
    times = [] if usage.period.end is None else [usage.period.end]
    if usage.burn_e5 > 0:
        shares = [budget.limit_micros * each / 100 for each in (*budget.thresholds, 100)]
        reached = [_reached_at(usage, amount) for amount in shares if amount > usage.spent]
        times += [at for at in reached if at is not None]
        exhausts_at = usage.exhausts_at(budget.limit_micros)
        if budget.action in ENDS and exhausts_at is not None:
            times.append(exhausts_at - STOP_LEAD)
    return max(min(times), usage.at) + SOON if times else None


def _reached_at(usage: Usage, amount: float) -> datetime | None:
    seconds = (amount - usage.spent) * 3600 / (usage.burn_e5 * MICROS_PER_E5)
    return usage.at + timedelta(seconds=seconds) if seconds < min(usage.seconds_left, 10**9) else None
