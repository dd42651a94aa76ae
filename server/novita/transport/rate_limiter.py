"""Limits calls per minute: calls above the limit wait in a queue instead of being refused by the provider."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from server.novita.transport.budget import (
    CallBudget,
    CallPriority,
    Calls,
    Grant,
    full_budget,
    lower_rate,
    take_calls,
)
from server.novita.transport.concurrency import CallQueue
from server.novita.transport.retry import TransportClock

SHORT_SECONDS = 3.0  # after a call had to wait
WAIT_MAX = 86_400.0  # seconds; a job's turn may take long, and its line has no other end


@dataclass(frozen=True, slots=True)
class LimiterSnapshot:
    calls_per_minute: int  # 0 when off
    calls_per_minute_now: int  # lower after the provider has refused calls
    available: int
    waiting: Mapping[CallPriority, int]


class Turn:
    """Leave for one run of a job to call the provider. Its first call is paid for, and none of its calls waits: what it
    calls beyond the first is charged to its class."""

    __slots__ = ("_is_paid", "_limiter", "priority")

    def __init__(self, limiter: "CallRateLimiter", priority: CallPriority) -> None:
        self._limiter = limiter
        self._is_paid = True
        self.priority = priority

    async def use(self) -> None:
        """Account for one call, before it is sent."""
        if self._is_paid:
            self._is_paid = False
        else:
            await self._limiter.charge(self.priority)

    def give_back(self) -> None:
        """At the end of the run: another call may use what was not used."""
        if self._is_paid:
            self._is_paid = False
            self._limiter.refund(self.priority)


class LocalBudget:
    """The budget of a client that shares it with no other."""

    def __init__(self, limit_per_minute: int, clock: TransportClock) -> None:
        self._limit = limit_per_minute / 60
        self._clock = clock
        self._state = full_budget(self._limit, clock.now())

    async def take(self, wanted: Calls, *, charged: Calls, successes: int) -> Grant:
        return self.take_now(wanted, charged=charged, successes=successes)

    def take_now(self, wanted: Calls, *, charged: Calls, successes: int) -> Grant:
        return take_calls(self._state, self._limit, self._clock.now(), wanted, charged, successes)

    async def lower(self) -> float:
        return lower_rate(self._state, self._limit, self._clock.now())


class CallRateLimiter:
    """A queue of the calls of this client in front of a budget, which it may share with others."""

    def __init__(self, calls_per_minute: int, clock: TransportClock, budget: CallBudget | None = None) -> None:
        self.calls_per_minute = calls_per_minute
        self._clock = clock
        self._budget: CallBudget = budget or LocalBudget(max(1, calls_per_minute), clock)
        self._returned: Counter[CallPriority] = Counter()  # calls that were granted and not made
        self._successes = 0
        self._rate = calls_per_minute / 60
        self._available = 0.0
        self._waited_at = float("-inf")
        self._waiters = CallQueue()
        self._pump: asyncio.Task[None] | None = None
        self._pause: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def is_on(self) -> bool:
        return self.calls_per_minute > 0

    def try_acquire(self, priority: CallPriority = CallPriority.USER) -> bool:
        """Take a call if one is free here and no other waits for it."""
        if not self.is_on or self._is_closed:
            return True
        if self._waiters:
            return False
        if not isinstance(self._budget, LocalBudget):
            return False
        grant = self._budget.take_now({priority: 1}, charged=self._charge({}), successes=self._take_successes())
        return bool(self._note(grant).calls[priority])

    async def acquire(self, route: str, priority: CallPriority, *, seconds: float) -> None:
        """Wait for leave to make a call; raises RateLimited on timeout."""
        turn = self._waiters.enqueue(route, priority, seconds=seconds)
        self._wake_pump()  # this call may be more urgent than those that wait
        await self._waiters.wait(turn, route, priority, give_back=lambda: self.refund(priority))

    async def turns(self, priority: CallPriority, at_most: int) -> list[Turn]:
        """Wait, for as long as it takes, until a job may run that calls the provider; then take what else is free."""
        if not self.is_on:
            return [Turn(self, priority) for _ in range(at_most)]
        if not self.try_acquire(priority):
            await self.acquire("job", priority, seconds=WAIT_MAX)
        more = 0
        if at_most > 1 and not self._waiters:
            more = (await self._take({priority: at_most - 1}, {})).calls[priority]
        return [Turn(self, priority) for _ in range(1 + more)]

    async def charge(self, priority: CallPriority) -> None:
        """Account for a call that does not wait; later calls wait for it."""
        if self.is_on:
            await self._take({}, {priority: 1})

    def refund(self, priority: CallPriority) -> None:
        """Return a call that was granted and not made. The budget gets it back, not the next call here: what stops
        return would otherwise be used by creates, and the next stop would wait."""
        if self.is_on and not self._is_closed:
            self._returned[priority] += 1
            self._wake_pump()

    def succeeded(self) -> None:
        """The provider answered; after a refusal, the rate goes up again."""
        if self._rate < self.calls_per_minute / 60:
            self._successes += 1

    async def refused(self) -> None:
        """The provider refused a call because of its rate."""
        if self.is_on:
            self._returned.clear()
            self._successes = 0
            self._rate = await self._budget.lower()

    @property
    def is_short(self) -> bool:
        """Whether calls of this client have to wait, or had to a moment ago."""
        return self._clock.now() - self._waited_at < SHORT_SECONDS

    def snapshot(self) -> LimiterSnapshot:
        return LimiterSnapshot(
            calls_per_minute=self.calls_per_minute,
            calls_per_minute_now=round(self._rate * 60),
            available=max(0, int(self._available)) + self._returned.total(),
            waiting={each: self._waiters.count(each) for each in CallPriority},
        )

    async def close(self) -> None:
        """Wake all waiting calls; they fail on the closed client, and so do all later ones."""
        self._is_closed = True
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
        while self._waiters.wake_next():
            pass

    def _wake_pump(self) -> None:
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._serve_waiters(), name="novita-limiter")
        elif self._pause is not None:
            self._pause.cancel()

    async def _serve_waiters(self) -> None:
        """Runs while calls wait, or are to be returned."""
        while self._waiters or self._returned:
            waiting = {each: count for each in CallPriority if (count := self._waiters.count(each))}
            grant = await self._take(waiting, {})
            for each, count in grant.calls.items():
                for _ in range(count):
                    if not self._waiters.wake(each):
                        self._returned[each] += 1
            if self._waiters and grant.wait:
                self._waited_at = self._clock.now()
                self._pause = asyncio.create_task(self._clock.sleep(grant.wait))
                try:
                    await asyncio.wait([self._pause])
                finally:
                    self._pause.cancel()
                    self._pause = None

    async def _take(self, wanted: Mapping[CallPriority, int], charged: Mapping[CallPriority, int]) -> Grant:
        grant = await self._budget.take(wanted, charged=self._charge(charged), successes=self._take_successes())
        return self._note(grant)

    def _charge(self, calls: Calls) -> Calls:
        """Those calls, less what is returned."""
        returned, self._returned = self._returned, Counter()
        return {each: calls.get(each, 0) - returned[each] for each in {*calls, *returned}}

    def _take_successes(self) -> int:
        successes, self._successes = self._successes, 0
        return successes

    def _note(self, grant: Grant) -> Grant:
        self._rate, self._available = grant.rate, grant.available
        return grant
