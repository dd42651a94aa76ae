"""Who goes first when calls have to wait, without anybody waiting forever."""

import asyncio
from enum import IntEnum


class Priority(IntEnum):
    """A person waits for USER calls; POLL calls are our own looking after things."""

    USER = 0
    POLL = 1


# After so many user-driven calls in a row a polling one goes, if one waits: a busy caller must not blind the monitors.
USERS_PER_POLL = 4


class Waiters:
    """A line per priority and route. Routes of one priority take turns, so a flood on one of them delays the others by
    one call at most; within a route it is first come, first served."""

    def __init__(self) -> None:
        self._lines: dict[Priority, dict[str, dict[asyncio.Future[None], None]]] = {each: {} for each in Priority}
        self._users_in_a_row = 0

    def __bool__(self) -> bool:
        return any(self._lines.values())

    def count(self, priority: Priority) -> int:
        return sum(len(line) for line in self._lines[priority].values())

    def join(self, route: str, priority: Priority) -> asyncio.Future[None]:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines[priority].setdefault(route, {})[turn] = None
        return turn

    def leave(self, turn: asyncio.Future[None], route: str, priority: Priority) -> None:
        line = self._lines[priority].get(route)
        if line is not None and turn in line:
            del line[turn]
            if not line:
                del self._lines[priority][route]

    def call_next(self, *, polls: bool = True) -> bool:
        """Give the next in line its turn; False when nobody waits who may go. `polls` says if polling calls may."""
        priority = self._whose_turn(polls)
        if priority is None:
            return False
        lines = self._lines[priority]
        route, line = next(iter(lines.items()))
        turn = next(iter(line))
        del line[turn]
        del lines[route]
        if line:
            lines[route] = line  # to the end: the next turn is another route's
        self._users_in_a_row = self._users_in_a_row + 1 if priority is Priority.USER else 0
        turn.set_result(None)
        return True

    def _whose_turn(self, polls: bool) -> Priority | None:
        users, pollers = bool(self._lines[Priority.USER]), polls and bool(self._lines[Priority.POLL])
        if pollers and (not users or self._users_in_a_row >= USERS_PER_POLL):
            return Priority.POLL
        return Priority.USER if users else None
