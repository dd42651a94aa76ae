"""Alerts: created and deleted; server/market/matches.py finds out when they fire."""

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from server.auth.caller import Caller
from server.clock import now
from server.db.database import Database
from server.db.pool import RawPool
from server.db.tables import MarketAlert, MarketAlertRow, MarketRegion, Offer, Project
from server.db.tables.rows import make_rows, select_rows
from server.db.text import is_storable
from server.errors import Invalid, NotFound, Problem, Refused
from server.idempotency import CreatedObject, IdempotentRequest, create_once, key_problems
from server.market.segments import ON_DEMAND, SPOT, add_segments, poll_now

ALERTS_MAX = 100  # per project, without expired ones
VALUES_MAX, VALUE_MAX = 100, 255
GPUS_MAX = 8
PRICE_MAX_E5 = 10**9
HELD_MAX, COOLDOWN_MAX = timedelta(days=1), timedelta(days=30)
INVALID_ALERT = "INVALID_ALERT"
ID_PREFIX = "alr"
BY_IDS = f"{select_rows(MarketAlertRow)} WHERE id = ANY($1::uuid[]) AND project_id = $2"

PRUNE = """
    DELETE FROM market_alert WHERE id = ANY(ARRAY(
        SELECT id FROM market_alert WHERE expires_at < clock_timestamp() - $1::interval LIMIT $2
    ))
"""


@dataclass(frozen=True, slots=True)
class AlertDraft:
    """Conditions on offers, which must all hold; None: any. `unreadable` was found before."""

    product_names: tuple[str, ...] | None = None
    regions: tuple[str, ...] | None = None
    modes: tuple[str, ...] | None = None
    gpu_count: int = 1
    price_at_most_e5: int | None = None
    held_for: timedelta = timedelta(seconds=30)
    cooldown: timedelta = timedelta(hours=1)
    expires_at: datetime | None = None
    webhook_url: str | None = None
    idempotency_key: str | None = None
    unreadable: tuple[Problem, ...] = ()

    def problems(self) -> Iterator[Problem]:
        yield from key_problems(self.idempotency_key)
        yield from self.unreadable
        for name, values in (("productNames", self.product_names), ("regions", self.regions)):
            if values is None:
                continue
            if not 1 <= len(values) <= VALUES_MAX:
                yield _problem(f"Give 1 to {VALUES_MAX}, or leave it out for any.", name)
            for place, value in enumerate(values[:VALUES_MAX]):
                if not (1 <= len(value) <= VALUE_MAX and is_storable(value)):
                    yield _problem(f"It has 1 to {VALUE_MAX} characters.", name, str(place))
        if self.modes is not None and (not self.modes or set(self.modes) - {SPOT, ON_DEMAND}):
            yield _problem("Choose SPOT, ON_DEMAND or both, or leave it out for both.", "billingModes")
        if not 0 <= self.gpu_count <= GPUS_MAX:
            yield _problem(f"It must be 1 to {GPUS_MAX}, or 0 for CPU products.", "gpuCount")
        if self.price_at_most_e5 is not None and not 0 < self.price_at_most_e5 <= PRICE_MAX_E5:
            yield _problem("It must be above 0, and at most 10000 USD.", "priceAtMost")
        if not timedelta(0) <= self.held_for <= HELD_MAX:
            yield _problem("It must be 0 to 86400 seconds.", "heldFor")
        if not timedelta(0) <= self.cooldown <= COOLDOWN_MAX:
            yield _problem("It must be 0 to 2592000 seconds.", "cooldown")
        if self.expires_at is not None and self.expires_at <= now():
            yield _problem("It must be in the future.", "expiresAt")

    def fields(self) -> dict[str, Any]:
        """What makes it another request under the same key."""
        return {
            **self.columns(),
            "held_for": self.held_for.total_seconds(),
            "cooldown": self.cooldown.total_seconds(),
        }

    def columns(self) -> dict[str, Any]:
        return {
            "product_names": None if self.product_names is None else sorted(set(self.product_names)),
            "regions": None if self.regions is None else sorted(set(self.regions)),
            "modes": None if self.modes is None else sorted(set(self.modes)),
            "gpu_count": self.gpu_count,
            "price_at_most_e5": self.price_at_most_e5,
            "held_for": self.held_for,
            "cooldown": self.cooldown,
            "expires_at": self.expires_at,
            "webhook_url": self.webhook_url,
        }


async def create_alert(database: Database, draft: AlertDraft, *, by: Caller) -> CreatedObject[MarketAlert]:
    """Its segments are polled every MARKET_HOT from now on. An offer that matches already begins to match now."""
    request = IdempotentRequest.of(by, draft.idempotency_key, "createAlert", draft.fields())

    async def create(session: AsyncSession, alert_id: UUID) -> MarketAlert:
        problems = [*draft.problems(), *[each async for each in _unknown(session, draft)]]
        if problems:
            raise Invalid(problems)
        # Serialises the creates of one project, so that the count holds.
        await session.execute(select(Project.id).where(Project.id == by.project_id).with_for_update(key_share=True))
        is_live = or_(MarketAlert.expires_at.is_(None), MarketAlert.expires_at > func.clock_timestamp())
        count = await session.scalar(select(func.count()).where(MarketAlert.project_id == by.project_id, is_live))
        if (count or 0) >= ALERTS_MAX:
            raise Refused("TOO_MANY_ALERTS", f"A project has at most {ALERTS_MAX} alerts; delete one first.")
        alert = MarketAlert(id=alert_id, project_id=by.project_id, created_by=by.token_id, **draft.columns())
        session.add(alert)
        await session.flush()
        await session.refresh(alert)
        await add_segments(session, [draft.gpu_count])
        await poll_now(session)
        return alert

    # A request that is sent again after its end must find what it created.
    problems = list(replace(draft, expires_at=None).problems())
    if problems:
        raise Invalid(problems)
    return await create_once(database, request, MarketAlert, create)


async def _unknown(session: AsyncSession, draft: AlertDraft) -> AsyncIterator[Problem]:
    """Names that the tape does not have; none before the first poll."""
    for name, column, values in (
        ("regions", MarketRegion.region, draft.regions or ()),
        ("productNames", Offer.product_name, draft.product_names or ()),
    ):
        known = set((await session.execute(select(column).where(column.in_(values)).distinct())).scalars())
        if len(known) == len(set(values)) or (await session.execute(select(column).limit(1))).first() is None:
            continue
        for place, value in enumerate(values):
            if value not in known:
                yield _problem("The provider lists none with this name; see the query market.", name, str(place))


async def delete_alert(session: AsyncSession, alert_id: UUID, *, project_id: UUID) -> None:
    alert = await session.get(MarketAlert, alert_id, with_for_update=True)
    if alert is None or alert.project_id != project_id:
        raise NotFound("alert", ("input", "id"))
    await session.delete(alert)
    await session.flush()


async def get_alerts(pool: RawPool, ids: Sequence[UUID], *, project_id: UUID) -> dict[UUID, MarketAlertRow]:
    return {row.id: row for row in make_rows(MarketAlertRow, await pool.fetch_by_keys(BY_IDS, ids, project_id))}


async def prune_alerts(pool: RawPool, *, older_than: timedelta, limit: int) -> int:
    """Delete alerts that expired before that; returns their number."""
    return int((await pool.execute(PRUNE, older_than, limit)).rsplit(" ", 1)[1])


def _problem(message: str, *path: str) -> Problem:
    return Problem(INVALID_ALERT, message, ("input", *path))
