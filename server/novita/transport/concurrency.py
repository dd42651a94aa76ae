"""Limits the concurrent calls per route, so that a slow route uses up only its own slots; queues the others."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from server.errors import RateLimited
from server.novita.transport.budget import CallPriority

__all__ = ["CallPriority", "CallQueue", "RouteSlots"]

# After this many other calls in a row one waiting POLL call goes: busy users must not stop all polling.
USER_CALLS_PER_POLL = 4
# Ordered: first in, first out, and removal from the middle in constant time.
WaitingCalls = OrderedDict[asyncio.Future[bool], float]  # future -> loop time at which it times out


class CallQueue:
    """A queue per priority and route. Routes of one priority take turns, so a burst on one of them delays the others by
    one call at most; a route's own calls go in order."""

    def __init__(self) -> None:
        self._queues: tuple[OrderedDict[str, WaitingCalls], ...] = tuple(OrderedDict() for _ in CallPriority)
        self._other_calls_in_a_row = 0
        self._timer: asyncio.TimerHandle | None = None

    def __bool__(self) -> bool:
        return any(self._queues)

    def has_waiting(self, priority: CallPriority) -> bool:
        return bool(self._queues[priority])

    def count(self, priority: CallPriority) -> int:
        return sum(len(calls) for calls in self._queues[priority].values())

    def enqueue(self, route: str, priority: CallPriority, *, seconds: float) -> asyncio.Future[bool]:
        """Wait at most that long; the future's result is False after a timeout."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[bool] = loop.create_future()
        calls = self._queues[priority].get(route)
        if calls is None:
            calls = self._queues[priority][route] = OrderedDict()
        calls[turn] = expires_at = loop.time() + seconds
        if self._timer is None or expires_at < self._timer.when():
            self._set_timer(expires_at, loop)
        return turn

    async def wait(
        self, turn: asyncio.Future[bool], route: str, priority: CallPriority, *, give_back: Callable[[], None]
    ) -> None:
        """Wait for the turn; raises RateLimited on timeout. `give_back` is called if the turn came at the moment the
        caller was cancelled."""
        try:
            has_turn = await turn
        except asyncio.CancelledError:
            self._remove(turn, route, priority)
            if turn.done() and not turn.cancelled() and turn.result():
                give_back()
            raise
        if not has_turn:
            raise RateLimited("timed out waiting in the client's queue", status=None)

    def wake_next(self, *, polls: bool = True) -> bool:
        """Wake the next waiting call; False if there is none. With `polls` False, POLL calls are passed over."""
        while (priority := self._next_priority(polls)) is not None:
            if self.wake(priority):
                self._other_calls_in_a_row = 0 if priority is CallPriority.POLL else self._other_calls_in_a_row + 1
                return True
        return False

    def wake(self, priority: CallPriority) -> bool:
        """Wake the next waiting call of a class; False if there is none."""
        routes = self._queues[priority]
        while routes:
            route = next(iter(routes))
            calls = routes[route]
            turn, _ = calls.popitem(last=False)
            if not calls:
                del routes[route]
            if turn.done():
                continue  # cancelled a moment ago: its caller has not run since
            if calls:
                routes.move_to_end(route)  # another route is next
            turn.set_result(True)
            return True
        return False

    def _next_priority(self, polls: bool) -> CallPriority | None:
        others = next((each for each in CallPriority if each is not CallPriority.POLL and self._queues[each]), None)
        pollers = polls and bool(self._queues[CallPriority.POLL])
        if pollers and (others is None or self._other_calls_in_a_row >= USER_CALLS_PER_POLL):
            return CallPriority.POLL
        return others

    def _set_timer(self, moment: float, loop: asyncio.AbstractEventLoop) -> None:
        """One timer for all waiting calls: a timer each would cost as much as the queue itself."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(moment, self._expire, loop)

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        """Remove the calls that have timed out."""
        self._timer = None
        now = loop.time()
        waiting = [
            (turn, route, priority, expires_at)
            for priority, routes in zip(CallPriority, self._queues, strict=True)
            for route, calls in routes.items()
            for turn, expires_at in calls.items()
        ]
        for turn, route, priority, expires_at in waiting:
            if expires_at <= now:
                self._remove(turn, route, priority)
                if not turn.done():
                    turn.set_result(False)
        later = [expires_at for *_, expires_at in waiting if expires_at > now]
        if later:
            self._set_timer(min(later), loop)

    def _remove(self, turn: asyncio.Future[bool], route: str, priority: CallPriority) -> None:
        calls = self._queues[priority].get(route)
        if calls is not None and turn in calls:
            del calls[turn]
            if not calls:
                del self._queues[priority][route]


class RouteSlots:
    """The slots of one route. A quarter of them is not for POLL calls, so the others find a slot even while polling
    calls are slow."""

    def __init__(self, route: str, slots: int) -> None:
        self._route = route
        self._free = slots
        self._reserved_for_users = slots // 4
        self._waiters = CallQueue()

    def try_acquire(self, priority: CallPriority) -> bool:
        """Take a slot if one is free and no call of this class waits for it. Others pass waiting POLL calls,
        which may not have the reserved slots."""
        if self._waiters.has_waiting(priority) or not self._has_slot(priority):
            return False
        self._free -= 1
        return True

    async def acquire(self, priority: CallPriority, *, seconds: float) -> None:
        """Wait for a slot; raises RateLimited on timeout."""
        turn = self._waiters.enqueue(self._route, priority, seconds=seconds)
        self._wake_waiters()
        await self._waiters.wait(turn, self._route, priority, give_back=self.release)

    def release(self) -> None:
        self._free += 1
        self._wake_waiters()

    def _has_slot(self, priority: CallPriority) -> bool:
        return self._free > (self._reserved_for_users if priority is CallPriority.POLL else 0)

    def _wake_waiters(self) -> None:
        while self._free > 0 and self._waiters.wake_next(polls=self._has_slot(CallPriority.POLL)):
            self._free -= 1
