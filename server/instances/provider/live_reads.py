"""The share of the provider's calls that requests may spend on reads of their own."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from server.auth.caller import Caller
from server.auth.rate_limit import RateLimiter
from server.batching import KeyedBuckets
from server.db.tables import InstanceLike
from server.errors import ProviderNotFound, ProviderTimeout, TooManyLiveReads

T = TypeVar("T")

# A user waits, and an older answer would be of no use.
FETCH_TIMEOUT = timedelta(seconds=10)
# Of a minute's worth, what may come at once: a caller's burst waits in one queue with all other calls.
BURST = 0.5


class LiveReads:
    """Limits per token, per project and in all: whatever callers do, half of the rate limit is left for jobs."""

    def __init__(self, *, per_token: int = 0, per_project: int = 0, calls_per_minute: int = 0) -> None:
        """`calls_per_minute` is that of the provider; 0 turns a limit off."""
        self._callers = RateLimiter(per_token=per_token, per_project=per_project, burst=BURST)
        in_all = max(1, calls_per_minute // 2) if calls_per_minute else 0
        self._in_all = KeyedBuckets[None](in_all, burst=in_all * BURST)

    def take(self, caller: Caller) -> None:
        """Count one read; raises TooManyLiveReads."""
        wait_ms = self._callers.take(caller)
        if wait_ms is not None:
            raise TooManyLiveReads(timedelta(milliseconds=wait_ms))
        wait = self._in_all.take(None)
        if wait is not None:
            self._callers.give_back(caller)
            raise TooManyLiveReads(timedelta(seconds=wait))


async def fetch_for_user(instance: InstanceLike, fetch: Callable[[str], Awaitable[T]], *, what: str) -> T | None:
    """Fetch by the id of the instance's machine; None without a machine. Raises NovitaError, TooManyLiveReads."""
    if instance.novita_id is None or instance.deleted_at is not None:
        return None
    try:
        async with asyncio.timeout(FETCH_TIMEOUT.total_seconds()):
            return await fetch(instance.novita_id)
    except ProviderNotFound:
        return None
    except TimeoutError:
        raise ProviderTimeout(f"the provider takes too long to {what}") from None
