"""Tells a process that the market has changed, so that its caches are read again."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

from server.db.database import Database
from server.db.notify import Notifier
from server.db.outages import DATABASE_ERRORS
from server.market.tape import TOPIC

# Without a notification the cache's own TTL decides; this is only how long one wait lasts.
WAIT = timedelta(hours=1)
LAST_CHANGE = "SELECT max(id) FROM offer_change"


async def follow_market(database: Database, notifier: Notifier, forget: Callable[[], Awaitable[object]]) -> None:
    """Runs until it is cancelled; calls `forget` after each change. A notification may also come without one."""
    wakeup = notifier.subscribe(TOPIC)
    try:
        last = await _last_change(database)
        while True:
            if not await wakeup.wait(WAIT):
                continue
            before, last = last, await _last_change(database)
            if last != before or last is None:
                await forget()
    finally:
        notifier.unsubscribe(TOPIC, wakeup)


async def _last_change(database: Database) -> int | None:
    """0 on an empty tape; None if the database is away."""
    try:
        return await database.raw.fetchval(LAST_CHANGE) or 0
    except DATABASE_ERRORS:
        return None
