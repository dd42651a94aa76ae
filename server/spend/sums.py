"""Sums closed entries by instance and day, so that a month of many entries is read quickly."""

from server.db.pool import RawPool

SUM_AT_ONCE = 5_000  # entries per statement

# An entry is counted in its day or by itself, never in both: one statement moves it.
SUM = """
    WITH closed AS MATERIALIZED (
        SELECT id FROM cost_entry WHERE NOT is_summed AND ended_at IS NOT NULL
        LIMIT $1
        FOR NO KEY UPDATE SKIP LOCKED
    ), moved AS (
        UPDATE cost_entry SET is_summed = true FROM closed WHERE cost_entry.id = closed.id
        RETURNING cost_entry.*
    ), summed AS (
        INSERT INTO cost_day (project_id, day, instance_id, token_id, labels, product_name, region,
                              amount_micros, paid_us)
        SELECT project_id, (began_at AT TIME ZONE 'UTC')::date AS day, instance_id, token_id, labels, product_name,
               region, sum(coalesce(amount_micros, 0)), sum(extract(epoch FROM ended_at - began_at) * 1000000)
        FROM moved
        GROUP BY project_id, day, instance_id, token_id, labels, product_name, region
        ORDER BY project_id, day, instance_id, token_id, labels, product_name, region
        ON CONFLICT (project_id, day, instance_id, token_id, md5(labels::text), product_name, region)
        DO UPDATE SET amount_micros = cost_day.amount_micros + excluded.amount_micros,
                      paid_us = cost_day.paid_us + excluded.paid_us
    )
    SELECT count(*) FROM moved
"""


async def sum_entries(pool: RawPool) -> None:
    """Several processes at once take different entries. Killed at any point, the next run goes on."""
    while (await pool.fetch(SUM, SUM_AT_ONCE))[0][0] == SUM_AT_ONCE:
        pass
