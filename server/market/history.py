"""How prices and stock were: buckets of a time, and for how long an offer was available."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.pool import RawPool
from server.market.tape import OfferKey

BUCKETS_MAX = 1000
SHOWN_FOR = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Bucket:
    """Prices are the lowest of all products of the name; None while none was available. `last` is that at its end."""

    begin: datetime
    min_e5: int | None
    max_e5: int | None
    last_e5: int | None
    available_for: timedelta


@dataclass(frozen=True, slots=True)
class Availability:
    """For how long an offer was available in a time, and when it last was; `last_at` None: never, as far as known."""

    length: timedelta = timedelta(0)
    last_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class OfferChange:
    product_id: str
    price_e5: int | None
    is_available: bool
    at: datetime


OF_OFFER = "product_name = :product_name AND region = :region AND mode = :mode AND gpu_count = :gpu_count"
# Of each product, also the state in which the time begins. Each product is found by one look into the index, and so is
# its last change before that time: DISTINCT would read all changes that are kept.
READ_CHANGES = text(f"""
    WITH RECURSIVE product (id) AS (
        SELECT min(product_id) FROM offer_change WHERE {OF_OFFER}
        UNION ALL
        SELECT (SELECT min(product_id) FROM offer_change WHERE {OF_OFFER} AND product_id > product.id)
        FROM product WHERE id IS NOT NULL
    )
    SELECT change.* FROM product, LATERAL (
        (SELECT product_id, price_e5, is_available, at FROM offer_change
         WHERE {OF_OFFER} AND product_id = product.id AND at <= :since
         ORDER BY at DESC, offer_change.id DESC LIMIT 1)
        UNION ALL
        SELECT product_id, price_e5, is_available, at FROM offer_change
        WHERE {OF_OFFER} AND product_id = product.id AND at > :since AND at < :until
    ) AS change
    ORDER BY at
""")
# A state lasts until the next change of the same offer. One query for many offers.
AVAILABILITY = text("""
    WITH wanted AS (
        SELECT * FROM unnest(CAST(:names AS text[]), CAST(:regions AS text[]), CAST(:ids AS text[]),
                             CAST(:modes AS text[]), CAST(:counts AS smallint[])) WITH ORDINALITY
            AS each (product_name, region, product_id, mode, gpu_count, place)
    ), state AS (
        SELECT wanted.place, is_available, at,
               coalesce(lead(at) OVER (PARTITION BY wanted.place ORDER BY at, id), clock_timestamp()) AS ended_at
        FROM wanted JOIN offer_change USING (product_name, region, product_id, mode, gpu_count)
    )
    SELECT place, max(ended_at) AS last_at, coalesce(
               sum(ended_at - greatest(at, clock_timestamp() - CAST(:period AS interval)))
               FILTER (WHERE ended_at > clock_timestamp() - CAST(:period AS interval)), interval '0') AS length
    FROM state
    WHERE is_available
    GROUP BY place
""")
PRUNE = """
    DELETE FROM offer_change WHERE id = ANY(ARRAY(
        SELECT id FROM offer_change AS change
        WHERE at < clock_timestamp() - $1::interval
          -- The last one before that time says how the offer was when the time began.
          AND EXISTS (SELECT FROM offer_change AS later
                      WHERE later.product_name = change.product_name AND later.region = change.region
                        AND later.mode = change.mode AND later.gpu_count = change.gpu_count
                        AND later.product_id = change.product_id
                        AND (later.at, later.id) > (change.at, change.id)
                        AND later.at < clock_timestamp() - $1::interval)
        ORDER BY at LIMIT $2
    ))
"""


async def read_buckets(
    session: AsyncSession,
    *,
    product_name: str,
    region: str,
    mode: str,
    gpu_count: int,
    since: datetime,
    until: datetime,
    length: timedelta,
) -> list[Bucket]:
    """The time from `since` to `until` in parts of `length`; the last one may be shorter."""
    rows = await session.execute(
        READ_CHANGES,
        {
            "product_name": product_name,
            "region": region,
            "mode": mode,
            "gpu_count": gpu_count,
            "since": since,
            "until": until,
        },
    )
    changes = [OfferChange(row.product_id, row.price_e5, row.is_available, row.at) for row in rows]
    return buckets_of(changes, since=since, until=until, length=length)


def buckets_of(changes: Sequence[OfferChange], *, since: datetime, until: datetime, length: timedelta) -> list[Bucket]:
    """`changes` are in order and begin with the states at `since`."""
    state: dict[str, int] = {}
    left = list(reversed(changes))
    found: list[Bucket] = []
    begin = since
    while begin < until:
        while left and left[-1].at <= begin:
            _apply(state, left.pop())
        end = min(begin + length, until)
        lowest, available, at = [min(state.values())] if state else [], timedelta(0), begin
        while left and left[-1].at < end:
            change = left.pop()
            available += (change.at - at) if state else timedelta(0)
            at = change.at
            _apply(state, change)
            lowest += [min(state.values())] if state else []
        available += (end - at) if state else timedelta(0)
        last = min(state.values()) if state else None
        found.append(Bucket(begin, min(lowest, default=None), max(lowest, default=None), last, available))
        begin = end
    return found


def _apply(state: dict[str, int], change: OfferChange) -> None:
    """The prices of what is available."""
    state.pop(change.product_id, None)
    if change.is_available and change.price_e5 is not None:
        state[change.product_id] = change.price_e5


async def read_availability(
    session: AsyncSession, offers: Mapping[OfferKey, str], *, period: timedelta = SHOWN_FOR
) -> dict[OfferKey, Availability]:
    """Of each offer, in the last `period`; the names of their products are given."""
    keys = list(offers)
    values: dict[str, Any] = {
        "names": [offers[key] for key in keys],
        "regions": [key.region for key in keys],
        "ids": [key.product_id for key in keys],
        "modes": [key.mode for key in keys],
        "counts": [key.gpu_count for key in keys],
        "period": period,
    }
    rows = await session.execute(AVAILABILITY, values)
    found = {int(row.place): Availability(row.length, row.last_at) for row in rows}
    return {key: found.get(place, Availability()) for place, key in enumerate(keys, start=1)}


async def prune_changes(pool: RawPool, *, older_than: timedelta, limit: int) -> int:
    """Delete old changes; returns their number."""
    return int((await pool.execute(PRUNE, older_than, limit)).rsplit(" ", 1)[1])
