"""When capacity will probably be there: from the gaps between the times at which it came before."""

from datetime import datetime

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from server.market.waits import Needs

# The beginnings of availability of all offers that fit, merged; the last 50 of them.
GAP = text("""
    SELECT clock_timestamp() + percentile_cont(0.5) WITHIN GROUP (ORDER BY gap)
    FROM (
        SELECT at - lag(at) OVER (ORDER BY at) AS gap FROM (
            SELECT at FROM (
                SELECT at, is_available,
                       lag(is_available) OVER (PARTITION BY region, product_id, mode ORDER BY at, id) AS was_available
                FROM offer_change
                WHERE product_name = :product_name AND gpu_count = :gpu_count
                  AND region = ANY(CAST(:regions AS text[])) AND mode = ANY(CAST(:modes AS text[]))
                  AND (CAST(:product_id AS text) IS NULL OR product_id = :product_id)
            ) AS change
            WHERE is_available AND was_available IS NOT TRUE
            ORDER BY at DESC LIMIT 50
        ) AS begin
    ) AS gaps
    WHERE gap IS NOT NULL
""")


async def next_offer_at(session: AsyncSession, needs: Needs) -> datetime | None:
    """Now, plus the median gap; None if such an offer has not come at least twice."""
    values = {
        "product_name": needs.product_name,
        "gpu_count": needs.gpu_count,
        "regions": list(needs.regions),
        "modes": list(needs.modes),
        "product_id": needs.product_id,
    }
    return (await session.execute(GAP, values)).scalar_one_or_none()
