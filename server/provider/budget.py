"""The budget of provider calls in the database: one for all processes and for both clients of `pilotlight up`."""

from collections.abc import Callable
from typing import TypeVar

import structlog

from server.db.database import Database
from server.db.outages import DATABASE_ERRORS
from server.novita.transport.budget import CallBudgetState, Calls, Grant, full_budget, lower_rate, take_calls
from server.novita.transport.rate_limiter import LocalBudget
from server.novita.transport.retry import MonotonicClock

log = structlog.get_logger(__name__)

T = TypeVar("T")

READ = """
    SELECT extract(epoch FROM clock_timestamp())::float8 AS now, budget.*
    FROM (SELECT) AS always LEFT JOIN provider_budget AS budget ON true
"""
# Written only over the version that was read: no lock is held while Python decides.
WRITE = """
    UPDATE provider_budget
    SET version = version + 1, rate = $2, tokens = $3, at = $4, lowered_at = $5, own = $6, used = $7
    WHERE version = $1
    RETURNING version
"""
ADD = """
    INSERT INTO provider_budget (version, rate, tokens, at, lowered_at, own, used)
    VALUES ($1 + 1, $2, $3, $4, $5, $6, $7)
    ON CONFLICT DO NOTHING
    RETURNING version
"""


class SharedBudget:
    """While the database is away, each process has the whole limit for itself: without it, few calls are made."""

    def __init__(self, database: Database, limit_per_minute: int) -> None:
        self._database = database
        self._limit = limit_per_minute / 60
        self._alone = LocalBudget(limit_per_minute, MonotonicClock())

    async def take(self, wanted: Calls, *, charged: Calls, successes: int) -> Grant:
        try:
            return await self._change(
                lambda state, now: take_calls(state, self._limit, now, wanted, charged, successes)
            )
        except DATABASE_ERRORS as error:
            log.warning("budget.alone", error=type(error).__name__)
            return await self._alone.take(wanted, charged=charged, successes=successes)

    async def lower(self) -> float:
        try:
            return await self._change(lambda state, now: lower_rate(state, self._limit, now))
        except DATABASE_ERRORS:
            return await self._alone.lower()

    async def _change(self, change: Callable[[CallBudgetState, float], T]) -> T:
        while True:
            row = await self._database.raw.fetchrow(READ)
            assert row is not None
            is_new = row["version"] is None
            if is_new:
                state = full_budget(self._limit, row["now"])
            else:
                state = CallBudgetState(
                    row["rate"], row["tokens"], row["at"], row["lowered_at"], list(row["own"]), list(row["used"])
                )
            result = change(state, row["now"])
            written = await self._database.raw.fetchval(
                ADD if is_new else WRITE,
                row["version"] or 0,
                state.rate,
                state.tokens,
                state.at,
                state.lowered_at,
                state.own,
                state.used,
            )
            if written is not None:
                return result
