"""Batched reads, group commit and token buckets."""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import Context
from typing import ClassVar, Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class BatchLoader(Generic[Key, Value]):
    """Collects keys for `window` seconds, at most `largest`, and calls `load` once for all of them."""

    def __init__(
        self,
        load: Callable[[Sequence[Key]], Awaitable[Mapping[Key, Value]]],
        *,
        window: float = 0.01,
        largest: int = 1000,
    ) -> None:
        self._load = load
        self._window = window
        self._largest = largest
        self._waiting: dict[Key, asyncio.Future[Value | None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself only holds them weakly

    async def load(self, key: Key) -> Value | None:
        """None if `load` returned nothing for the key."""
        # Shielded: other callers may wait for the same key.
        return await asyncio.shield(self.add(key))

    def add(self, key: Key) -> "asyncio.Future[Value | None]":
        """The same, for a caller that does not wait for the result."""
        waiting = self._waiting.get(key)
        if waiting is None:
            loop = asyncio.get_running_loop()
            waiting = self._waiting[key] = loop.create_future()
            if len(self._waiting) == 1:
                loop.call_later(self._window, self._go)
        return waiting

    def _go(self) -> None:
        keys = list(self._waiting)[: self._largest]
        batch = {key: self._waiting.pop(key) for key in keys}
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._go)
        if batch:
            task = asyncio.get_running_loop().create_task(self._load_batch(batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _load_batch(self, batch: "dict[Key, asyncio.Future[Value | None]]") -> None:
        try:
            values = await self._load(list(batch))
        except asyncio.CancelledError:
            for waiting in batch.values():
                waiting.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - raised in every waiting caller
            for waiting in batch.values():
                if not waiting.done():
                    waiting.set_exception(error)
                    waiting.exception()  # marks it as retrieved: the caller may be gone
            return
        for key, waiting in batch.items():
            if not waiting.done():
                waiting.set_result(values.get(key))


Item = TypeVar("Item")
Result = TypeVar("Result")


class GroupCommit(Generic[Item, Result]):
    """Items that arrive during a write share the next one: `write` gets at most `largest` items and returns a result or
    an exception for each.

    A single item is written at once. At most `at_once` writes run: with two, one is prepared here while the server
    executes the other.
    """

    def __init__(
        self,
        write: Callable[[Sequence[Item]], Awaitable[Sequence[Result | Exception]]],
        *,
        largest: int,
        at_once: int = 1,
    ) -> None:
        self._write = write
        self._largest = largest
        self._at_once = at_once
        self._waiting: deque[tuple[Item, asyncio.Future[Result]]] = deque()
        self._running = 0
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself only holds them weakly

    async def add(self, item: Item) -> Result:
        """The result of `write` for this item. An item whose caller is cancelled before the write is left out."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._running < self._at_once:
            self._running += 1
            # In its own context: log lines must not carry the first caller's fields.
            task = asyncio.create_task(self._run(), name="group commit", context=Context())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await future

    async def _run(self) -> None:
        try:
            await self._write_all()
        finally:
            # No await since the queue was found empty, so the next item starts a new task.
            self._running -= 1

    async def _write_all(self) -> None:
        while batch := self._next():
            items = [item for item, _ in batch]
            try:
                results: Sequence[Result | Exception] = await self._write(items)
            except asyncio.CancelledError:
                for _, future in batch:
                    future.cancel()
                raise
            except Exception as error:  # noqa: BLE001 - raised in every waiting caller
                results = [error] * len(batch)
            for (_, future), result in zip(batch, results, strict=True):
                if future.done():
                    continue
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)

    def _next(self) -> list[tuple[Item, asyncio.Future[Result]]]:
        batch: list[tuple[Item, asyncio.Future[Result]]] = []
        while self._waiting and len(batch) < self._largest:
            item, future = self._waiting.popleft()
            if not future.done():
                batch.append((item, future))
        return batch


class TokenBucket:
    """Tokens that refill at `rate` a second, up to `burst`. The caller passes the time in seconds."""

    __slots__ = ("_burst", "_rate", "_refilled_at", "_tokens")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._refilled_at = now

    def tokens(self, now: float) -> float:
        """Refill, then return the tokens left; negative while in debt."""
        self._tokens = min(self._burst, self._tokens + (now - self._refilled_at) * self._rate)
        self._refilled_at = now
        return self._tokens

    def take(self, now: float) -> bool:
        """Take one token; False if there is none."""
        if self.tokens(now) < 1:
            return False
        self._tokens -= 1
        return True

    def charge(self, count: float, now: float, *, debt_max: float) -> None:
        """Take that many whether or not they are there; the debt ends at `debt_max`."""
        self._tokens = max(self.tokens(now) - count, -debt_max)

    def give_back(self, now: float) -> None:
        """Return one token that was not used."""
        self._tokens = min(self._burst, self.tokens(now) + 1)

    def wait(self, now: float) -> float:
        """Seconds until there is a token."""
        return max(0.0, (1 - self.tokens(now)) / self._rate)


class KeyedBuckets(Generic[Key]):
    """A token bucket per key; those unused for the longest time are dropped, because they are the fullest."""

    KEYS_MAX: ClassVar[int] = 10_000

    def __init__(self, per_minute: int, *, burst: float | None = None) -> None:
        """A whole minute's worth may come at once, unless `burst` says less. 0 a minute turns the limit off."""
        self._per_second = per_minute / 60
        self._burst = float(per_minute) if burst is None else max(1.0, burst)
        self._buckets: OrderedDict[Key, TokenBucket] = OrderedDict()

    def take(self, key: Key) -> float | None:
        """Take one; None if there was one, else the seconds to wait for it."""
        if not self._per_second:
            return None
        moment = time.monotonic()
        bucket = self._bucket(key, moment)
        return None if bucket.take(moment) else bucket.wait(moment)

    def give_back(self, key: Key) -> None:
        bucket = self._buckets.get(key)
        if bucket is not None:
            bucket.give_back(time.monotonic())

    def charge(self, key: Key, count: float) -> None:
        """Take that many whether or not they are there; the next ones wait for them."""
        if self._per_second and count:
            moment = time.monotonic()
            self._bucket(key, moment).charge(count, moment, debt_max=self._burst)

    def __len__(self) -> int:
        return len(self._buckets)

    def _bucket(self, key: Key, moment: float) -> TokenBucket:
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = TokenBucket(self._per_second, self._burst, moment)
            if len(self._buckets) > self.KEYS_MAX:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(key)
        return bucket
