"""Limits calls per minute: calls above the limit wait in a queue instead of being refused by the provider."""

import asyncio
from dataclasses import dataclass

from server.batching import TokenBucket
from server.novita.transport.concurrency import CallPriority, CallQueue
from server.novita.transport.retry import Clock


@dataclass(frozen=True, slots=True)
class LimiterSnapshot:
    calls_per_minute: int  # 0 when off
    available: int
    waiting_users: int
    waiting_polls: int


class CallRateLimiter:
    """A token bucket with a queue in front.

    The burst is a tenth of the calls per minute (opening a page makes several), then calls go at an even rate: with a
    burst of all of them, the next user would wait for the rest of the minute.
    """

    def __init__(self, calls_per_minute: int, clock: Clock) -> None:
        self._calls_per_minute = calls_per_minute
        self._clock = clock
        self._bucket = TokenBucket(calls_per_minute / 60, max(1, calls_per_minute // 10), clock.now())
        self._waiters = CallQueue()
        self._pump: asyncio.Task[None] | None = None
        self._is_closed = False

    def try_acquire(self) -> bool:
        """Take a token if one is free and no other call waits for it."""
        if self._calls_per_minute == 0 or self._is_closed:
            return True
        return not self._waiters and self._bucket.take(self._clock.now())

    async def acquire(self, route: str, priority: CallPriority, *, seconds: float) -> None:
        """Wait for a token; raises RateLimited on timeout."""
        turn = self._waiters.enqueue(route, priority, seconds=seconds)
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._wake_waiters(), name="novita-limiter")
        await self._waiters.wait(turn, route, priority, give_back=self.refund)

    def refund(self) -> None:
        """Return the token of a call that was not sent."""
        if self._calls_per_minute == 0:
            return
        self._bucket.give_back(self._clock.now())
        if self._waiters.wake_next():
            self._bucket.take(self._clock.now())

    def snapshot(self) -> LimiterSnapshot:
        return LimiterSnapshot(
            calls_per_minute=self._calls_per_minute,
            available=int(self._bucket.tokens(self._clock.now())),
            waiting_users=self._waiters.count(CallPriority.USER),
            waiting_polls=self._waiters.count(CallPriority.POLL),
        )

    async def close(self) -> None:
        """Wake all waiting calls; they fail on the closed client, and so do all later ones."""
        self._is_closed = True
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
        while self._waiters.wake_next():
            pass

    async def _wake_waiters(self) -> None:
        """Runs while calls wait."""
        while self._waiters:
            now = self._clock.now()
            while self._bucket.tokens(now) >= 1 and self._waiters.wake_next():
                self._bucket.take(now)
            if self._waiters:
                await self._clock.sleep(self._bucket.wait(now))
