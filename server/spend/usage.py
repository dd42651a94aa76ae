"""How much of a budget is used: spent, committed to machines that are paid for, and reserved for those to come."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from server.clock import now
from server.db.database import Fetch
from server.db.tables import BudgetLike
from server.spend.periods import Period, period_at
from server.spend.report import midnight
from server.spend.scope import scope_values, to_json

MICROS_PER_E5 = 10
STOP_LEAD = timedelta(minutes=2)  # a stop takes time, in which machines are paid for


@dataclass(slots=True)
class Usage:
    """Of one budget in its present period, in millionths of a dollar."""

    period: Period
    at: datetime
    spent: int
    committed: int
    reserved: int
    burn_e5: int

    @classmethod
    def none(cls) -> "Usage":
        moment = now()
        return cls(Period(moment, None), moment, 0, 0, 0, 0)

    @property
    def used(self) -> int:
        return self.spent + self.committed + self.reserved

    def exhausts_at(self, limit_micros: int) -> datetime | None:
        """When the limit is spent at the present burn rate; None if not in this period."""
        left = limit_micros - self.spent
        if left <= 0:
            return self.at
        if self.burn_e5 <= 0:
            return None
        seconds = left * 3600 / (self.burn_e5 * MICROS_PER_E5)
        if self.period.end is None:
            return self.at + timedelta(seconds=min(seconds, 10**9))
        return self.at + timedelta(seconds=seconds) if seconds < self.seconds_left else None

    @property
    def seconds_left(self) -> float:
        return float("inf") if self.period.end is None else (self.period.end - self.at).total_seconds()


# Of the columns of `budget`, as one row per budget. Whole days are read from their sums, as in report.py. One JSON
# value, not arrays, for which PostgreSQL plans anew each time: see create_statement.py.
WANTED = """
    jsonb_to_recordset($1::jsonb)
    AS budget (id uuid, project_id uuid, label jsonb, token_id uuid, since timestamptz, until timestamptz,
               first_day timestamptz, whole_from timestamptz, horizon_s bigint)
"""
SCOPE = """
    {0}.project_id = {3}.project_id AND ({3}.label IS NULL OR {1} @> {3}.label)
    AND ({3}.token_id IS NULL OR {2} = {3}.token_id)
"""
ENTRY = SCOPE.format("entry", "entry.labels", "entry.token_id", "budget")
# An operation of our own is paid for by the token of the run, as in the ledger.
PAYER = """
    coalesce(operation.requested_by,
             (SELECT requested_by FROM operation AS run
              WHERE run.instance_id = operation.instance_id AND kind IN ('CREATE', 'START') AND requested_by IS NOT NULL
              ORDER BY run.created_at DESC LIMIT 1))
"""
# Not by a join: an admission reads all that is open in the project, and only the budget of a label needs the instances.
LABELS = "(SELECT labels FROM instance WHERE instance.id = operation.instance_id)"
# Until its hard end, without one for the horizon, and never past the end of the period.
SECONDS = """
    greatest(0, least({0}, extract(epoch FROM budget.until - now)))
"""
# A run whose machine was seen before the response to its start counts from now on.
HARD_END = """
    least(CAST(instance.lifetime ->> 'deadline' AS timestamptz),
          greatest(coalesce(instance.run_accepted_at, now) + CAST(instance.lifetime ->> 'max_duration' AS interval)
                   + make_interval(secs => coalesce(CAST(instance.lifetime_state ->> 'extra' AS float8), 0)),
                   CAST(instance.lifetime_state ->> 'floor' AS timestamptz)))
"""
USAGE = f"""
    SELECT budget.id, now, days.amount + parts.amount + recent.amount, open.committed, reserved.amount, open.burn
    FROM {WANTED}, clock_timestamp() AS now, LATERAL (
        SELECT coalesce(sum(amount_micros), 0) AS amount FROM cost_day AS entry
        WHERE {ENTRY} AND day >= CAST(budget.whole_from AT TIME ZONE 'UTC' AS date)
    ) AS days, LATERAL (
        SELECT coalesce(sum(amount_micros * extract(epoch FROM ended_at - greatest(began_at, budget.since))
                            / extract(epoch FROM ended_at - began_at)), 0) AS amount
        FROM cost_entry AS entry
        WHERE {ENTRY} AND is_summed AND began_at >= budget.first_day AND began_at < budget.whole_from
          AND ended_at > budget.since AND ended_at > began_at
    ) AS parts, LATERAL (
        SELECT coalesce(sum(price_e5 * 10 * extract(epoch FROM piece.until - piece.since) / 3600), 0) AS amount
        FROM cost_entry AS entry, LATERAL (
            SELECT coalesce(ended_at, now) AS until, greatest(began_at, budget.since) AS since
        ) AS piece
        WHERE {ENTRY} AND NOT is_summed AND piece.until > piece.since
    ) AS recent, LATERAL (
        SELECT coalesce(sum(price_e5), 0) AS burn, coalesce(sum(price_e5 * 10 * {
    SECONDS.format(f"coalesce(extract(epoch FROM {HARD_END} - now), budget.horizon_s)")
} / 3600), 0) AS committed
        FROM cost_entry AS entry JOIN instance ON instance.id = entry.instance_id
        WHERE {ENTRY} AND NOT is_summed AND entry.ended_at IS NULL
    ) AS open, LATERAL (
        SELECT coalesce(sum(reserved_price_e5 * {
    SECONDS.format("coalesce(operation.reserved_s, budget.horizon_s)")
}) * 10 / 3600, 0) AS amount
        FROM operation
        WHERE {SCOPE.format("operation", LABELS, PAYER, "budget")}
          AND operation.status IN ('QUEUED', 'RUNNING') AND reserved_price_e5 IS NOT NULL
          AND NOT EXISTS (SELECT FROM cost_entry WHERE instance_id = operation.instance_id AND ended_at IS NULL
                                                   AND machine IS DISTINCT FROM operation.wanted ->> 'replaces')
    ) AS reserved
"""


async def read_usage(fetch: Fetch, budgets: Sequence[BudgetLike]) -> dict[UUID, Usage]:
    """All budgets in one statement, each in the period that it is in now by the database's clock."""
    moment = now()
    periods = {budget.id: period_at(budget.period, budget.timezone, moment) for budget in budgets}
    rows = await fetch(USAGE, to_json(_wanted(budget, periods[budget.id]) for budget in budgets))
    return {
        row[0]: Usage(periods[row[0]], row[1], round(row[2]), round(row[3]), round(row[4]), int(row[5])) for row in rows
    }


def _wanted(budget: BudgetLike, period: Period) -> dict[str, Any]:
    day = midnight(period.begin)
    return {
        **scope_values(budget),
        "since": period.begin,
        "until": period.end,
        "first_day": day,
        "whole_from": day if day == period.begin else day + timedelta(days=1),
        "horizon_s": budget.horizon_s,
    }
