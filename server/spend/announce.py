"""Announces what happens to a budget, each once per period: its thresholds, its exhaustion and its new period."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import format_id
from server.db.tables import Budget, BudgetMark
from server.events.event import EventType
from server.events.outbox import append_project_event
from server.spend.usage import Usage

EXHAUSTED, RESET = "EXHAUSTED", "RESET"
ID_PREFIX = "bud"


def marks_of(budget: Budget, usage: Usage) -> list[str]:
    """What is true of its present period, in the order in which it became true."""
    marks = [RESET] if usage.period.end is not None else []
    marks += [str(each) for each in sorted(budget.thresholds) if usage.spent * 100 >= budget.limit_micros * each]
    return [*marks, EXHAUSTED] if usage.spent >= budget.limit_micros else marks


async def find_new_marks(session: AsyncSession, budget: Budget, usage: Usage) -> list[str]:
    """What was not announced yet."""
    wanted = marks_of(budget, usage)
    if not wanted:
        return []
    rows = await session.execute(
        select(BudgetMark.mark).where(
            BudgetMark.budget_id == budget.id, BudgetMark.period_began_at == usage.period.begin
        )
    )
    known = set(rows.scalars())
    return [mark for mark in wanted if mark not in known]


async def announce(session: AsyncSession, budget: Budget, usage: Usage) -> Sequence[str]:
    """Write the events of marks that are new; returns these marks. Of two processes, the second finds them written."""
    if await session.get(Budget, budget.id, with_for_update={"key_share": True}) is None:
        return ()
    new = await find_new_marks(session, budget, usage)
    for mark in new:
        session.add(BudgetMark(budget_id=budget.id, period_began_at=usage.period.begin, mark=mark))
        await _tell(session, budget, usage, mark)
    return new


async def mark_period(session: AsyncSession, budget: Budget, usage: Usage) -> None:
    """The period in which a budget is created is not announced as a new one."""
    values = {"budget_id": budget.id, "period_began_at": usage.period.begin, "mark": RESET}
    await session.execute(insert(BudgetMark).values(**values).on_conflict_do_nothing())


async def _tell(session: AsyncSession, budget: Budget, usage: Usage, mark: str) -> None:
    values: dict[str, str | int] = {
        "name": budget.name,
        "spentMicros": usage.spent,
        "limitMicros": budget.limit_micros,
        "periodBeganAt": usage.period.begin.isoformat(),
    }
    if mark == RESET:
        type = EventType.BUDGET_RESET
    elif mark == EXHAUSTED:
        type = EventType.BUDGET_EXHAUSTED
        values["action"] = str(budget.action)
    else:
        type = EventType.BUDGET_THRESHOLD
        values["threshold"] = int(mark)
    objects = {"budget": format_id(ID_PREFIX, budget.id)}
    await append_project_event(session, type, project_id=budget.project_id, values=values, objects=objects)
