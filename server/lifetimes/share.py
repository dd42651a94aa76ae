"""The share of the provider's rate limit that reading metrics may use, for all processes together."""

from datetime import datetime, timedelta

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.tables import Instance

# So much less may lie between two calls than between the two times at which they were allowed.
JITTER = timedelta(seconds=1)
# One row: the time before which no process may read. It is taken only when it has passed, never in advance, so readings
# that are late together do not come together. One that lies further ahead was written before the clock was set back.
TAKE = text("""
    INSERT INTO metrics_reading (only_row, next_at) VALUES (true, clock_timestamp() + CAST(:gap AS interval))
    ON CONFLICT (only_row) DO UPDATE SET next_at = clock_timestamp() + CAST(:gap AS interval)
    WHERE metrics_reading.next_at <= clock_timestamp()
       OR metrics_reading.next_at > clock_timestamp() + CAST(:gap AS interval) + interval '10 min'
    RETURNING next_at
""")
# The others that wait and were due before.
PLACE = text("""
    SELECT next_at + CAST(:gap AS interval) * (
        SELECT count(*) FROM instance
        WHERE lifetime_due_at <= :due AND (lifetime_due_at, id) < (:due, :id) AND lifetime_state ? 'read_at'
    ) FROM metrics_reading
""")


async def take_reading(session: AsyncSession, instance: Instance, *, calls_per_minute: float) -> datetime | None:
    """None if the metrics of a due instance may be read now; else when to ask again."""
    if not calls_per_minute:
        return None
    gap = (timedelta(minutes=1) + JITTER) / calls_per_minute
    if (await session.execute(TAKE, {"gap": gap})).scalar_one_or_none() is not None:
        return None
    place = {"gap": gap, "due": instance.lifetime_due_at, "id": instance.id}
    return (await session.execute(PLACE, place)).scalar_one()
