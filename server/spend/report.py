"""What a project has spent: in total, in groups, by instance, and what this month will cost."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

import orjson
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

GROUPS_MAX = 1_000
DAY = timedelta(days=1)


class SpendGroup(StrEnum):
    """What amounts are grouped by. Days are UTC."""

    DAY = "DAY"
    INSTANCE = "INSTANCE"
    PRODUCT = "PRODUCT"
    REGION = "REGION"
    TOKEN = "TOKEN"
    LABEL = "LABEL"


@dataclass(frozen=True, slots=True)
class SpendScope:
    """Which entries; all conditions must hold."""

    project_id: UUID
    since: datetime
    until: datetime
    instance_ids: tuple[UUID, ...] | None = None
    labels: tuple[tuple[str, str], ...] = ()
    token_id: UUID | None = None

    def parameters(self) -> dict[str, Any]:
        first_day, last_day = midnight(self.since), midnight(self.until)
        whole_from = first_day if first_day == self.since else first_day + DAY
        return {
            "project_id": self.project_id,
            "since": self.since,
            "until": self.until,
            "first_day": first_day,
            "whole_from": whole_from,
            "whole_until": last_day,
            "instance_ids": None if self.instance_ids is None else list(self.instance_ids),
            "labels": orjson.dumps(dict(self.labels)).decode() if self.labels else None,
            "token_id": self.token_id,
        }


@dataclass(frozen=True, slots=True)
class Group:
    """`key` is None for what has none, such as entries without the label."""

    key: str | None
    amount_micros: int
    paid_time: timedelta


@dataclass(frozen=True, slots=True)
class Spend:
    total_micros: int
    paid_time: timedelta
    groups: Sequence[Group]


@dataclass(frozen=True, slots=True)
class Cell:
    """What one group cost on one day."""

    day: date
    key: str | None
    amount_micros: int


@dataclass(frozen=True, slots=True)
class Summary:
    """A month so far. `open_entries` differs after every entry that begins, ends or is cut."""

    burn_e5: int
    spent_micros: int
    forecast_micros: int
    open_entries: tuple[int, int]


@dataclass(frozen=True, slots=True)
class InstanceSpend:
    total_micros: int
    run_micros: int
    month_micros: int


OF_TOKEN = "(CAST(:token_id AS uuid) IS NULL OR token_id = CAST(:token_id AS uuid))"
CONDITIONS = f"""
    project_id = CAST(:project_id AS uuid)
    AND (CAST(:instance_ids AS uuid[]) IS NULL OR instance_id = ANY(CAST(:instance_ids AS uuid[])))
    AND (CAST(:labels AS jsonb) IS NULL OR labels @> CAST(:labels AS jsonb))
    AND {OF_TOKEN}
"""
# The part of an entry that lies between two times, and what it costs: of a closed entry pro rata.
PIECE = """
    greatest(0, extract(epoch FROM least(coalesce(ended_at, now), {until}) - greatest(began_at, {since}))) AS seconds
"""
PIECE_AMOUNT = """
    CASE WHEN ended_at IS NULL THEN price_e5 * 10 * seconds / 3600
         WHEN ended_at > began_at THEN amount_micros * seconds / extract(epoch FROM ended_at - began_at) END
"""
# An entry that is not cut at midnight yet. As an array: of the series itself PostgreSQL expects a thousand days, and
# starts parallel workers for them, which takes longer than the rest.
DAYS = """
    LATERAL (SELECT day, day + interval '24 hours' AS next_day
             FROM unnest(ARRAY(SELECT generate_series(date_trunc('day', began_at, 'UTC'), coalesce(ended_at, now),
                                                      interval '24 hours'))) AS each (day)) AS days
"""
# A closed entry that lies between the two times and in one day: it needs no division.
WHOLE = """
    began_at >= :since AND ended_at > began_at
    AND ended_at <= least(CAST(:until AS timestamptz), date_trunc('day', began_at, 'UTC') + interval '24 hours')
"""
DIMENSIONS = "instance_id, token_id, labels, product_name, region"
# Whole days are read from their sums. Summed entries are read only for the days at both ends that are not whole, and
# every entry that is not summed is read by itself.
PIECES = (
    f"""
    SELECT day, {DIMENSIONS}, amount_micros AS amount, paid_us AS us
    FROM cost_day
    WHERE {CONDITIONS}
      AND day >= CAST(CAST(:whole_from AS timestamptz) AT TIME ZONE 'UTC' AS date)
      AND day < CAST(CAST(:whole_until AS timestamptz) AT TIME ZONE 'UTC' AS date)
    """,
    f"""
    SELECT CAST(began_at AT TIME ZONE 'UTC' AS date) AS day, {DIMENSIONS}, {PIECE_AMOUNT} AS amount,
           seconds * 1000000 AS us
    FROM clock_timestamp() AS now, cost_entry,
         LATERAL (SELECT {PIECE.format(since=":since", until=":until")}) AS piece
    WHERE {CONDITIONS} AND is_summed AND seconds > 0
      AND ((began_at >= :first_day AND began_at < least(:whole_from, CAST(:until AS timestamptz)))
           OR (began_at >= greatest(:whole_until, :whole_from) AND began_at < :until))
    """,
    f"""
    SELECT CAST(began_at AT TIME ZONE 'UTC' AS date) AS day, {DIMENSIONS}, amount_micros AS amount,
           extract(epoch FROM ended_at - began_at) * 1000000 AS us
    FROM cost_entry
    WHERE {CONDITIONS} AND NOT is_summed AND {WHOLE}
    """,
    f"""
    SELECT CAST(days.day AT TIME ZONE 'UTC' AS date) AS day, {DIMENSIONS}, {PIECE_AMOUNT} AS amount,
           seconds * 1000000 AS us
    FROM clock_timestamp() AS now, cost_entry, {DAYS},
         LATERAL (SELECT {PIECE.format(since="greatest(day, :since)", until="least(next_day, :until)")}) AS piece
    WHERE {CONDITIONS} AND NOT is_summed AND ({WHOLE}) IS NOT TRUE AND seconds > 0
      AND began_at < :until AND coalesce(ended_at, now) > :since
    """,
)
KEYS = {
    SpendGroup.DAY: "day",
    SpendGroup.INSTANCE: "instance_id",
    SpendGroup.PRODUCT: "product_name",
    SpendGroup.REGION: "region",
    SpendGroup.TOKEN: "token_id",
    SpendGroup.LABEL: "labels ->> CAST(:label_key AS text)",
}
GROUPED = """
    SELECT CAST(part.key AS text) AS key, CAST(round(coalesce(sum(amount), 0)) AS bigint) AS amount,
           CAST(trunc(sum(us)) AS bigint) AS us, CAST(round(sum(sum(amount)) OVER ()) AS bigint) AS total,
           CAST(trunc(sum(sum(us)) OVER ()) AS bigint) AS total_us
    FROM ({parts}) AS part
    GROUP BY part.key ORDER BY {order} LIMIT :limit
"""
# Grouped first each by itself: whole days are most of the rows, and sums of integers are fast.
PART = "SELECT {key} AS key, sum(amount) AS amount, sum(us) AS us FROM ({piece}) AS piece GROUP BY 1"
# The largest groups only: their number bounds that of the cells. Groups of equal amount have different ranks.
BY_DAY = """
    SELECT day, CAST(key AS text) AS key, round(amount) AS amount
    FROM (SELECT day, key, amount, dense_rank() OVER (ORDER BY of_key DESC, key) AS rank
          FROM (SELECT part.day, part.key, sum(part.amount) AS amount,
                       sum(sum(part.amount)) OVER (PARTITION BY part.key) AS of_key
                FROM ({parts}) AS part GROUP BY part.day, part.key) AS cell) AS ranked
    WHERE rank <= :limit ORDER BY day, rank
"""
DAY_PART = "SELECT day, {key} AS key, sum(amount) AS amount FROM ({piece}) AS piece GROUP BY 1, 2"
# A month begins at midnight, and no entry is in the future.
OF_PROJECTS = text(f"""
    WITH piece AS (
        SELECT project_id, CAST(amount_micros AS numeric) AS amount, CAST(NULL AS bigint) AS open_id,
               CAST(NULL AS bigint) AS open_price
        FROM cost_day WHERE {OF_TOKEN} AND project_id = ANY(:ids) AND day >= CAST(:month AS date)
        UNION ALL
        SELECT project_id, {PIECE_AMOUNT}, NULL, NULL
        FROM clock_timestamp() AS now, cost_entry, {DAYS},
             LATERAL (SELECT {PIECE.format(since="day", until="next_day")}) AS piece
        WHERE {OF_TOKEN} AND project_id = ANY(:ids) AND NOT is_summed
          AND CAST(day AT TIME ZONE 'UTC' AS date) >= CAST(:month AS date)
        UNION ALL
        SELECT project_id, NULL, id, price_e5 FROM cost_entry
        WHERE {OF_TOKEN} AND project_id = ANY(:ids) AND NOT is_summed AND ended_at IS NULL
    )
    SELECT project_id, round(coalesce(sum(amount), 0)), coalesce(sum(open_price), 0), count(open_id),
           coalesce(max(open_id), 0)
    FROM piece GROUP BY project_id
""")
OF_INSTANCES = text(f"""
    WITH piece AS (
        SELECT instance_id, CAST(amount_micros AS numeric) AS amount, day >= CAST(:month AS date) AS is_of_month,
               false AS is_of_run
        FROM cost_day WHERE instance_id = ANY(:ids)
        UNION ALL
        SELECT instance_id, {PIECE_AMOUNT}, CAST(day AT TIME ZONE 'UTC' AS date) >= CAST(:month AS date), false
        FROM clock_timestamp() AS now, cost_entry, {DAYS},
             LATERAL (SELECT {PIECE.format(since="day", until="next_day")}) AS piece
        WHERE instance_id = ANY(:ids) AND NOT is_summed
        UNION ALL
        SELECT entry.instance_id, {PIECE_AMOUNT}, NULL, true
        FROM clock_timestamp() AS now, unnest(CAST(:ids AS uuid[])) AS wanted (id),
             LATERAL (SELECT run_began_at FROM cost_entry WHERE instance_id = wanted.id
                      ORDER BY began_at DESC LIMIT 1) AS run,
             LATERAL (SELECT * FROM cost_entry WHERE instance_id = wanted.id AND began_at >= run.run_began_at) AS entry,
             LATERAL (SELECT {PIECE.format(since="'-infinity'", until="'infinity'")}) AS piece
    )
    SELECT instance_id, round(coalesce(sum(amount) FILTER (WHERE NOT is_of_run), 0)),
           round(coalesce(sum(amount) FILTER (WHERE is_of_run), 0)),
           round(coalesce(sum(amount) FILTER (WHERE is_of_month), 0))
    FROM piece GROUP BY instance_id
""")


async def read_spend(
    session: AsyncSession, scope: SpendScope, *, group: SpendGroup, label_key: str | None = None
) -> Spend:
    """The largest groups, or the first days; the total is that of all."""
    order = "1" if group is SpendGroup.DAY else "2 DESC, 1"
    parts = " UNION ALL ".join(PART.format(key=KEYS[group], piece=piece) for piece in PIECES)
    statement = text(GROUPED.format(parts=parts, order=order))
    rows = (await session.execute(statement, {**scope.parameters(), "label_key": label_key, "limit": GROUPS_MAX})).all()
    groups = [Group(key, amount, _time(us)) for key, amount, us, _, _ in rows]
    if not rows:
        return Spend(0, timedelta(0), groups)
    return Spend(rows[0].total or 0, _time(rows[0].total_us), groups)


async def read_days(
    session: AsyncSession, scope: SpendScope, *, group: SpendGroup, label_key: str | None, limit: int
) -> list[Cell]:
    """What each of the largest groups cost on each day, days in order, the largest group first."""
    parts = " UNION ALL ".join(DAY_PART.format(key=KEYS[group], piece=piece) for piece in PIECES)
    given = {**scope.parameters(), "label_key": label_key, "limit": limit}
    rows = await session.execute(text(BY_DAY.format(parts=parts)), given)
    return [Cell(row.day, row.key, int(row.amount or 0)) for row in rows]


async def read_summaries(
    session: AsyncSession, project_ids: Sequence[UUID], *, token_id: UUID | None = None
) -> dict[UUID, Summary]:
    """This month in UTC, or only what a token's runs cost. The forecast is: what was spent, and the present machines
    until the month's end."""
    moment = await _database_time(session)
    month = month_of(moment)
    hours_left = ((month + timedelta(days=32)).replace(day=1) - moment) / timedelta(hours=1)
    rows = await session.execute(OF_PROJECTS, {"ids": list(project_ids), "month": month.date(), "token_id": token_id})
    found = dict.fromkeys(project_ids, Summary(0, 0, 0, (0, 0)))
    for project_id, spent, burn, count, newest in rows:
        forecast = int(spent) + round(int(burn) * 10 * hours_left)
        found[project_id] = Summary(int(burn), int(spent), forecast, (int(count), int(newest)))
    return found


async def read_instances(session: AsyncSession, ids: Sequence[UUID]) -> dict[UUID, InstanceSpend]:
    """Instances that never had an entry are left out."""
    moment = await _database_time(session)
    rows = await session.execute(OF_INSTANCES, {"ids": list(ids), "month": month_of(moment).date()})
    return {row[0]: InstanceSpend(int(row[1]), int(row[2]), int(row[3])) for row in rows}


async def _database_time(session: AsyncSession) -> datetime:
    return (await session.execute(text("SELECT clock_timestamp()"))).scalar_one()


def month_of(moment: datetime) -> datetime:
    return midnight(moment).replace(day=1)


def midnight(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def _time(microseconds: Any) -> timedelta:
    return timedelta(microseconds=int(microseconds or 0))
