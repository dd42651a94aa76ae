"""Who goes first when calls have to wait, without anybody waiting forever."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from enum import IntEnum

from server.errors import RateLimited


class Priority(IntEnum):
    """A person waits for USER calls; POLL calls are our own looking after things."""

    USER = 0
    POLL = 1


# After so many user-driven calls in a row a polling one goes, if one waits: a busy caller must not blind the monitors.
USERS_PER_POLL = 4

# Ordered, because the first goes first, and because leaving from anywhere costs the same however long it is.
Line = OrderedDict[asyncio.Future[bool], float]  # the value is when its caller has waited long enough


class Waiters:
    """A line per priority and route. Routes of one priority take turns, so a flood on one of them delays the others by
    one call at most; within a route it is first come, first served."""

    def __init__(self) -> None:
        self._lines: tuple[OrderedDict[str, Line], ...] = tuple(OrderedDict() for _ in Priority)
        self._users_in_a_row = 0
        self._timer: asyncio.TimerHandle | None = None

    def __bool__(self) -> bool:
        return bool(self._lines[0] or self._lines[1])

    def count(self, priority: Priority) -> int:
        return sum(len(line) for line in self._lines[priority].values())

    def join(self, route: str, priority: Priority, *, seconds: float) -> asyncio.Future[bool]:
        """Stand in line for so many seconds at most; the future tells whether the turn came."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[bool] = loop.create_future()
        line = self._lines[priority].get(route)
        if line is None:
            line = self._lines[priority][route] = OrderedDict()
        line[turn] = until = loop.time() + seconds
        if self._timer is None or until < self._timer.when():
            self._wake_at(until, loop)
        return turn

    async def wait(
        self, turn: asyncio.Future[bool], route: str, priority: Priority, *, give_back: Callable[[], None]
    ) -> None:
        """Wait for the turn; raises RateLimited when it is too late for one. `give_back` is told of a turn that came
        as its caller went away."""
        try:
            is_ours = await turn
        except asyncio.CancelledError:
            self._leave(turn, route, priority)
            if turn.done() and not turn.cancelled() and turn.result():
                give_back()
            raise
        if not is_ours:
            raise RateLimited("too many calls wait in our own line", status=None)

    def call_next(self, *, polls: bool = True) -> bool:
        """Give the next in line its turn; False when nobody waits who may go. `polls` says if polling calls may."""
        priority = self._whose_turn(polls)
        if priority is None:
            return False
        lines = self._lines[priority]
        route = next(iter(lines))
        line = lines[route]
        turn, _ = line.popitem(last=False)
        if line:
            lines.move_to_end(route)  # the next turn is another route's
        else:
            del lines[route]
        self._users_in_a_row = self._users_in_a_row + 1 if priority is Priority.USER else 0
        turn.set_result(True)
        return True

    def _whose_turn(self, polls: bool) -> Priority | None:
        users, pollers = bool(self._lines[Priority.USER]), polls and bool(self._lines[Priority.POLL])
        if pollers and (not users or self._users_in_a_row >= USERS_PER_POLL):
            return Priority.POLL
        return Priority.USER if users else None

    def _wake_at(self, moment: float, loop: asyncio.AbstractEventLoop) -> None:
        """One timer for all who wait: a timer each would cost as much as the waiting itself."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(moment, self._send_away, loop)

    def _send_away(self, loop: asyncio.AbstractEventLoop) -> None:
        """Those who have waited long enough go without a turn."""
        self._timer = None
        now = loop.time()
        waiting = [
            (turn, route, priority, until)
            for priority, lines in zip(Priority, self._lines, strict=True)
            for route, line in lines.items()
            for turn, until in line.items()
        ]
        for turn, route, priority, until in waiting:
            if until <= now:
                self._leave(turn, route, priority)
                if not turn.done():
                    turn.set_result(False)
        later = [until for *_, until in waiting if until > now]
        if later:
            self._wake_at(min(later), loop)

    def _leave(self, turn: asyncio.Future[bool], route: str, priority: Priority) -> None:
        line = self._lines[priority].get(route)
        if line is not None and turn in line:
            del line[turn]
            if not line:
                del self._lines[priority][route]
