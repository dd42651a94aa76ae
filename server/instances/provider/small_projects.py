"""Polls of projects that have few machines on the move: they do not wait for the pages that large ones need."""

import time
from uuid import UUID

from server.batching import TokenBucket

MACHINES_MAX = 3
# A machine counts as moving for so many seconds after it was last polled.
MOVING_SECONDS = 10.0
# A machine is polled by itself so many seconds apart: few end sooner, and pages are read meanwhile.
PAUSE = 2.5
# The part of the rate limit that these polls use beside the sweeps, and how many may come at once. With three times as
# much, the polls of a project that changes one machine every 5 s kept the pages waiting for everyone else.
RATE_SHARE = 0.05
BURST = 4.0
PROJECTS_MAX = 10_000


class SmallProjects:
    """`rate` is the provider's limit in calls a second."""

    def __init__(self, rate: float) -> None:
        self._polls = TokenBucket(RATE_SHARE * rate, BURST, time.monotonic())
        self._moving: dict[UUID, dict[str, float]] = {}
        self._polled: dict[str, float] = {}  # when each machine was last polled by itself

    def note(self, project_id: UUID, novita_id: str) -> None:
        """A machine of the project moves."""
        at = time.monotonic()
        if project_id not in self._moving and len(self._moving) >= PROJECTS_MAX:
            self._moving = {
                id: each for id, each in self._moving.items() if max(each.values(), default=0) > at - MOVING_SECONDS
            }
        self._moving.setdefault(project_id, {})[novita_id] = at

    def take_poll(self, project_id: UUID, novita_id: str) -> bool:
        """Whether this machine of the project may be polled by itself now; then it is counted."""
        at = time.monotonic()
        moving = {id: polled for id, polled in self._moving.get(project_id, {}).items() if polled > at - MOVING_SECONDS}
        self._moving[project_id] = moving
        self._polled = {id: polled for id, polled in self._polled.items() if polled > at - PAUSE}
        is_small = 0 < len(moving) <= MACHINES_MAX
        if not is_small or novita_id in self._polled or not self._polls.take(at):
            return False
        self._polled[novita_id] = at
        return True

    def pause_left(self, novita_id: str) -> float | None:
        """Seconds until a machine that was polled by itself may be so again; None if it was not, lately."""
        polled = self._polled.get(novita_id)
        return None if polled is None else max(0.0, polled + PAUSE - time.monotonic())
