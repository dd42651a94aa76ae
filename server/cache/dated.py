"""A cache whose values have an age: an old value is replaced, or returned as stale while it can't be."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from server.cache.cache import Cache
from server.clock import now
from server.errors import NovitaError

Value = TypeVar("Value")

# How long a caller waits for a value to be replaced before it takes the old one.
PATIENCE = 2.0
# From this part of the TTL on, a value that is used is replaced in the background, so that callers never wait for it.
REFRESH_AT = 0.8


@dataclass(frozen=True, slots=True)
class Dated(Generic[Value]):
    """A value, and when it was read from its source. `is_stale`: it should have been replaced and could not be."""

    value: Value
    fetched_at: datetime
    is_stale: bool = False


class DatedCache(Generic[Value]):
    """On top of a Cache that keeps values for `ttl` plus `stale_for`."""

    def __init__(self, cache: Cache[Dated[Value]], *, ttl: timedelta, stale_for: timedelta) -> None:
        self._cache = cache
        self._ttl = ttl
        self._stale_for = stale_for

    @property
    def changes(self) -> int:
        """Grows whenever this process stores or removes a value."""
        return self._cache.changes

    @property
    def is_shared(self) -> bool:
        """Whether other processes change it, too."""
        return self._cache.is_shared

    async def get(self, key: str, load: Callable[[], Awaitable[Value]]) -> Dated[Value]:
        """The value, loaded on a miss. Raises what `load` raises, unless it is temporary and there is an old value."""

        async def load_dated() -> Dated[Value]:
            return Dated(await load(), now())

        entry = await self._cache.get(key, load_dated)
        age = now() - entry.fetched_at
        if age < self._ttl:
            if age > self._ttl * REFRESH_AT:
                self._cache.reload(key, load_dated)
            return entry
        try:
            return await asyncio.wait_for(self._cache.reload(key, load_dated), PATIENCE)
        except TimeoutError:
            return replace(entry, is_stale=True)
        except NovitaError as error:
            if not error.retryable:
                raise
            return replace(entry, is_stale=True)

    async def change(self, key: str, change: Callable[[Value], Value]) -> None:
        """Change a cached value, which keeps its age."""
        await self._cache.change(key, lambda entry: replace(entry, value=change(entry.value)))

    async def complete(self, key: str, entry: Dated[Value], load: Callable[[], Awaitable[Value]]) -> Dated[Value]:
        """Replace `entry` by what `load` returns, with the age of `entry`; one load for all that call at once."""

        async def load_dated() -> Dated[Value]:
            return Dated(await load(), entry.fetched_at)

        return await self._cache.reload(key, load_dated)

    def is_fresh(self, key: str) -> bool:
        """Whether `get` would return without a load or a call to Redis."""
        return self._cache.is_cached(key, beyond=self._stale_for)

    async def drop(self, key: str) -> None:
        await self._cache.drop(key)

    async def clear(self) -> None:
        await self._cache.clear()
