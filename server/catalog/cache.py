"""A bounded cache with one flight per key, around aiocache's storage.

aiocache alone keeps everything for ever in memory and lets fifty simultaneous misses make fifty calls.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Generic, TypeVar, cast

from aiocache import SimpleMemoryCache

Value = TypeVar("Value")


class Cache(Generic[Value]):
    """Values by key, each believed for `ttl`; the least recently used goes first when there are too many."""

    def __init__(self, *, ttl: timedelta, max_size: int) -> None:
        self._ttl = ttl.total_seconds()
        self._max_size = max_size
        self._storage: Any = SimpleMemoryCache()  # untyped upstream
        self._order: OrderedDict[str, None] = OrderedDict()
        self._flights: dict[str, asyncio.Task[Value]] = {}

    async def get(self, key: str, load: Callable[[], Awaitable[Value]]) -> Value:
        """The value, loading it if need be. Whoever asks while it is being loaded waits for that same load."""
        held = cast("tuple[Value] | None", await self._storage.get(key))
        if held is not None:
            self._order.move_to_end(key)
            return held[0]
        flight = self._flights.get(key)
        if flight is None:
            flight = asyncio.create_task(self._load(key, load))
            self._flights[key] = flight
            flight.add_done_callback(lambda _: self._flights.pop(key, None))
        # Shielded: one impatient caller must not cancel the load for all the others.
        return await asyncio.shield(flight)

    async def clear(self) -> None:
        await self._storage.clear()
        self._order.clear()

    async def _load(self, key: str, load: Callable[[], Awaitable[Value]]) -> Value:
        value = await load()
        await self._storage.set(key, (value,), ttl=self._ttl)
        self._order[key] = None
        self._order.move_to_end(key)
        while len(self._order) > self._max_size:
            oldest, _ = self._order.popitem(last=False)
            await self._storage.delete(oldest)
        return value
