"""What a caller says about waiting for capacity, checked."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from server.clock import now
from server.db.tables import Operation
from server.errors import Problem

WAIT_MIN, WAIT_MAX = timedelta(seconds=60), timedelta(days=30)
PRIORITY_MAX = 100
USUAL_PRIORITY = 50
WANTED = "wait"  # in `operation.wanted`


@dataclass(frozen=True, slots=True)
class WaitDraft:
    """How long an operation may wait: for a time, or until one; and its priority within its project."""

    length: timedelta | None = None
    until: datetime | None = None
    priority: int = USUAL_PRIORITY

    def wanted(self, *, at: datetime) -> dict[str, Any]:
        """What the operation keeps of it."""
        return {WANTED: Wish(end_of(self.length, self.until, at=at), self.priority).to_json()}


def no_capacity_problems(draft: WaitDraft | None) -> Iterator[Problem]:
    if draft is not None:
        yield from wait_problems(draft.length, draft.until, ("input", "onNoCapacity", "wait"), at=now())
        yield from priority_problems(draft.priority, ("input", "onNoCapacity", "priority"))


@dataclass(frozen=True, slots=True)
class Wish:
    """What an accepted operation may do without capacity: wait until then."""

    until: datetime
    priority: int

    def to_json(self) -> dict[str, Any]:
        return {"until": self.until.isoformat(), "priority": self.priority}


def wish_of(operation: Operation) -> Wish | None:
    stored = operation.wanted.get(WANTED)
    return None if stored is None else Wish(datetime.fromisoformat(stored["until"]), int(stored["priority"]))


def end_of(length: timedelta | None, until: datetime | None, *, at: datetime) -> datetime:
    return until if until is not None else at + (timedelta(0) if length is None else length)


def wait_problems(
    length: timedelta | None, until: datetime | None, path: tuple[str, ...], *, at: datetime
) -> Iterator[Problem]:
    if (length is None) == (until is None):
        yield Problem("INVALID_WAIT", "Give either `for` or `until`.", path)
    elif not WAIT_MIN <= end_of(length, until, at=at) - at <= WAIT_MAX:
        yield Problem("INVALID_WAIT", "A wait lasts from 60 seconds to 30 days.", path)


def priority_problems(priority: int, path: tuple[str, ...]) -> Iterator[Problem]:
    if not 0 <= priority <= PRIORITY_MAX:
        yield Problem("INVALID_PRIORITY", f"A priority is 0 to {PRIORITY_MAX}.", path)
