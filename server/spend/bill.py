"""The provider's bill beside the ledger: what it billed by machine and day, and the days on which both differ.

Days are whole and in UTC. `BillCheck.until` is the first day that is not compared yet.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from server.events.event import EventType
from server.events.outbox import append_project_event
from server.spend.report import DAY, SpendGroup, SpendScope, midnight, read_spend

MICROS_PER_E4 = 100
# The provider settles hourly; a day is compared when it ended this long ago.
SETTLED_AFTER = timedelta(hours=6)
# In case that lines are corrected or come late: a day of which less was billed is announced when it is read last.
READ_AGAIN = timedelta(days=3)
WINDOW_MAX = timedelta(days=31)
# Both must be exceeded.
TOLERATED_MICROS, TOLERATED_SHARE = 100_000, 0.02


@dataclass(frozen=True, slots=True)
class BilledLine:
    machine: str
    day: date
    amount_micros: int


@dataclass(frozen=True, slots=True)
class BilledDay:
    day: date
    billed_micros: int
    ledger_micros: int


@dataclass(frozen=True, slots=True)
class Bill:
    """Of the days that were compared within the time that was asked for; `until` is the end of the last of them."""

    until: datetime
    days: Sequence[BilledDay]

    @property
    def billed_micros(self) -> int:
        return sum(day.billed_micros for day in self.days)

    @property
    def difference_micros(self) -> int:
        return sum(day.billed_micros - day.ledger_micros for day in self.days)


PLAN = text("""
    SELECT clock_timestamp() AS now, bill_check.until,
           greatest(bill_check.since, (SELECT CAST(min(began_at) AT TIME ZONE 'UTC' AS date) FROM cost_entry)) AS since
    FROM (SELECT) AS always LEFT JOIN bill_check ON true
""")
# Its lock lets one check write at a time.
ADVANCE = text("""
    INSERT INTO bill_check (until, checked_at) VALUES (:until, clock_timestamp())
    ON CONFLICT (is_the_only_row) DO UPDATE
    SET until = greatest(bill_check.until, excluded.until), checked_at = excluded.checked_at
    RETURNING since
""")
FORGET = text("DELETE FROM bill_line WHERE day >= :first AND day < :until")
# Machines of the account that have no instance are in no project.
STORE = text("""
    INSERT INTO bill_line (machine, day, project_id, instance_id, amount_micros)
    SELECT line.machine, line.day, owner.project_id, owner.instance_id, sum(line.amount)
    FROM unnest(CAST(:machines AS text[]), CAST(:days AS date[]), CAST(:amounts AS bigint[]))
             AS line (machine, day, amount)
         JOIN (SELECT DISTINCT ON (machine.novita_id) machine.novita_id, instance.project_id, instance_id
               FROM machine JOIN instance ON instance.id = machine.instance_id
               WHERE machine.novita_id = ANY(CAST(:machines AS text[]))
               ORDER BY machine.novita_id, machine.began_at DESC) AS owner
           ON owner.novita_id = line.machine
    GROUP BY 1, 2, 3, 4
""")
COMPARE = text("""
    WITH billed AS (
        SELECT project_id, day, sum(amount_micros) AS amount FROM bill_line
        WHERE day >= :first AND day < :until GROUP BY project_id, day
    ), ledger AS (
        SELECT project_id, day, sum(amount_micros) AS amount FROM cost_day
        WHERE day >= :first AND day < :until GROUP BY project_id, day
    ), both_sides AS (
        SELECT project_id, day, coalesce(billed.amount, 0) AS billed, coalesce(ledger.amount, 0) AS ledger
        FROM billed FULL JOIN ledger USING (project_id, day)
    )
    INSERT INTO bill_difference (project_id, day, billed_micros, ledger_micros)
    SELECT project_id, day, billed, ledger FROM both_sides
    WHERE abs(billed - ledger) > :tolerated AND abs(billed - ledger) > :share * greatest(billed, ledger)
      AND (billed > ledger OR day < CAST(:final_before AS date))
    ORDER BY project_id, day
    ON CONFLICT DO NOTHING
    RETURNING project_id, day, billed_micros, ledger_micros
""")
CHECKED = text("SELECT since, until FROM bill_check WHERE until IS NOT NULL")
BILLED = text("""
    SELECT day, sum(amount_micros) FROM bill_line
    WHERE project_id = :project_id AND day >= :first AND day < :until
      AND (CAST(:instance_ids AS uuid[]) IS NULL OR instance_id = ANY(CAST(:instance_ids AS uuid[])))
    GROUP BY day
""")


async def find_windows(session: AsyncSession) -> list[tuple[datetime, datetime]]:
    """The times to read from the provider, each at most 31 days long; none if there is nothing to compare."""
    now, until, since = (await session.execute(PLAN)).one()
    end = midnight(now - SETTLED_AFTER)
    begin = since if until is None else max(until - READ_AGAIN, since or until)
    windows: list[tuple[datetime, datetime]] = []
    at = end if begin is None else _midnight_of(begin)
    while at < end:
        windows.append((at, min(at + WINDOW_MAX, end)))
        at += WINDOW_MAX
    return windows


async def store_bill(
    session: AsyncSession, lines: Sequence[BilledLine], *, since: datetime, until: datetime, end: datetime
) -> list[tuple[UUID, BilledDay]]:
    """Replace the lines of these days, and announce each day of a project that differs, once. Returns those.

    `end` is that of the last window.
    """
    window: dict[str, Any] = {"first": since.date(), "until": until.date()}
    first = await session.scalar(ADVANCE, {"until": until.date()})
    await session.execute(FORGET, window)
    await session.execute(
        STORE,
        {
            "machines": [line.machine for line in lines],
            "days": [line.day for line in lines],
            "amounts": [line.amount_micros for line in lines],
        },
    )
    window["first"] = max(window["first"], first or window["first"])
    limits = {"tolerated": TOLERATED_MICROS, "share": TOLERATED_SHARE}
    found = await session.execute(COMPARE, {**window, **limits, "final_before": (end - READ_AGAIN).date()})
    differing = [(row[0], BilledDay(row[1], int(row[2]), int(row[3]))) for row in found]
    for project_id, each in differing:
        values = {
            "day": each.day.isoformat(),
            "billedMicros": each.billed_micros,
            "ledgerMicros": each.ledger_micros,
        }
        await append_project_event(session, EventType.SPEND_DIFFERS, project_id=project_id, values=values)
    return differing


async def read_bill(session: AsyncSession, scope: SpendScope) -> Bill | None:
    """None if no day of this time was compared, or the bill can't be divided like this: it knows neither labels nor
    tokens."""
    checked = (await session.execute(CHECKED)).first()
    if checked is None or scope.labels or scope.token_id is not None:
        return None
    begin = midnight(scope.since)
    begin = begin if begin == scope.since else begin + DAY
    if checked.since is not None:
        begin = max(begin, _midnight_of(checked.since))
    end = min(midnight(scope.until), _midnight_of(checked.until))
    if begin >= end:
        return None
    ledger = await read_spend(session, replace(scope, since=begin, until=end), group=SpendGroup.DAY)
    ours = {group.key: group.amount_micros for group in ledger.groups}
    instances = None if scope.instance_ids is None else list(scope.instance_ids)
    rows = await session.execute(
        BILLED,
        {"project_id": scope.project_id, "first": begin.date(), "until": end.date(), "instance_ids": instances},
    )
    theirs = {row[0].isoformat(): int(row[1]) for row in rows}
    days = [
        BilledDay(date.fromisoformat(day), theirs.get(day, 0), ours.get(day, 0))
        for day in sorted({*theirs, *(key for key in ours if key is not None)})
    ]
    return Bill(end, days)


def _midnight_of(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
