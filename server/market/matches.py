"""Compares alerts with the offers of a segment, in the transaction of the poll that has seen them."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import format_id
from server.events.event import EventType
from server.events.outbox import append_project_event
from server.market.alerts import ID_PREFIX
from server.market.segments import Segment

MICROS_PER_E5 = 10

# One row for each pair of an alert and an offer that matches it, from the first poll that saw the match to the last.
# A match that began in the future was written before the clock was set back: it begins now.
UPDATE_MATCHES = text("""
    WITH matching AS (
        SELECT alert.id AS alert_id, offer.product_id
        FROM market_alert AS alert
        JOIN offer ON offer.region = :region AND offer.mode = :mode AND offer.gpu_count = alert.gpu_count
        WHERE alert.gpu_count = :gpu_count AND offer.is_available AND offer.is_listed
          AND (alert.regions IS NULL OR alert.regions ? CAST(:region AS text))
          AND (alert.modes IS NULL OR alert.modes ? CAST(:mode AS text))
          AND (alert.product_names IS NULL OR alert.product_names ? offer.product_name)
          AND (alert.price_at_most_e5 IS NULL OR offer.price_e5 <= alert.price_at_most_e5)
          AND (alert.expires_at IS NULL OR alert.expires_at > clock_timestamp())
    ), ended AS (
        DELETE FROM market_alert_match AS known
        WHERE region = :region AND mode = :mode AND gpu_count = :gpu_count
          AND NOT EXISTS (SELECT FROM matching
                          WHERE matching.alert_id = known.alert_id AND matching.product_id = known.product_id)
    ), begun_again AS (
        UPDATE market_alert_match AS known SET since = :at
        FROM matching
        WHERE region = :region AND mode = :mode AND gpu_count = :gpu_count
          AND since > CAST(:at AS timestamptz) + interval '1 hour'
          AND matching.alert_id = known.alert_id AND matching.product_id = known.product_id
    )
    INSERT INTO market_alert_match (alert_id, region, product_id, mode, gpu_count, since)
    SELECT alert_id, :region, product_id, :mode, :gpu_count, :at FROM matching ORDER BY alert_id, product_id
    ON CONFLICT DO NOTHING
""")
# The row of the alert is locked and marked: of two processes, the second finds that it has fired. A cooldown that began
# in the future is none.
LOCK_DUE = text("""
    SELECT alert.id FROM market_alert AS alert
    WHERE (alert.fired_at IS NULL OR alert.fired_at + alert.cooldown <= :at
           OR alert.fired_at > CAST(:at AS timestamptz) + interval '1 hour')
      AND EXISTS (
        SELECT FROM market_alert_match AS match
        WHERE match.alert_id = alert.id AND region = :region AND mode = :mode AND match.gpu_count = :gpu_count
          AND match.fired_at IS NULL AND since + alert.held_for <= :at)
    ORDER BY id FOR UPDATE
""")
FIRE = text("""
    WITH fired AS (
        UPDATE market_alert SET fired_at = :at WHERE id = ANY(CAST(:ids AS uuid[]))
        RETURNING id, project_id, webhook_url, held_for
    ), held AS (
        UPDATE market_alert_match AS match SET fired_at = :at
        FROM fired
        WHERE match.alert_id = fired.id AND region = :region AND mode = :mode AND match.gpu_count = :gpu_count
          AND match.fired_at IS NULL AND since + fired.held_for <= :at
        RETURNING alert_id, product_id
    )
    SELECT DISTINCT ON (fired.id) fired.id, fired.project_id, fired.webhook_url, offer.product_name, offer.price_e5,
           count(*) OVER (PARTITION BY fired.id) AS offers
    FROM fired JOIN held ON held.alert_id = fired.id
    JOIN offer ON offer.region = :region AND offer.product_id = held.product_id AND offer.mode = :mode
              AND offer.gpu_count = :gpu_count
    ORDER BY fired.id, offer.price_e5, offer.product_id
""")


@dataclass(frozen=True, slots=True)
class FiredAlert:
    """An alert whose event was written; `data` is that of the event."""

    event_id: UUID
    project_id: UUID
    webhook_url: str | None
    data: dict[str, Any]


async def fire_alerts(session: AsyncSession, segment: Segment, *, at: datetime) -> list[FiredAlert]:
    """Write the events of alerts that an offer of this segment, polled at `at`, matches for long enough.

    Call it under the lock of the segment, after `record_poll`. Several offers of one alert are one event, which has the
    cheapest. An offer fires an alert once, until it stops to match; one that begins to match during the cooldown fires
    it after that, if it still matches.
    """
    values: dict[str, Any] = {"region": segment.region, "mode": segment.mode, "gpu_count": segment.gpu_count, "at": at}
    await session.execute(UPDATE_MATCHES, values)
    due = list((await session.execute(LOCK_DUE, values)).scalars())
    if not due:
        return []
    fired: list[FiredAlert] = []
    for row in (await session.execute(FIRE, {**values, "ids": due})).all():
        data: dict[str, str | int] = {
            "productName": row.product_name,
            "region": segment.region,
            "billingMode": "SPOT" if segment.mode == "spot" else "ON_DEMAND",
            "gpuCount": segment.gpu_count,
            "pricePerHourMicros": row.price_e5 * MICROS_PER_E5,
            "offers": row.offers,
        }
        objects = {"alert": format_id(ID_PREFIX, row.id)}
        event_id = await append_project_event(
            session, EventType.MARKET_ALERT, project_id=row.project_id, values=data, objects=objects
        )
        fired.append(FiredAlert(event_id, row.project_id, row.webhook_url, {"values": data, "objects": objects}))
    return fired
