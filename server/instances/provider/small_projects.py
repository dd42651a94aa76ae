"""Which projects have few machines on the move: pages are read when theirs are expected to have arrived."""

import time
from uuid import UUID

MACHINES_MAX = 3
# A machine counts as moving for so many seconds after it was last polled.
MOVING_SECONDS = 10.0
PROJECTS_MAX = 10_000


class SmallProjects:
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
