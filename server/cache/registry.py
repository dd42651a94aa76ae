"""Every cache of a process by its name, to inspect and to clear them."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypeVar

from server.cache.cache import Cache, CacheStats, shared_type
from server.cache.dated import Dated, DatedCache
from server.cache.redis import RedisBackend

Value = TypeVar("Value")


class Caches:
    """Caches in memory, shared through Redis if it is configured."""

    def __init__(self, shared: RedisBackend | None = None) -> None:
        self._shared = shared
        self._by_name: dict[str, Cache[Any]] = {}

    def new(self, name: str, hint: Any, *, ttl: timedelta, max_size: int, is_secret: bool = False) -> Cache[Any]:
        """A cache for values of the type `hint`; the caller annotates the result with that type.

        `is_secret`: values stay in the memory of this process, because Redis may write what it has to a disk.
        """
        shared = None if is_secret else self._shared
        value_type = shared_type(hint) if shared is not None else None
        cache: Cache[Any] = Cache(name=name, ttl=ttl, max_size=max_size, value_type=value_type, shared=shared)
        self._by_name[name] = cache
        return cache

    def dated(
        self,
        name: str,
        hint: Any,
        *,
        ttl: timedelta,
        stale_for: timedelta,
        max_size: int,
        is_secret: bool = False,
    ) -> DatedCache[Any]:
        """The same for values that may be used for `stale_for` after their TTL while they can't be replaced."""
        cache = self.new(name, Dated[hint], ttl=ttl + stale_for, max_size=max_size, is_secret=is_secret)
        return DatedCache(cache, ttl=ttl, stale_for=stale_for)

    @property
    def names(self) -> Sequence[str]:
        return tuple(self._by_name)

    def counts(self) -> list[CacheStats]:
        """Counts of this process; makes no call to Redis."""
        return [cache.counts() for cache in self._by_name.values()]

    @property
    def is_redis_unavailable(self) -> bool:
        return self._shared is not None and self._shared.is_unavailable

    async def reach_redis(self) -> bool:
        """Whether Redis responds now; true if none is configured."""
        return self._shared is None or await self._shared.ping()

    async def stats(self, *, first: int) -> list[CacheStats]:
        return [await cache.stats(first=first) for cache in self._by_name.values()]

    async def clear(self, name: str) -> int | None:
        """Returns the number of removed values; None if there is no such cache."""
        cache = self._by_name.get(name)
        return None if cache is None else await cache.clear()

    async def clear_expired(self) -> int:
        return sum([await cache.clear_expired() for cache in self._by_name.values()])

    async def close(self) -> None:
        if self._shared is not None:
            await self._shared.close()
