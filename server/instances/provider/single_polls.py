"""Whether machines may be polled one by one, at once: only while no more than a handful move."""

import time

from server.batching import TokenBucket
from server.instances.provider.arrivals import MOVING_SECONDS

# So many are polled one by one while the bucket has tokens; fewer while other calls wait for the rate limit.
SINGLE_POLLS_MAX = 5
SINGLE_POLLS_MAX_IF_BUSY = 2
SINGLE_POLL_BURST = 10.0
SINGLE_RATE_SHARE = 0.5


class SinglePolls:
    """A burst of creates would spend as many calls on looking as on creating. `limit` is in calls a second."""

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
