"""Announces the thresholds of budgets, and ends machines before a budget is used up.

WATCH_BUDGETS looks at a project's budgets when something happens next. CHECK_BUDGETS looks at all of them at an
interval: a process of an older release changes the burn rate without waking the job.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy import Select, select, text

from server.db.database import fetch_in
from server.db.tables import Budget
from server.enums import BudgetAction, OperationKind, OperationReason, OperationStatus
from server.instances import operations, transitions
from server.instances.commands.cancel import end_create
from server.instances.commands.delete import begin_delete
from server.instances.commands.stop_now import can_stop_now, stop_now
from server.jobs.registry import JobContext, handles
from server.market import waits
from server.observe import metrics
from server.queue.control import release_key
from server.queue.handler import Done, Outcome
from server.queue.kinds import CheckBudgets, WatchBudgets
from server.spend.announce import announce, find_new_marks
from server.spend.budgets import Exemption
from server.spend.scope import label_json
from server.spend.usage import read_usage
from server.spend.watch import ENDS, is_ending, job_key, next_time, wake

log = structlog.get_logger(__name__)

CHANGES: dict[str, Any] = {"status_reason": "BUDGET"}
# An end that failed is not repeated before this time.
REPEAT_AFTER = timedelta(minutes=5)

PAID = text("""
    SELECT DISTINCT ON (instance.id) instance.id, instance.labels
    FROM cost_entry AS entry JOIN instance ON instance.id = entry.instance_id
    WHERE entry.project_id = :project_id AND entry.ended_at IS NULL AND NOT entry.is_summed
      AND (CAST(:label AS jsonb) IS NULL OR entry.labels @> CAST(:label AS jsonb))
      AND (CAST(:token_id AS uuid) IS NULL OR entry.token_id = CAST(:token_id AS uuid))
      AND instance.status <> 'DELETING'
      AND NOT EXISTS (SELECT FROM operation
                      WHERE operation.instance_id = instance.id AND operation.reason = 'BUDGET'
                        AND (finished_at IS NULL OR finished_at > clock_timestamp() - CAST(:pause AS interval)))
""")


@handles(CheckBudgets)
async def check_budgets(_work: CheckBudgets, ctx: JobContext) -> Outcome:
    """Its writes need no claim: marks are unique, and an end that was begun is not begun again."""
    await _check(ctx, select(Budget))
    return Done()


@handles(WatchBudgets)
async def watch_budgets(work: WatchBudgets, ctx: JobContext) -> Outcome:
    """The key is released first: a change that is committed from here on makes a new job."""
    async with ctx.write() as session:
        await release_key(session, ctx.claim.job_id, unique_key=job_key(work.project_id))
        await waits.look_at_blocked(session, work.project_id)
    times = await _check(ctx, select(Budget).where(Budget.project_id == work.project_id))
    if times:
        async with ctx.write() as session:
            await wake(session, work.project_id, at=min(times))
    return Done()


async def _check(ctx: JobContext, which: Select[Budget]) -> list[datetime]:
    """Returns when each has to be looked at again."""
    async with ctx.read() as session:
        budgets = (await session.execute(which.order_by(Budget.id))).scalars().all()
        usages = await read_usage(fetch_in(session), budgets) if budgets else {}
        unannounced = {each.id for each in budgets if await find_new_marks(session, each, usages[each.id])}
    for budget in budgets:
        usage = usages[budget.id]
        if budget.id in unannounced:
            async with ctx.services.database.write() as session:
                new = await announce(session, budget, usage)
            log.info("budget.announced", budget_id=budget.id, marks=list(new))
        if budget.action in ENDS and is_ending(budget, usage):
            await end_all(ctx, budget)
    times = (next_time(budget, usages[budget.id]) for budget in budgets)
    return [at for at in times if at is not None]


async def end_all(ctx: JobContext, budget: Budget) -> None:
    """Begin the end of every instance of the scope whose machine is paid for, and that is not exempt."""
    values = {
        "project_id": budget.project_id,
        "label": label_json(budget),
        "token_id": budget.token_id,
        "pause": REPEAT_AFTER,
    }
    exempt = [Exemption.of(each) for each in budget.exempt]
    async with ctx.read() as session:
        rows: Sequence[Any] = (await session.execute(PAID, values)).all()
    for instance_id, labels in rows:
        if any(each.matches(labels) for each in exempt):
            continue
        if await _end(ctx, instance_id, budget):
            metrics.BUDGET_ENDS.add(str(budget.action))
            log.warning("budget.ended_instance", budget_id=budget.id, instance_id=instance_id, action=budget.action)


async def _end(ctx: JobContext, instance_id: UUID, budget: Budget) -> bool:
    """False if it can't begin now; the next run tries again. An open operation may go on for longer than is left, so
    it ends. The machine of a create has nothing yet that a stop would keep: that is removed."""
    async with ctx.services.database.write() as session:
        instance = await transitions.try_lock(session, instance_id)
        if instance is None:
            return False
        await operations.end_replacement(session, instance)
        running = await operations.open_operation(session, instance_id)
        if running is not None and running.kind == OperationKind.DELETE:
            return False
        if running is not None and running.kind == OperationKind.CREATE:
            error = ("BUDGET_EXCEEDED", f"The budget {budget.name} is used up, so its machine was removed.")
            await end_create(session, instance, running, reason=OperationReason.BUDGET, changes=CHANGES, error=error)
            return True
        if budget.action == BudgetAction.DELETE:
            if running is not None:
                await operations.finish(session, running.id, OperationStatus.SUPERSEDED)
            await begin_delete(session, instance, by=None, reason=OperationReason.BUDGET, changes=CHANGES)
            return True
        if not can_stop_now(instance, running):
            return False
        error = ("BUDGET_EXCEEDED", f"The budget {budget.name} is used up, so the instance is stopped.")
        await stop_now(session, instance, running, reason=OperationReason.BUDGET, changes=CHANGES, error=error)
        return True
