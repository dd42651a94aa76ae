"""The share of the provider's rate limit that reading metrics may use, for all processes together."""

from datetime import datetime, timedelta

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

# One row: each reading takes the next free time after the one before it.
RESERVE = text("""
    INSERT INTO metrics_reading (only_row, next_at) VALUES (true, clock_timestamp() + CAST(:gap AS interval))
    ON CONFLICT (only_row) DO UPDATE
    SET next_at = greatest(metrics_reading.next_at, clock_timestamp()) + CAST(:gap AS interval)
    RETURNING next_at - CAST(:gap AS interval)
""")


async def reserve_reading(session: AsyncSession, *, calls_per_minute: float) -> datetime | None:
    """When this reading may be made; None without a rate limit: at once."""
    if not calls_per_minute:
        return None
    gap = timedelta(minutes=1) / calls_per_minute
    return (await session.execute(RESERVE, {"gap": gap})).scalar_one()
