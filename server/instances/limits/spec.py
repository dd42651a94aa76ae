"""The limits of an instance's lifetime as a caller gives them, and their checks."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar

from pydantic import TypeAdapter

from server.enums import LifetimeAction
from server.errors import Invalid, Problem
from server.instances.limits.schedule import is_expression, is_time_zone

INVALID_LIFETIME = "INVALID_LIFETIME"
SECOND, DAY = timedelta(seconds=1), timedelta(days=1)
# From the provider's acceptance, or from now: less would end a machine that has hardly started.
SHORTEST = timedelta(seconds=300)
LONGEST = timedelta(days=90)
SHORTEST_HEARTBEAT = timedelta(seconds=60)
EXPRESSIONS_MAX = 10

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Idle:
    """Ends an instance whose GPUs are all below `gpu_below_percent` in every sample of `window`."""

    FIRST_FIELDS: ClassVar = frozenset[str]()
    gpu_below_percent: int = 5
    window: timedelta = timedelta(minutes=30)
    grace: timedelta = timedelta(minutes=15)
    action: LifetimeAction = LifetimeAction.STOP

    def problems(self, path: Path) -> Iterator[Problem]:
        if not 1 <= self.gpu_below_percent <= 100:
            yield _problem("It must be 1 to 100 percent.", path, "gpuBelowPercent")
        yield from _range(self.window, SHORTEST, DAY, path, "window")
        yield from _range(self.grace, timedelta(0), DAY, path, "grace")
        yield from _action(self.action, path, "action")


@dataclass(frozen=True, slots=True)
class Schedule:
    """Cron expressions at which the instance is started and stopped."""

    FIRST_FIELDS: ClassVar = frozenset[str]()
    timezone: str = "UTC"
    start: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()

    def problems(self, path: Path, *, at: datetime) -> Iterator[Problem]:
        if not is_time_zone(self.timezone):
            yield _problem("There is no such time zone; give a name such as Europe/Berlin.", path, "timezone")
            return
        if not self.start and not self.stop:
            yield _problem("Give at least one expression.", path)
        for name, expressions in (("start", self.start), ("stop", self.stop)):
            if len(expressions) > EXPRESSIONS_MAX:
                yield _problem(f"At most {EXPRESSIONS_MAX} expressions.", path, name)
            for index, each in enumerate(expressions[:EXPRESSIONS_MAX]):
                if not is_expression(each, self.timezone, after=at):
                    message = "It must be a cron expression of five fields that fires, such as 0 18 * * 1-5."
                    yield _problem(message, path, name, str(index))


@dataclass(frozen=True, slots=True)
class Lifetime:
    """All limits; the earliest of `max_duration`, `deadline` and `heartbeat` ends the instance by `on_end`."""

    FIRST_FIELDS: ClassVar = frozenset[str]()
    max_duration: timedelta | None = None
    deadline: datetime | None = None
    heartbeat: timedelta | None = None
    on_end: LifetimeAction = LifetimeAction.STOP
    idle: Idle | None = None
    delete_after_stopped: timedelta | None = None
    schedule: Schedule | None = None
    warn_before: timedelta = timedelta(minutes=10)

    def problems(self, path: Path, *, at: datetime) -> Iterator[Problem]:
        """Every problem of the limits themselves; `at` is the current time. See also `refuse_near_deadline`."""
        yield from _range(self.max_duration, SHORTEST, LONGEST, path, "maxDuration")
        yield from _range(self.heartbeat, SHORTEST_HEARTBEAT, 7 * DAY, path, "heartbeat")
        yield from _range(self.delete_after_stopped, 600 * SECOND, LONGEST, path, "deleteAfterStopped")
        yield from _range(self.warn_before, timedelta(0), DAY, path, "warnBefore")
        yield from _action(self.on_end, path, "onEnd")
        if self.idle is not None:
            yield from self.idle.problems((*path, "idle"))
        if self.schedule is not None:
            yield from self.schedule.problems((*path, "schedule"), at=at)
        if self == Lifetime(on_end=self.on_end, warn_before=self.warn_before):
            yield _problem("Give at least one limit.", path)

    def to_json(self) -> dict[str, Any]:
        return _LIFETIME.dump_python(self, mode="json", exclude_none=True)


@dataclass(frozen=True, slots=True)
class LifetimeChange:
    """The new limits; None removes them."""

    limits: Lifetime | None


_LIFETIME = TypeAdapter(Lifetime)
IDLE = TypeAdapter(Idle)


def read(stored: dict[str, Any]) -> Lifetime:
    """The limits of a row."""
    return _LIFETIME.validate_python(stored)


def refuse_near_deadline(limits: Lifetime | None, path: Path, *, at: datetime) -> None:
    """Raise Invalid if the deadline is too near.

    Ask only once the request's key is known to be new: a request that was accepted is not refused when it is sent
    again, though its deadline has come nearer since.
    """
    if limits is not None and limits.deadline is not None and limits.deadline < at + SHORTEST:
        raise Invalid([_problem("It must be at least 300 s ahead.", path, "deadline")])


def _range(value: timedelta | None, least: timedelta, most: timedelta, path: Path, name: str) -> Iterator[Problem]:
    if value is not None and not least <= value <= most:
        yield _problem(f"It must be {least // SECOND} to {most // SECOND} s.", path, name)


def _action(action: LifetimeAction, path: Path, name: str) -> Iterator[Problem]:
    if action is LifetimeAction.OTHER:
        yield _problem("It must be STOP or DELETE.", path, name)


def _problem(message: str, path: Path, *more: str) -> Problem:
    return Problem(INVALID_LIFETIME, message, (*path, *more))


def seconds_to_end(limits: Lifetime | None, *, at: datetime) -> float | None:
    """How long a run that begins now can last at most; None without a hard end."""
    if limits is None:
        return None
    left = None if limits.deadline is None else max(timedelta(0), limits.deadline - at)
    ends = [each.total_seconds() for each in (limits.max_duration, left) if each is not None]
    return min(ends, default=None)
