"""Shares the event loop between projects whose subscriptions have much to do.

A token may have thousands of subscriptions, each with an execution or a write per event. Without turns they would all
run in one iteration of the loop, and every other request of the process would wait for them.
"""

import asyncio
import time
from collections import deque
from uuid import UUID

from server.batching import TokenBucket

# An execution or a slice of writes takes up to half a millisecond.
TURNS_PER_ITERATION = 2
# A project alone may use the whole loop. Beside others that are active, its subscriptions get a third of it.
TURNS_PER_SECOND = 600
TURNS_AT_ONCE = 100
ACTIVE_SECONDS = 10.0
PROJECTS_MAX = 10_000


class Turns:
    """A few turns in each iteration of the event loop; projects that wait for one are served round robin."""

    def __init__(self) -> None:
        self._taken = 0
        self._waiting: dict[UUID, deque[asyncio.Future[None]]] = {}
        self._is_counting = False
        self._timer: asyncio.TimerHandle | None = None  # while all that wait have used up their share
        self._shares: dict[UUID, TokenBucket] = {}
        self._active: dict[UUID, float] = {}  # when each project made its last request, of the last two projects

    def note_request(self, project_id: UUID) -> None:
        """A project makes requests: the subscriptions of others leave room for it."""
        self._active.pop(project_id, None)
        self._active[project_id] = time.monotonic()
        if len(self._active) > 2:
            del self._active[next(iter(self._active))]

    async def take(self, project_id: UUID) -> None:
        """Wait for a turn; at once while few are taken."""
        if self._taken < TURNS_PER_ITERATION and project_id not in self._waiting and self._take_share(project_id):
            self._taken += 1
            self._count()
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(project_id, deque()).append(turn)
        self._count()
        await turn

    def _take_share(self, project_id: UUID) -> bool:
        """False if its share is used up; there are no shares while no other project makes requests."""
        moment = time.monotonic()
        if not any(other != project_id and at > moment - ACTIVE_SECONDS for other, at in self._active.items()):
            self._shares.pop(project_id, None)
            return True
        share = self._shares.get(project_id)
        if share is None:
            if len(self._shares) >= PROJECTS_MAX:
                self._shares.clear()
            share = self._shares[project_id] = TokenBucket(TURNS_PER_SECOND, TURNS_AT_ONCE, moment)
        return share.take(moment)

    def _count(self) -> None:
        if not self._is_counting:
            self._is_counting = True
            asyncio.get_running_loop().call_soon(self._next_iteration)

    def _next_iteration(self) -> None:
        self._taken, self._is_counting = 0, False
        for project_id in list(self._waiting):
            if self._taken >= TURNS_PER_ITERATION:
                break
            if self._take_share(project_id):
                self._give_turn(project_id)
        if self._taken:
            self._count()
        elif self._waiting and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(1 / TURNS_PER_SECOND, self._count_again)

    def _count_again(self) -> None:
        self._timer = None
        self._count()

    def _give_turn(self, project_id: UUID) -> None:
        turns = self._waiting.pop(project_id)
        turn = turns.popleft()
        if turns:
            self._waiting[project_id] = turns  # behind the others
        if not turn.done():  # else its subscription was cancelled
            turn.set_result(None)
            self._taken += 1
