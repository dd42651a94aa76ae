"""The balance of the provider account: how long it lasts, and a warning before it is used up."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import func, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from server.account.objects import Account
from server.auth.projects import server_project_id
from server.clock import now
from server.db.tables import Instance
from server.events.event import EventType
from server.events.outbox import append_project_event
from server.instances.queries.fleet import IS_BILLED
from server.novita.client import CallPriority

E5_PER_E4 = 10  # the provider's balances are in ten-thousandths of a dollar, its prices in hundred-thousandths
MICROS_PER_E4 = 100
# A balance that moves around the limit warns once.
ENOUGH_AGAIN = 1.25

# The row's lock orders two processes that look at the same time.
OBSERVE = text("""
    INSERT INTO provider_balance (available_e4, observed_at) VALUES (:available_e4, clock_timestamp())
    ON CONFLICT (is_the_only_row) DO UPDATE SET available_e4 = EXCLUDED.available_e4, observed_at = EXCLUDED.observed_at
    RETURNING low_since
""")
SET_LOW = text("UPDATE provider_balance SET low_since = CASE WHEN :is_low THEN clock_timestamp() END")


@dataclass(frozen=True, slots=True)
class AccountState:
    """`runway` is how long the balance lasts at the present price of all billed instances; None if none is billed."""

    available_e4: int
    price_per_hour_e5: int
    observed_at: datetime

    @property
    def balance_e5(self) -> int:
        return self.available_e4 * E5_PER_E4

    @property
    def runway(self) -> timedelta | None:
        if self.price_per_hour_e5 <= 0:
            return None
        return timedelta(seconds=max(0, self.balance_e5) * 3600 // self.price_per_hour_e5)


async def read_account(account: Account, *, priority: CallPriority = CallPriority.USER) -> AccountState:
    """Balance and prices as they are now. Raises NovitaError."""
    balance = await account.novita.balance(priority=priority)
    async with account.database.read() as session:
        price = await session.scalar(select(func.sum(Instance.price_per_hour_e5)).where(IS_BILLED))
    return AccountState(balance.available_e4, int(price or 0), now())


async def warn_if_low(account: Account, *, runway_min: timedelta) -> bool:
    """Write one `balance.low` event of the server's project when the balance no longer lasts that long.

    Returns whether it was written. Raises NovitaError.
    """
    state = await read_account(account, priority=CallPriority.POLL)
    async with account.database.write() as session:
        was_low = await session.scalar(OBSERVE, {"available_e4": state.available_e4}) is not None
        if was_low and _is_enough(state, runway_min * ENOUGH_AGAIN):
            await session.execute(SET_LOW, {"is_low": False})
        if was_low or _is_enough(state, runway_min):
            return False
        await session.execute(SET_LOW, {"is_low": True})
        return await _append(session, state)


def _is_enough(state: AccountState, runway_min: timedelta) -> bool:
    if state.available_e4 <= 0:
        return False
    return state.runway is None or state.runway >= runway_min


async def _append(session: AsyncSession, state: AccountState) -> bool:
    project_id = await server_project_id(session)
    if project_id is None:
        return False
    values = {"balanceMicros": state.available_e4 * MICROS_PER_E4, "pricePerHourMicros": state.price_per_hour_e5 * 10}
    if state.runway is not None:
        values["runwaySeconds"] = int(state.runway.total_seconds())
    await append_project_event(session, EventType.BALANCE_LOW, project_id=project_id, values=values)
    return True
