"""Looks at all budgets again and again: announces thresholds, and ends machines before a budget is used up.

At an interval, not at a time that every change of the burn rate would have to move: all changes of a project would wait
for one row. The interval is short beside the two minutes by which the ends are early.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy import select, text

from server.db.tables import Budget, Instance
from server.enums import BudgetAction, InstanceStatus, OperationKind, OperationReason, OperationStatus
from server.instances import operations, transitions
from server.instances.commands.cancel import end_create
from server.instances.commands.delete import begin_delete
from server.instances.commands.lifecycle import begin_verb
from server.instances.status import VERBS, actions, has_machine
from server.jobs.registry import JobContext, handles
from server.observe import metrics
from server.queue.handler import Done, Outcome
from server.queue.kinds import CheckBudgets
from server.spend.announce import announce, find_new_marks
from server.spend.budgets import Exemption
from server.spend.scope import label_json
from server.spend.usage import STOP_LEAD, Usage, read_usage

log = structlog.get_logger(__name__)

ENDS = (BudgetAction.STOP, BudgetAction.DELETE)
CHANGES: dict[str, Any] = {"status_reason": "BUDGET"}
# An end that failed is not repeated before this time.
REPEAT_AFTER = timedelta(minutes=5)

PAID = text("""
    SELECT instance.id, instance.labels
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
    async with ctx.read() as session:
        budgets = (await session.execute(select(Budget).order_by(Budget.id))).scalars().all()
        usages = await read_usage(session, budgets) if budgets else {}
        unannounced = {each.id for each in budgets if await find_new_marks(session, each, usages[each.id])}
    for budget in budgets:
        usage = usages[budget.id]
        if budget.id in unannounced:
            async with ctx.services.database.write() as session:
                new = await announce(session, budget, usage)
            log.info("budget.announced", budget_id=budget.id, marks=list(new))
        if budget.action in ENDS and is_ending(budget, usage):
            await end_all(ctx, budget)
    return Done()


def is_ending(budget: Budget, usage: Usage) -> bool:
    exhausts_at = usage.exhausts_at(budget.limit_micros)
    return exhausts_at is not None and exhausts_at - STOP_LEAD <= usage.at


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
        if await _end(ctx, instance_id, BudgetAction(budget.action)):
            metrics.BUDGET_ENDS.add(str(budget.action))
            log.warning("budget.ended_instance", budget_id=budget.id, instance_id=instance_id, action=budget.action)


async def _end(ctx: JobContext, instance_id: UUID, action: BudgetAction) -> bool:
    """False if it can't begin now; the next run tries again."""
    async with ctx.services.database.write() as session:
        instance = await transitions.try_lock(session, instance_id)
        if instance is None:
            return False
        running = await operations.open_operation(session, instance_id)
        if running is not None and running.kind == OperationKind.DELETE:
            return False
        if action is BudgetAction.DELETE:
            if running is not None and running.kind == OperationKind.CREATE:
                await end_create(session, instance, running, reason=OperationReason.BUDGET, changes=CHANGES)
                return True
            if running is not None:
                await operations.finish(session, running.id, OperationStatus.SUPERSEDED)
            await begin_delete(session, instance, by=None, reason=OperationReason.BUDGET, changes=CHANGES)
            return True
        if running is not None or not _can_stop(instance):
            return False
        await begin_verb(
            session,
            VERBS[OperationKind.STOP],
            instance,
            by=None,
            reason=OperationReason.BUDGET,
            changes=CHANGES,
        )
        return True


def _can_stop(instance: Instance) -> bool:
    return OperationKind.STOP in actions(InstanceStatus(instance.status), has_machine=has_machine(instance))
