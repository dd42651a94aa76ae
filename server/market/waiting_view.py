"""What callers see of operations that wait: their place in the project, what blocks them, and which offers fit."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from server.db.pool import RawPool
from server.market.wake import IS_CHEAP, SUITS


class WaitBlocker(StrEnum):
    CAPACITY = "CAPACITY"
    PRICE = "PRICE"
    BUDGET = "BUDGET"
    QUOTA = "QUOTA"
    QUEUE = "QUEUE"
    OTHER = "OTHER"


@dataclass(frozen=True, slots=True)
class WaitedOffer:
    """An offer that would fit. `last_available_at`: when it was last seen available; None: never."""

    region: str
    mode: str
    price_e5: int
    last_available_at: datetime | None


@dataclass(frozen=True, slots=True)
class CapacityWaitView:
    since: datetime
    until: datetime
    priority: int
    ahead: int
    tries: int
    blocked_by: WaitBlocker
    last_polled_at: datetime | None
    offers: list[WaitedOffer] = field(default_factory=list[WaitedOffer])


# Only operations of the same project count, and those that wait for the same product.
READ = f"""
    SELECT operation_id, since, until, priority, tries, blocked_by, refused_at IS NOT NULL AS is_host_full,
           (SELECT count(*) FROM capacity_wait AS other
            WHERE other.project_id = waiting.project_id AND other.product_name = waiting.product_name
              AND other.gpu_count = waiting.gpu_count
              AND (-other.priority, other.since, other.operation_id)
                  < (-waiting.priority, waiting.since, waiting.operation_id)) AS ahead,
           (SELECT max(seen_at) FROM market_segment
            WHERE gpu_count = waiting.gpu_count AND region = ANY(waiting.regions) AND mode = ANY(waiting.modes))
               AS last_polled_at,
           (SELECT bool_or({IS_CHEAP}) FROM offer WHERE {SUITS} AND offer.is_available) AS is_cheap
    FROM capacity_wait AS waiting
    WHERE operation_id = ANY($1::uuid[]) AND project_id = $2
"""
READ_OFFERS = f"""
    SELECT operation_id, offer.region, offer.mode, offer.price_e5,
           CASE WHEN offer.is_available THEN offer.seen_at ELSE (
               SELECT min(ended.at) FROM offer_change AS ended
               WHERE ended.product_name = offer.product_name AND ended.region = offer.region
                 AND ended.mode = offer.mode AND ended.gpu_count = offer.gpu_count
                 AND ended.product_id = offer.product_id AND NOT ended.is_available
                 AND ended.at >= (
                     SELECT max(begun.at) FROM offer_change AS begun
                     WHERE begun.product_name = offer.product_name AND begun.region = offer.region
                       AND begun.mode = offer.mode AND begun.gpu_count = offer.gpu_count
                       AND begun.product_id = offer.product_id AND begun.is_available)
           ) END AS last_available_at
    FROM capacity_wait AS waiting JOIN offer ON {SUITS}
    WHERE operation_id = ANY($1::uuid[]) AND project_id = $2
    ORDER BY offer.price_e5, offer.region, offer.mode
"""


async def read_waits(pool: RawPool, operation_ids: Sequence[UUID], *, project_id: UUID) -> dict[UUID, CapacityWaitView]:
    """By operation; those that do not wait are missing."""
    found = {
        row["operation_id"]: CapacityWaitView(
            since=row["since"],
            until=row["until"],
            priority=row["priority"],
            ahead=row["ahead"],
            tries=row["tries"],
            blocked_by=_blocker(row["blocked_by"], None if row["is_host_full"] else row["is_cheap"]),
            last_polled_at=row["last_polled_at"],
        )
        for row in await pool.fetch_by_keys(READ, operation_ids, project_id)
    }
    if found:
        for row in await pool.fetch_by_keys(READ_OFFERS, list(found), project_id):
            if row["operation_id"] in found:
                offer = WaitedOffer(row["region"], row["mode"], row["price_e5"], row["last_available_at"])
                found[row["operation_id"]].offers.append(offer)
    return found


def _blocker(stored: str | None, is_cheap: bool | None) -> WaitBlocker:
    """`is_cheap`: whether one of the available offers is not too expensive; None: none is available."""
    if stored is not None:
        return WaitBlocker(stored) if stored in set(WaitBlocker) else WaitBlocker.OTHER
    if is_cheap is None:
        return WaitBlocker.CAPACITY
    return WaitBlocker.QUEUE if is_cheap else WaitBlocker.PRICE
