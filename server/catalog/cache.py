"""A bounded cache with one flight per key, around aiocache's storage.

aiocache alone keeps everything for ever in memory and lets fifty simultaneous misses make fifty calls.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar, cast

from aiocache import SimpleMemoryCache

from server.catalog.codec import Codec, Unreadable
from server.catalog.shared import Away, Shared

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class CacheStats:
    """How a cache is doing. Hits, misses and evictions are this process's own; size and keys are what is there."""

    name: str
    size: int
    hits: int
    misses: int
    evictions: int
    keys: Sequence[str]

    @property
    def ratio(self) -> float:
        """The part of all look-ups that needed no load; 0 before the first."""
        asked = self.hits + self.misses
        return self.hits / asked if asked else 0.0


class Cache(Generic[Value]):
    """Values by key, each believed for `ttl`; the least recently used goes first when there are too many.

    With `shared`, Redis is what is read and written. What this process stored itself is kept in memory too, and only
    looked at while Redis is away: it would otherwise be the provider that feels the loss.
    """

    def __init__(
        self,
        *,
        ttl: timedelta,
        max_size: int,
        name: str = "cache",
        codec: Codec[Value] | None = None,
        shared: Shared | None = None,
    ) -> None:
        self.name = name
        self._ttl = ttl.total_seconds()
        self._max_size = max_size
        self._memory: Any = SimpleMemoryCache(timeout=0)  # untyped upstream
        self._expires: OrderedDict[str, float] = OrderedDict()  # in the order of last use
        self._flights: dict[str, asyncio.Task[Value]] = {}
        self._codec = codec
        self._shared = shared if codec is not None else None
        self._remote: Any = self._shared.storage(name) if self._shared is not None else None
        self._hits = self._misses = self._evictions = 0

    async def get(self, key: str, load: Callable[[], Awaitable[Value]]) -> Value:
        """The value, loading it if need be. Whoever asks while it is being loaded waits for that same load."""
        if self._shared is None and self.is_at_hand(key):
            value = await self._in_memory(key)
            if value is not None:
                self._hits += 1
                return value[0]
        begun = time.monotonic()
        held = await self._held(key)
        if held is None and self._expires.get(key, 0.0) - self._ttl >= begun:
            held = await self._in_memory(key)  # loaded by somebody while Redis was telling us that it is not there
        if held is not None:
            self._hits += 1
            return held[0]
        self._misses += 1
        flight = self._flights.get(key)
        if flight is None:
            flight = asyncio.create_task(self._load(key, load))
            self._flights[key] = flight
        # Shielded: one impatient caller must not cancel the load for all the others.
        return await asyncio.shield(flight)

    def is_at_hand(self, key: str) -> bool:
        """Whether asking for it waits for nobody."""
        return self._shared is None and self._expires.get(key, 0.0) > time.monotonic()

    async def peek(self, key: str) -> Value | None:
        """The value if it is there; nothing is loaded, and nothing counted."""
        held = await self._held(key)
        return None if held is None else held[0]

    async def put(self, key: str, value: Value) -> None:
        """Store what was learned by other means."""
        await self._memory.set(key, (value,), ttl=self._ttl)
        self._expires[key] = time.monotonic() + self._ttl
        self._expires.move_to_end(key)
        await self._to_remote(key, value)
        while len(self._expires) > self._max_size:
            oldest, expires = next(iter(self._expires.items()))
            await self._remove(oldest)
            if expires > time.monotonic():
                self._evictions += 1

    async def drop(self, key: str) -> None:
        """Forget one value; what is being loaded for it now is handed out but not kept."""
        self._flights.pop(key, None)
        await self._remove(key)

    async def clear(self) -> int:
        """Forget everything; returns how many there were."""
        keys = set(await self._keys())
        self._flights.clear()
        # One by one: aiocache's own clear leaves the timers of the old values running, and they end new ones early.
        for key in keys | self._expires.keys():
            await self._remove(key)
        return len(keys)

    async def clear_expired(self) -> int:
        """Forget what is no longer believed; returns how many there were. Redis does that by itself."""
        moment = time.monotonic()
        expired = [key for key, at in self._expires.items() if at <= moment]
        for key in expired:
            del self._expires[key]
            await self._memory.delete(key)
        return len(expired)

    def counts(self) -> CacheStats:
        """As far as this process knows by itself: Redis is not asked."""
        return CacheStats(self.name, len(self._expires), self._hits, self._misses, self._evictions, ())

    async def stats(self, *, first: int = 20) -> CacheStats:
        keys = await self._keys()
        return CacheStats(self.name, len(keys), self._hits, self._misses, self._evictions, tuple(sorted(keys)[:first]))

    async def _load(self, key: str, load: Callable[[], Awaitable[Value]]) -> Value:
        me = asyncio.current_task()
        try:
            value = await load()
            if self._flights.get(key) is me:
                await self.put(key, value)
            return value
        finally:
            if self._flights.get(key) is me:
                del self._flights[key]

    async def _held(self, key: str) -> tuple[Value] | None:
        if self._shared is not None and self._codec is not None:
            try:
                data = await self._shared.ask(lambda: self._remote.get(key))
                return None if data is None else (self._codec.from_bytes(data),)
            except Unreadable:
                return None
            except Away:
                pass
        return await self._in_memory(key)

    async def _in_memory(self, key: str) -> tuple[Value] | None:
        # Past aiocache's own get(), which looks for settings in the environment at every call: ten times as long.
        held = cast("tuple[Value] | None", await self._memory._get(key))
        # The clock decides, not aiocache's timer: a busy loop may run that late.
        if held is None or self._expires.get(key, 0.0) <= time.monotonic():
            return None
        self._expires.move_to_end(key)
        return held

    async def _to_remote(self, key: str, value: Value) -> None:
        if self._shared is None or self._codec is None:
            return
        data = self._codec.to_bytes(value)
        try:
            await self._shared.ask(lambda: self._remote.set(key, data, ttl=self._ttl))
        except Away:
            return

    async def _remove(self, key: str) -> None:
        self._expires.pop(key, None)
        await self._memory.delete(key)
        if self._shared is not None:
            try:
                await self._shared.ask(lambda: self._remote.delete(key))
            except Away:
                return

    async def _keys(self) -> list[str]:
        if self._shared is not None:
            try:
                return await self._shared.keys(self.name)
            except Away:
                pass
        moment = time.monotonic()
        return [key for key, at in self._expires.items() if at > moment]
