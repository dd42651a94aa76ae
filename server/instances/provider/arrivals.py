"""When the poller looks for a machine that moves: how long its kind usually takes, and whether its project has few."""

import time
from collections.abc import Hashable
from uuid import UUID

RISE = 0.1  # of the difference, when one took longer
FORGOTTEN_AFTER = 600.0  # seconds
MACHINES_MAX = 3
# A machine counts as moving for so many seconds after it was last polled.
MOVING_SECONDS = 10.0
PROJECTS_MAX = 10_000


class Arrivals:
    """Keeps near to the fastest ones of a kind: those that were seen late, because a page came late, would make the
    next look late, too."""

    def __init__(self) -> None:
        self._began: dict[str, tuple[Hashable, float]] = {}  # kind, and when the machine was first polled
        self._usual: dict[Hashable, float] = {}

    def began(self, kind: Hashable, novita_id: str) -> None:
        self._began.setdefault(novita_id, (kind, time.monotonic()))

    def arrived(self, novita_id: str) -> None:
        kind, began = self._began.pop(novita_id, (None, 0.0))
        if kind is not None:
            took = time.monotonic() - began
            usual = self._usual.get(kind, took)
            self._usual[kind] = min(took, usual + RISE * (took - usual))

    def expected_at(self, novita_id: str) -> float | None:
        """By the monotonic clock; None if none of its kind was seen yet."""
        kind, began = self._began.get(novita_id, (None, 0.0))
        usual = self._usual.get(kind)
        return None if usual is None else began + usual

    def forget_lost(self) -> None:
        oldest = time.monotonic() - FORGOTTEN_AFTER
        self._began = {id: each for id, each in self._began.items() if each[1] > oldest}


class SmallProjects:
    """Which projects have few machines on the move: pages are read when theirs are expected to have arrived."""

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
