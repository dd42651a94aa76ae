"""Few machines on the move: in all, they are polled one by one; of a project, a page is read when they are expected."""

import time
from uuid import UUID

from server.batching import TokenBucket

MACHINES_MAX = 3
# A machine counts as moving for so many seconds after it was last polled.
MOVING_SECONDS = 10.0
PROJECTS_MAX = 10_000
# So many are polled one by one while the bucket has tokens; fewer while other calls wait for the rate limit.
SINGLE_POLLS_MAX = 5
SINGLE_POLLS_MAX_IF_BUSY = 2
SINGLE_POLL_BURST = 10.0
SINGLE_RATE_SHARE = 0.5


class SmallProjects:
    """Which projects have few machines on the move."""

    def __init__(self) -> None:
        self._moving: dict[UUID, dict[str, float]] = {}

    def note(self, project_id: UUID, novita_id: str) -> None:
        """A machine of the project moves."""
        at = time.monotonic()
        if project_id not in self._moving and len(self._moving) >= PROJECTS_MAX:
            self._moving = {
                id: each for id, each in self._moving.items() if max(each.values(), default=0) > at - MOVING_SECONDS
            }
        self._moving.setdefault(project_id, {})[novita_id] = at

    def is_small(self, project_id: UUID) -> bool:
        """Whether it has a few machines on the move and no more."""
        at = time.monotonic()
        moving = {id: polled for id, polled in self._moving.get(project_id, {}).items() if polled > at - MOVING_SECONDS}
        self._moving[project_id] = moving
        return 0 < len(moving) <= MACHINES_MAX


class SinglePolls:
    """Whether machines may be polled one by one, at once: a burst of creates would spend as many calls on looking as on
    creating. `limit` is in calls a second."""

    def __init__(self, limit: float) -> None:
        self._tokens = TokenBucket(SINGLE_RATE_SHARE * limit, SINGLE_POLL_BURST, time.monotonic())
        self._moving: dict[str, float] = {}  # when each machine was last polled, oldest first

    @property
    def moving(self) -> int:
        """How many machines move."""
        return len(self._moving)

    def note(self, novita_id: str, at: float) -> None:
        """A client polls the machine, so it moves."""
        self._moving.pop(novita_id, None)
        self._moving[novita_id] = at

    def has_room(self, waiting: int, *, is_busy: bool) -> bool:
        """Whether the machines that wait now may be polled so. `is_busy`: other calls wait for the rate limit."""
        at = time.monotonic()
        while self._moving and next(iter(self._moving.values())) < at - MOVING_SECONDS:
            del self._moving[next(iter(self._moving))]
        most = SINGLE_POLLS_MAX_IF_BUSY if is_busy else SINGLE_POLLS_MAX
        return max(waiting, len(self._moving)) <= min(most, self._tokens.tokens(at))

    def charge(self, count: int, at: float) -> None:
        """So many are polled."""
        self._tokens.charge(count, at, debt_max=0)
