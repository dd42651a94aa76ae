"""Writes the tape: what a poll of a segment or a refusal of the provider says about its offers, as rows and changes."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
from pydantic import TypeAdapter
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.database import notify_after_commit
from server.db.tables import Attempt
from server.market.segments import SPOT, Segment
from server.market.wake import wake
from server.novita.models import Product

TOPIC = "market"
NONE = "none"  # the provider's word for no stock
PRODUCT: TypeAdapter[Product] = TypeAdapter(Product)


@dataclass(frozen=True, slots=True)
class OfferKey:
    region: str
    product_id: str
    mode: str
    gpu_count: int


# The segment's row is the lock of all its offers: polls, refusals and wake-ups of one segment come one by one.
LOCK_SEGMENT = text("""
    SELECT region FROM market_segment WHERE region = :region AND mode = :mode AND gpu_count = :gpu_count FOR UPDATE
""")
READ_OFFERS = text("""
    SELECT product_id, product_name, price_e5, is_available, inventory, is_listed, product, changed_at,
           changed_at > clock_timestamp() + interval '5 seconds' AS is_ahead
    FROM offer WHERE region = :region AND mode = :mode AND gpu_count = :gpu_count
""")
WRITE_OFFERS = text("""
    INSERT INTO offer (region, product_id, mode, gpu_count, product_name, price_e5, is_available, inventory, is_listed,
                       product, seen_at, changed_at)
    SELECT :region, product_id, :mode, :gpu_count, product_name, price_e5, is_available, inventory, is_listed,
           product, :at, :at
    FROM jsonb_to_recordset(CAST(:offers AS jsonb)) AS new (
        product_id text, product_name text, price_e5 bigint, is_available boolean, inventory text, is_listed boolean,
        product jsonb)
    ON CONFLICT (region, product_id, mode, gpu_count) DO UPDATE
    SET product_name = excluded.product_name, price_e5 = excluded.price_e5, is_available = excluded.is_available,
        inventory = excluded.inventory, is_listed = excluded.is_listed, product = excluded.product,
        changed_at = CASE WHEN (offer.price_e5, offer.is_available, offer.inventory)
                               IS DISTINCT FROM (excluded.price_e5, excluded.is_available, excluded.inventory)
                          THEN excluded.changed_at ELSE offer.changed_at END
""")
WRITE_CHANGES = text("""
    INSERT INTO offer_change (region, product_id, product_name, mode, gpu_count, price_e5, is_available, inventory, at)
    SELECT :region, product_id, product_name, :mode, :gpu_count, price_e5, is_available, inventory, :at
    FROM jsonb_to_recordset(CAST(:offers AS jsonb)) AS new (
        product_id text, product_name text, price_e5 bigint, is_available boolean, inventory text)
""")
# What a refusal has said since the poll began is newer; but not what was written before the clock was set back.
MARK_SEEN = text("""
    WITH seen AS (
        UPDATE offer SET seen_at = :at
        WHERE region = :region AND mode = :mode AND gpu_count = :gpu_count
          AND (seen_at < :at OR seen_at > clock_timestamp() + interval '5 seconds')
    )
    UPDATE market_segment SET seen_at = :at WHERE region = :region AND mode = :mode AND gpu_count = :gpu_count
""")
MARK_EMPTY = text("""
    WITH marked AS (
        UPDATE offer SET is_available = false, inventory = 'none', seen_at = clock_timestamp(),
                         changed_at = clock_timestamp()
        WHERE region = :region AND product_id = :product_id AND mode = :mode AND gpu_count = :gpu_count
          AND is_available
        RETURNING *
    ), ended AS (
        DELETE FROM market_alert_match
        WHERE region = :region AND product_id = :product_id AND mode = :mode AND gpu_count = :gpu_count
    )
    INSERT INTO offer_change (region, product_id, product_name, mode, gpu_count, price_e5, is_available, inventory, at)
    SELECT region, product_id, product_name, mode, gpu_count, price_e5, is_available, inventory, changed_at FROM marked
    RETURNING id
""")


def offer_of(attempt: Attempt, *, gpu_count: int) -> OfferKey:
    """The offer that an attempt would take."""
    return OfferKey(attempt.region, str(attempt.product_id), str(attempt.billing_mode), gpu_count)


def price_of(product: Product, mode: str, gpu_count: int) -> int | None:
    """Of the whole machine for an hour; None if it is not sold in this mode."""
    per_gpu = product.spot_price_per_gpu_hour_e5 if mode == SPOT else product.price_per_gpu_hour_e5
    return None if per_gpu is None else per_gpu * max(gpu_count, 1)


async def record_poll(
    session: AsyncSession, segment: Segment, products: Sequence[Product], *, at: datetime
) -> list[str]:
    """Write what a call that began at `at` listed; returns the ids of the products that changed.

    A product that is no longer listed is out of stock.
    """
    values: dict[str, Any] = {"region": segment.region, "mode": segment.mode, "gpu_count": segment.gpu_count}
    if (await session.execute(LOCK_SEGMENT, values)).first() is None:
        return []
    known = {row.product_id: row for row in await session.execute(READ_OFFERS, values)}
    seen = [_row(product, segment) for product in {product.id: product for product in products}.values()]
    listed = {row["product_id"] for row in seen}
    seen += [_missing(row) for row in known.values() if row.product_id not in listed and row.is_listed]
    current = [row for row in seen if _is_current(known.get(row["product_id"]), at)]
    changed = [row for row in current if _is_change(known.get(row["product_id"]), row)]
    written = [row for row in current if row in changed or _is_described_anew(known[row["product_id"]], row)]
    if written:
        await session.execute(WRITE_OFFERS, {**values, "at": at, "offers": orjson.dumps(written).decode()})
    if changed:
        changes = [{name: row[name] for name in CHANGE_FIELDS} for row in changed]
        await session.execute(WRITE_CHANGES, {**values, "at": at, "offers": orjson.dumps(changes).decode()})
        notify_after_commit(session, TOPIC)
    await session.execute(MARK_SEEN, {**values, "at": at})
    await wake(session, **values, is_polled=True)
    return [row["product_id"] for row in changed]


async def mark_empty(session: AsyncSession, key: OfferKey) -> bool:
    """The provider refused a create for lack of stock. False if the offer was not available before."""
    values = {"region": key.region, "mode": key.mode, "gpu_count": key.gpu_count}
    await session.execute(LOCK_SEGMENT, values)
    is_change = (await session.execute(MARK_EMPTY, {**values, "product_id": key.product_id})).first() is not None
    if is_change:
        notify_after_commit(session, TOPIC)
    return is_change


STATE = ("price_e5", "is_available", "inventory")
CHANGE_FIELDS = ("product_id", "product_name", *STATE)


def _row(product: Product, segment: Segment) -> dict[str, Any]:
    price = price_of(product, segment.mode, segment.gpu_count)
    return {
        "product_id": product.id,
        "product_name": product.name,
        "price_e5": price,
        "is_available": product.is_deployable and price is not None,
        "inventory": product.inventory,
        "is_listed": True,
        "product": PRODUCT.dump_python(product, mode="json"),
    }


def _missing(row: Any) -> dict[str, Any]:
    return {
        "product_id": row.product_id,
        "product_name": row.product_name,
        "price_e5": row.price_e5,
        "is_available": False,
        "inventory": NONE,
        "is_listed": False,
        "product": row.product,
    }


def _is_current(known: Any | None, at: datetime) -> bool:
    return known is None or known.changed_at <= at or known.is_ahead


def _is_change(known: Any | None, row: dict[str, Any]) -> bool:
    return known is None or any(getattr(known, name) != row[name] for name in STATE)


def _is_described_anew(known: Any, row: dict[str, Any]) -> bool:
    return known.product != row["product"] or known.is_listed != row["is_listed"]
