"""At most so many calls a minute: the rest wait in line instead of being refused by the provider."""

import asyncio
from dataclasses import dataclass

from server.novita.priority import Priority, Waiters
from server.novita.ticks import Ticks


@dataclass(frozen=True, slots=True)
class LimiterSnapshot:
    calls_per_minute: int  # 0 when off
    available: int
    waiting_users: int
    waiting_polls: int


class Limiter:
    """A token bucket with a line in front of it.

    A tenth of a minute's calls may go at once (a page that opens makes several), then they go at an even pace: letting
    the whole minute's worth go at once would leave a person waiting for the rest of that minute.
    """

    def __init__(self, calls_per_minute: int, ticks: Ticks) -> None:
        self._calls_per_minute = calls_per_minute
        self._burst = float(max(1, calls_per_minute // 10))
        self._tokens = self._burst
        self._ticks = ticks
        self._refilled_at = ticks.now()
        self._waiters = Waiters()
        self._pump: asyncio.Task[None] | None = None

    def try_take(self) -> bool:
        """Leave to make one call, if nobody has to wait for it."""
        if self._calls_per_minute == 0:
            return True
        self._refill()
        if self._tokens < 1 or self._waiters:
            return False
        self._tokens -= 1
        return True

    async def take(self, route: str, priority: Priority, *, seconds: float) -> None:
        """Wait in line for leave to make one call; raises RateLimited when it does not come in time."""
        turn = self._waiters.join(route, priority, seconds=seconds)
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._let_go(), name="novita-limiter")
        await self._waiters.wait(turn, route, priority, give_back=self.give_back)

    def give_back(self) -> None:
        """The call was not made after all."""
        if self._calls_per_minute == 0:
            return
        self._tokens = min(self._burst, self._tokens + 1)
        if self._tokens >= 1 and self._waiters.call_next():
            self._tokens -= 1

    def snapshot(self) -> LimiterSnapshot:
        self._refill()
        return LimiterSnapshot(
            calls_per_minute=self._calls_per_minute,
            available=int(self._tokens),
            waiting_users=self._waiters.count(Priority.USER),
            waiting_polls=self._waiters.count(Priority.POLL),
        )

    async def close(self) -> None:
        """Nobody is left standing in line: they go, and meet a closed client."""
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
        while self._waiters.call_next():
            pass

    async def _let_go(self) -> None:
        """Runs while somebody waits."""
        while self._waiters:
            self._refill()
            while self._tokens >= 1 and self._waiters.call_next():
                self._tokens -= 1
            if self._waiters:
                await self._ticks.sleep((1 - self._tokens) * 60 / self._calls_per_minute)

    def _refill(self) -> None:
        now = self._ticks.now()
        earned = (now - self._refilled_at) * self._calls_per_minute / 60
        self._tokens = min(self._burst, self._tokens + earned)
        self._refilled_at = now
