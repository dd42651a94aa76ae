"""Fair share between projects: who asks for much at once stands further back, and only then."""

import time
from datetime import timedelta
from uuid import UUID

PER_SECOND = 20.0
BURST = 100.0
LARGEST_DEBT = timedelta(minutes=10)  # also the longest that a greedy project's job can stand back
REMEMBERED = 10_000


class FairShare:
    """A token bucket per project whose debt is added to `due_at`.

    It orders and never holds back: an idle system runs everything at once. In memory, per process: a row per project
    would have to be locked in every caller's transaction, and its callers would commit one by one.
    """

    def __init__(self) -> None:
        self._paid_until: dict[UUID, float] = {}

    def debt(self, project_id: UUID, jobs: int = 1) -> timedelta:
        """How far back the next job of this project stands, and note that it was taken."""
        now = time.monotonic()
        if len(self._paid_until) >= REMEMBERED:
            self._paid_until = {project: until for project, until in self._paid_until.items() if until > now}
        paid_until = max(self._paid_until.get(project_id, 0.0), now - BURST / PER_SECOND)
        largest = now + LARGEST_DEBT.total_seconds()
        self._paid_until[project_id] = min(paid_until + jobs / PER_SECOND, largest)
        return timedelta(seconds=max(0.0, min(paid_until, largest) - now))
