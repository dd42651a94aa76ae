"""Sums closed entries by instance and day, so that a month of many entries is read quickly."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.pool import RawPool

SUM_AT_ONCE = 5_000  # entries per statement
AMOUNT = "round(price_e5 * 10 * extract(epoch FROM {1} - {0}) / 3600)"

ADD_TO_DAYS = """
    INSERT INTO cost_day (project_id, day, instance_id, token_id, labels, product_name, region,
                          amount_micros, paid_us)
    SELECT project_id, (began_at AT TIME ZONE 'UTC')::date AS day, instance_id, token_id, labels, product_name,
           region, {sign}sum(coalesce(amount_micros, 0)), {sign}sum(extract(epoch FROM ended_at - began_at) * 1000000)
    FROM {entries}
    GROUP BY project_id, day, instance_id, token_id, labels, product_name, region
    ORDER BY project_id, day, instance_id, token_id, labels, product_name, region
    ON CONFLICT (project_id, day, instance_id, token_id, md5(labels::text), product_name, region)
    DO UPDATE SET amount_micros = cost_day.amount_micros + excluded.amount_micros,
                  paid_us = cost_day.paid_us + excluded.paid_us
"""
# An entry is counted in its day or by itself, never in both: one statement moves it. The order, and an array instead of
# a join, make PostgreSQL use indexes although it believes that a share of all entries is to be summed.
SUM = f"""
    WITH moved AS (
        UPDATE cost_entry SET is_summed = true
        WHERE id = ANY(ARRAY(
            SELECT id FROM cost_entry WHERE NOT is_summed AND ended_at IS NOT NULL
            ORDER BY ended_at LIMIT {SUM_AT_ONCE}
            FOR NO KEY UPDATE SKIP LOCKED
        ))
        RETURNING cost_entry.*
    ), summed AS ({ADD_TO_DAYS.format(sign="", entries="moved")})
    SELECT count(*) FROM moved
"""
TAKE_BACK = text(f"""
    WITH late AS MATERIALIZED (
        SELECT *, greatest(began_at, CAST(:since AS timestamptz)) AS over_at FROM cost_entry
        WHERE instance_id = :instance_id AND machine = CAST(:machine AS text)
          AND run_began_at < CAST(:since AS timestamptz) AND ended_at > CAST(:since AS timestamptz)
        FOR NO KEY UPDATE
    ), unsummed AS ({ADD_TO_DAYS.format(sign="-", entries="late WHERE is_summed")}), amounts AS (
        SELECT id, over_at, {AMOUNT.format("began_at", "over_at")} AS amount FROM late
    )
    UPDATE cost_entry SET ended_at = over_at, amount_micros = amount, is_summed = false
    FROM amounts WHERE cost_entry.id = amounts.id
""")


async def sum_entries(pool: RawPool) -> None:
    """Several processes at once take different entries. Killed at any point, the next run goes on."""
    while (await pool.fetch(SUM))[0][0] == SUM_AT_ONCE:
        pass


async def take_back(session: AsyncSession, instance_id: UUID, machine: object, *, since: datetime | None) -> None:
    """A run was over before the end that the ledger has: it was cut, or ended, before the provider showed that.

    What was summed leaves its day, and is summed again.
    """
    await session.execute(TAKE_BACK, {"instance_id": instance_id, "machine": machine, "since": since})
