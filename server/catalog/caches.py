"""Every cache of a process by its name, for whoever wants to look at them or empty them."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypeVar

from server.catalog.cache import Cache, CacheStats
from server.catalog.codec import Codec
from server.catalog.shared import Shared

Value = TypeVar("Value")


class Caches:
    """In memory, or in Redis where there is one."""

    def __init__(self, shared: Shared | None = None) -> None:
        self._shared = shared
        self._by_name: dict[str, Cache[Any]] = {}

    def new(self, name: str, hint: Any, *, ttl: timedelta, max_size: int) -> Cache[Any]:
        """A cache for values of the type `hint`; whoever asks gives it that type."""
        codec: Codec[Any] | None = Codec(hint) if self._shared is not None else None
        cache: Cache[Any] = Cache(name=name, ttl=ttl, max_size=max_size, codec=codec, shared=self._shared)
        self._by_name[name] = cache
        return cache

    @property
    def names(self) -> Sequence[str]:
        return tuple(self._by_name)

    def counts(self) -> list[CacheStats]:
        """What this process has counted, without asking Redis."""
        return [cache.counts() for cache in self._by_name.values()]

    @property
    def is_redis_away(self) -> bool:
        return self._shared is not None and self._shared.is_away

    async def stats(self, *, first: int) -> list[CacheStats]:
        return [await cache.stats(first=first) for cache in self._by_name.values()]

    async def clear(self, name: str) -> int | None:
        """How many values were forgotten; None when there is no such cache."""
        cache = self._by_name.get(name)
        return None if cache is None else await cache.clear()

    async def clear_expired(self) -> int:
        return sum([await cache.clear_expired() for cache in self._by_name.values()])

    async def close(self) -> None:
        if self._shared is not None:
            await self._shared.close()
