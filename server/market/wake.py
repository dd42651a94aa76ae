"""Wakes operations that wait, in the transaction that writes what they wait for.

One advisory lock covers every change of `capacity_wait`: each wake-up sees what is awake, and no change of an offer is
missed between the last look of an operation and its sleep. It is taken after the locks of instances and of segments.
"""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession
from structlog.contextvars import bound_contextvars

from server.queue.enqueue import enqueue
from server.queue.kinds import from_args

# How many machines the provider's words for its stock stand for at least. A poll wakes so many for one offer; whatever
# follows is woken one by one, so that only the last one is refused: a word says nothing about what is left after them.
WAKE_COUNT: Mapping[str | None, int] = {"low": 1, "normal": 2, "high": 4}
LOCK_ID = 7_231_046_118
LOCK = text("SELECT pg_advisory_xact_lock(:id)")

# An operation that waits, and an offer.
SUITS = """
    waiting.product_name = offer.product_name AND waiting.gpu_count = offer.gpu_count
    AND offer.region = ANY(waiting.regions) AND offer.mode = ANY(waiting.modes)
    AND (waiting.product_id IS NULL OR waiting.product_id = offer.product_id)
    AND (waiting.rootfs_size_gb IS NULL
         OR waiting.rootfs_size_gb BETWEEN coalesce(CAST(offer.product ->> 'min_rootfs_gb' AS bigint), 0)
            AND coalesce(CAST(offer.product ->> 'max_rootfs_gb' AS bigint), waiting.rootfs_size_gb))
    AND NOT waiting.unfit @> to_jsonb(concat_ws(' ', offer.region, offer.product_id, offer.mode))
    AND offer.price_e5 IS NOT NULL AND offer.is_listed
"""
IS_CHEAP = "(waiting.max_price_e5 IS NULL OR offer.price_e5 <= waiting.max_price_e5)"
# A start that its host has refused is tried again after a while, or when its offer has changed. Nothing is blocked for
# longer than minutes: a later end was written before the clock was set back.
IS_ADMITTED = """
    (waiting.blocked_until IS NULL OR waiting.blocked_until <= clock_timestamp()
     OR waiting.blocked_until > clock_timestamp() + interval '10 minutes' OR offer.changed_at > waiting.refused_at)
"""
FITS = f"{SUITS} AND {IS_CHEAP} AND {IS_ADMITTED}"
IS_ASLEEP = "waiting.job_id IS NULL"  # one whose time is over ends when it is woken

FREE = text(f"""
    SELECT region, product_id, mode, inventory,
           (SELECT count(*) FROM capacity_wait AS awake
            WHERE EXISTS (SELECT FROM job WHERE job.id = awake.job_id)
              AND awake.offer_region = offer.region AND awake.offer_mode = offer.mode
              AND awake.offer_product_id = offer.product_id AND awake.gpu_count = offer.gpu_count) AS awake
    FROM offer
    WHERE is_available AND gpu_count = :gpu_count
      AND (CAST(:product_name AS text) IS NULL OR product_name = :product_name)
      AND (CAST(:region AS text) IS NULL OR region = :region) AND (CAST(:mode AS text) IS NULL OR mode = :mode)
      AND EXISTS (SELECT FROM capacity_wait AS waiting WHERE {FITS} AND {IS_ASLEEP})
    ORDER BY price_e5, region, product_id, mode
""")
# Projects in turn, the one that was served longest ago first; one that has operations awake has had its turn. Within a
# project by priority, then by time.
CHOOSE = text(f"""
    WITH fitting AS (
        SELECT waiting.*, min(since) OVER (PARTITION BY waiting.project_id) AS first_since,
               row_number() OVER (PARTITION BY waiting.project_id
                                  ORDER BY waiting.priority DESC, waiting.since, waiting.operation_id) AS nth
        FROM capacity_wait AS waiting, offer
        WHERE offer.region = :region AND offer.product_id = :product_id AND offer.mode = :mode
          AND offer.gpu_count = :gpu_count AND {FITS} AND {IS_ASLEEP}
    ), awake AS (
        SELECT project_id, count(*) AS jobs FROM capacity_wait WHERE job_id IS NOT NULL GROUP BY project_id
    )
    SELECT operation_id, project_id, instance_id, kind, args::text
    FROM fitting LEFT JOIN awake USING (project_id) LEFT JOIN capacity_turn USING (project_id)
    ORDER BY nth + coalesce(awake.jobs, 0), served NULLS FIRST, first_since, project_id
    LIMIT :places
""")
MARK_AWAKE = text("""
    UPDATE capacity_wait
    SET job_id = :job_id, offer_region = :region, offer_product_id = :product_id, offer_mode = :mode,
        woken_at = clock_timestamp()
    WHERE operation_id = :operation_id
""")


async def lock(session: AsyncSession) -> None:
    """No other transaction changes what waits until this one ends."""
    await session.execute(LOCK, {"id": LOCK_ID})


async def wake(
    session: AsyncSession,
    *,
    gpu_count: int,
    product_name: str | None = None,
    region: str | None = None,
    mode: str | None = None,
    is_polled: bool = False,
) -> int:
    """Wake the first operations that fit the available offers; returns how many.

    `is_polled`: the offers have just been read from the provider; else one is awake for each at most.
    """
    await lock(session)
    where = {"gpu_count": gpu_count, "product_name": product_name, "region": region, "mode": mode}
    woken = 0
    for offer in (await session.execute(FREE, where)).all():
        places = (WAKE_COUNT.get(offer.inventory, 1) if is_polled else 1) - offer.awake
        if places <= 0:
            continue
        key = {"region": offer.region, "product_id": offer.product_id, "mode": offer.mode}
        for first in (await session.execute(CHOOSE, {**key, "gpu_count": gpu_count, "places": places})).all():
            await run_job(session, first, key)
            woken += 1
    return woken


async def run_job(session: AsyncSession, waiting: Any, offer: Mapping[str, str | None]) -> None:
    """Enqueue the job of an operation that waits; it belongs to that operation until it falls asleep again."""
    with bound_contextvars(operation_id=waiting.operation_id):
        job_id = await enqueue(
            session,
            from_args(waiting.kind, waiting.args),
            project_id=waiting.project_id,
            instance_id=waiting.instance_id,
        )
    await session.execute(MARK_AWAKE, {**offer, "operation_id": waiting.operation_id, "job_id": job_id})
