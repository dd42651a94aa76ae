"""A bounded cache with one load per key at a time, on top of aiocache's storage.

aiocache alone has no bound in memory, and fifty simultaneous misses make fifty calls.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar, cast

from aiocache import SimpleMemoryCache
from pydantic import TypeAdapter, ValidationError

from server.cache.redis import RedisBackend, RedisUnavailable

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Hits, misses and evictions are counted by this process; size and keys are those of the storage."""

    name: str
    size: int
    hits: int
    misses: int
    evictions: int
    keys: Sequence[str]

    @property
    def ratio(self) -> float:
        """Hits per look-up; 0 before the first."""
        lookups = self.hits + self.misses
        return self.hits / lookups if lookups else 0.0


def shared_type(hint: Any) -> TypeAdapter[Any]:
    """How values of this type are written to Redis: as JSON, because reading a pickle may run code.

    Refuses types with secrets, so that no secret gets into a shared cache by mistake.
    """
    adapter: TypeAdapter[Any] = TypeAdapter(hint)
    if "writeOnly" in str(adapter.json_schema()):  # how pydantic marks a SecretStr
        raise TypeError(f"a shared cache can't hold {hint}: it has a SecretStr")
    return adapter


def read_shared(value_type: TypeAdapter[Value], data: bytes) -> tuple[Value] | None:
    """The value; None for bytes of another version of the code, or of another program.

    The comparison finds fields that were added or removed: loading again is safer than assuming a default.
    """
    try:
        value = value_type.validate_json(data, strict=True)
    except ValidationError:
        return None
    return (value,) if value_type.dump_json(value) == data else None


def _retrieve(task: "asyncio.Task[Any]") -> None:
    """Callers may have gone, and a reload in the background has none: its error is not left unread."""
    if not task.cancelled():
        task.exception()


class Cache(Generic[Value]):
    """Values by key, each valid for `ttl`; the least recently used is evicted first.

    With `shared`, values are read from and written to Redis. Values that this process stored stay in memory too and are
    used while Redis is unavailable, so that an outage of Redis does not multiply the calls to the provider.
    """

    def __init__(
        self,
        *,
        ttl: timedelta,
        max_size: int,
        name: str = "cache",
        value_type: TypeAdapter[Value] | None = None,
        shared: RedisBackend | None = None,
    ) -> None:
        self.name = name
        self._ttl = ttl.total_seconds()
        self._max_size = max_size
        self._memory: Any = SimpleMemoryCache(timeout=0)  # untyped upstream
        self._expires: OrderedDict[str, float] = OrderedDict()  # in the order of last use
        self._loads: dict[str, asyncio.Task[Value]] = {}
        self._value_type = value_type
        self._shared = shared if value_type is not None else None
        self._remote: Any = self._shared.storage(name) if self._shared is not None else None
        self._hits = self._misses = self._evictions = 0
        self.changes = 0  # values that this process stored or removed, so far

    async def get(self, key: str, load: Callable[[], Awaitable[Value]]) -> Value:
        """The value, loaded on a miss. Callers that miss while it is being loaded wait for the same load."""
        began = time.monotonic()
        cached = await self._lookup(key)
        if cached is None and self._expires.get(key, 0.0) - self._ttl >= began:
            cached = await self._lookup_memory(key)  # another caller loaded it while Redis reported a miss
        if cached is not None:
            self._hits += 1
            return cached[0]
        self._misses += 1
        return await self.reload(key, load)

    def reload(self, key: str, load: Callable[[], Awaitable[Value]]) -> "asyncio.Future[Value]":
        """Load the value, cached or not; there is one load per key at a time."""
        task = self._loads.get(key)
        if task is None:
            task = self._loads[key] = asyncio.create_task(self._load(key, load))
            task.add_done_callback(_retrieve)
        # Shielded: one cancelled caller must not cancel the load for all the others.
        return asyncio.shield(task)

    @property
    def is_shared(self) -> bool:
        """Whether other processes change it, too."""
        return self._shared is not None

    def is_cached(self, key: str, *, beyond: timedelta = timedelta(0)) -> bool:
        """Whether `get` would return without a load or a call to Redis, now and for this much longer."""
        return self._shared is None and self._expires.get(key, 0.0) - beyond.total_seconds() > time.monotonic()

    async def peek(self, key: str) -> Value | None:
        """The value if it is cached; loads and counts nothing."""
        cached = await self._lookup(key)
        return None if cached is None else cached[0]

    async def put(self, key: str, value: Value) -> None:
        """Store a value that was obtained without `get`."""
        self.changes += 1
        await self._memory.set(key, (value,), ttl=self._ttl)
        self._expires[key] = time.monotonic() + self._ttl
        self._expires.move_to_end(key)
        await self._to_remote(key, value)
        while len(self._expires) > self._max_size:
            oldest, expires = next(iter(self._expires.items()))
            await self._remove(oldest)
            if expires > time.monotonic():
                self._evictions += 1

    async def change(self, key: str, change: Callable[[Value], Value]) -> None:
        """Change a cached value; a load in progress is still returned to its callers but not stored."""
        cached = await self._lookup(key)
        self._loads.pop(key, None)
        if cached is not None:
            await self.put(key, change(cached[0]))

    async def drop(self, key: str) -> None:
        """Remove one value; a load in progress is still returned to its callers but not stored."""
        self._loads.pop(key, None)
        await self._remove(key)

    async def clear(self) -> int:
        """Remove all values; returns their number."""
        keys = set(await self._keys())
        self._loads.clear()
        # One by one: aiocache's own clear leaves the timers of the old values running, which expire new ones early.
        for key in keys | self._expires.keys():
            await self._remove(key)
        return len(keys)

    async def clear_expired(self) -> int:
        """Remove expired values from memory; returns their number. Redis expires its own."""
        moment = time.monotonic()
        expired = [key for key, at in self._expires.items() if at <= moment]
        for key in expired:
            del self._expires[key]
            await self._memory.delete(key)
        return len(expired)

    def counts(self) -> CacheStats:
        """Counts of this process; makes no call to Redis."""
        return CacheStats(self.name, len(self._expires), self._hits, self._misses, self._evictions, ())

    async def stats(self, *, first: int = 20) -> CacheStats:
        keys = await self._keys()
        return CacheStats(self.name, len(keys), self._hits, self._misses, self._evictions, tuple(sorted(keys)[:first]))

    async def _load(self, key: str, load: Callable[[], Awaitable[Value]]) -> Value:
        me = asyncio.current_task()
        try:
            value = await load()
            if self._loads.get(key) is me:
                await self.put(key, value)
            return value
        finally:
            if self._loads.get(key) is me:
                del self._loads[key]

    async def _lookup(self, key: str) -> tuple[Value] | None:
        if self._shared is not None and self._value_type is not None:
            try:
                data = await self._shared.call(lambda: self._remote.get(key))
                return None if data is None else read_shared(self._value_type, data)
            except RedisUnavailable:
                pass
        return await self._lookup_memory(key)

    async def _lookup_memory(self, key: str) -> tuple[Value] | None:
        # Not aiocache's get(), which reads settings from the environment at every call and takes ten times as long.
        cached = cast("tuple[Value] | None", await self._memory._get(key))
        # The clock decides, not aiocache's timer, which a busy event loop may run late.
        if cached is None or self._expires.get(key, 0.0) <= time.monotonic():
            return None
        self._expires.move_to_end(key)
        return cached

    async def _to_remote(self, key: str, value: Value) -> None:
        if self._shared is None or self._value_type is None:
            return
        data = self._value_type.dump_json(value, warnings=False)
        try:
            await self._shared.call(lambda: self._remote.set(key, data, ttl=self._ttl))
        except RedisUnavailable:
            return

    async def _remove(self, key: str) -> None:
        self.changes += 1
        self._expires.pop(key, None)
        await self._memory.delete(key)
        if self._shared is not None:
            try:
                await self._shared.call(lambda: self._remote.delete(key))
            except RedisUnavailable:
                return

    async def _keys(self) -> list[str]:
        if self._shared is not None:
            try:
                return await self._shared.keys(self.name)
            except RedisUnavailable:
                pass
        moment = time.monotonic()
        return [key for key, at in self._expires.items() if at > moment]
