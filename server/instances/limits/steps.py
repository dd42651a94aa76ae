"""Which step of an instance's lifetime comes next, and when. Pure functions of the row."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, TypeAlias

from server.db.tables import InstanceLike
from server.enums import InstanceStatus, LifetimeAction, OperationKind, StepReason
from server.instances.limits.schedule import next_fire
from server.instances.limits.spec import Lifetime, read

S = InstanceStatus
# The provider's metrics are about a minute late; a window is read when all of it can be there.
METRICS_LAG = timedelta(seconds=90)
LAST_WARNING = timedelta(seconds=60)
# What may not come although it is next.
UNCERTAIN = frozenset({StepReason.IDLE, StepReason.HEARTBEAT})
# What an end leaves of its announcements.
UNTOLD: dict[str, None] = dict.fromkeys(("told", "told_heartbeat"))
ENDS: dict[LifetimeAction, OperationKind] = {
    LifetimeAction.STOP: OperationKind.STOP,
    LifetimeAction.DELETE: OperationKind.DELETE,
}


@dataclass(slots=True)
class View:
    """The columns that decide about the next step, as they will be after a change."""

    status: str
    status_since: datetime
    novita_id: str | None
    novita_status: str | None
    run_accepted_at: datetime | None
    heartbeat_at: datetime | None
    lifetime: dict[str, Any] | None
    lifetime_state: dict[str, Any] | None


COLUMNS = tuple(each.name for each in fields(View))
Limited: TypeAlias = InstanceLike | View


@dataclass(frozen=True, slots=True)
class LifetimeStep:
    """What will be done to an instance, and which limit demands it."""

    at: datetime
    action: OperationKind
    reason: StepReason


class Part(Enum):
    """The part of an instance's life that a status belongs to: each has other limits."""

    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    OVER = "OVER"


def part_of(status: str) -> Part:
    if status == S.EXITED:
        return Part.STOPPED
    return Part.OVER if status in (S.DELETING, S.DELETED) else Part.RUNNING


def next_step(row: Limited) -> LifetimeStep | None:
    """The earliest step; of two at one time the delete. None if nothing will be done."""
    return next(iter(coming_steps(row)), None)


def coming_steps(row: Limited) -> list[LifetimeStep]:
    """The next step, and those that come if it does not, in order: the metrics may show that an instance is not idle,
    and a heartbeat moves its own end. The last of them is certain."""
    if row.lifetime is None:
        return []
    limits, state = read(row.lifetime), State(row.lifetime_state)
    retry_at = state.time("retry_at")
    found: list[LifetimeStep] = []
    for step in sorted(_steps(row, limits, state), key=lambda each: (each.at, each.action != OperationKind.DELETE)):
        is_repeated = retry_at is not None and step.at < retry_at
        found.append(LifetimeStep(retry_at, step.action, step.reason) if retry_at is not None and is_repeated else step)
        if step.reason not in UNCERTAIN:
            break
    return found


def step_at(row: Limited, moment: datetime) -> LifetimeStep | None:
    """The step that is due; else the next. What is due does not wait for the metrics of an idle end."""
    steps = coming_steps(row)
    due = (each for each in steps if each.at <= moment and each.reason is not StepReason.IDLE)
    return next(due, steps[0] if steps else None)


def warning_times(step: LifetimeStep, limits: Lifetime) -> tuple[datetime, ...]:
    """When the end is announced. An idle end is not known in advance, and a start is no end."""
    if step.reason is StepReason.IDLE or step.action is OperationKind.START:
        return ()
    leads = {limits.warn_before, LAST_WARNING} if limits.warn_before else {LAST_WARNING}
    if step.reason is StepReason.HEARTBEAT and limits.heartbeat is not None:
        # Else every heartbeat that is waited for would be announced as the end.
        leads = {lead for lead in leads if lead < limits.heartbeat}
    return tuple(sorted(step.at - lead for lead in leads))


def wake_at(row: Limited) -> datetime | None:
    """When the job has to run next: for a warning that is to be sent, for a reading of metrics, or for a step."""
    if row.lifetime is None:
        return None
    limits, state = read(row.lifetime), State(row.lifetime_state)
    return min((at for step in coming_steps(row) for at in _wakes_of(step, limits, state)), default=None)


def _wakes_of(step: LifetimeStep, limits: Lifetime, state: "State") -> Iterator[datetime]:
    reading = state.time("read_at")
    if step.reason is StepReason.IDLE and reading is not None:
        yield max(step.at, reading)
        return
    yield step.at
    yield from _unsent(step, limits, state)


def warnings_at(row: Limited, moment: datetime) -> tuple[list[LifetimeStep], dict[str, Any]]:
    """The ends to announce now, and what the state says then; of several announcements of one end, only one is made."""
    if row.lifetime is None:
        return [], {}
    limits, state = read(row.lifetime), State(row.lifetime_state)
    steps: list[LifetimeStep] = []
    told: dict[str, Any] = {}
    for step in coming_steps(row):
        due = sum(each <= moment for each in _unsent(step, limits, state))
        if due:
            steps.append(step)
            told[told_name(step)] = [step.at.isoformat(), state.warnings_sent(step) + due]
    return steps, told


def _unsent(step: LifetimeStep, limits: Lifetime, state: "State") -> tuple[datetime, ...]:
    """An end that failed was announced; its repetitions are not."""
    is_repetition = state.time("due") is not None
    return () if is_repetition else warning_times(step, limits)[state.warnings_sent(step) :]


def told_name(step: LifetimeStep) -> str:
    """A heartbeat's end and the certain end behind it are announced independently of each other."""
    return "told_heartbeat" if step.reason is StepReason.HEARTBEAT else "told"


class State:
    """What has happened to the limits in this part of the instance's life; stored as `lifetime_state`."""

    def __init__(self, stored: Mapping[str, Any] | None) -> None:
        self._stored = stored or {}

    def time(self, name: str) -> datetime | None:
        value = self._stored.get(name)
        return None if value is None else datetime.fromisoformat(value)

    def number(self, name: str) -> float:
        return float(self._stored.get(name) or 0)

    def warnings_sent(self, step: LifetimeStep) -> int:
        """How many warnings of this step were sent; a moved step is announced again."""
        told = self._stored.get(told_name(step))
        return int(told[1]) if told and datetime.fromisoformat(told[0]) == step.at else 0

    def with_values(self, **values: Any) -> dict[str, Any]:
        """The state to store; None removes a value."""
        changed = {name: value.isoformat() if isinstance(value, datetime) else value for name, value in values.items()}
        return {name: value for name, value in {**self._stored, **changed}.items() if value is not None}


def run_end(row: Limited, limits: Lifetime) -> datetime | None:
    """When `max_duration` ends this run, with its extensions; None before the provider has accepted the run."""
    if limits.max_duration is None or row.run_accepted_at is None:
        return None
    state = State(row.lifetime_state)
    end = row.run_accepted_at + limits.max_duration + timedelta(seconds=state.number("extra"))
    return max(end, state.time("floor") or end)


def seconds_left(row: Limited, limits: Lifetime | None, *, at: datetime) -> float | None:
    """How long the present run can last at most under these limits; None without a hard end."""
    ends = [] if limits is None else [each for each in (run_end(row, limits), limits.deadline) if each is not None]
    return max(0.0, (min(ends) - at).total_seconds()) if ends else None


def heartbeat_end(
    limits: Lifetime, *, run_accepted_at: datetime | None, heartbeat_at: datetime | None
) -> datetime | None:
    """When the next heartbeat has to be there; None before the provider has accepted the run."""
    if limits.heartbeat is None or run_accepted_at is None:
        return None
    return max(run_accepted_at, heartbeat_at or run_accepted_at) + limits.heartbeat


def idle_from(row: Limited, limits: Lifetime) -> datetime | None:
    """Since when the GPUs may count as idle: nothing before this time does."""
    if limits.idle is None or row.run_accepted_at is None:
        return None
    state = State(row.lifetime_state)
    times = (row.run_accepted_at + limits.idle.grace, row.heartbeat_at, state.time("busy_at"), state.time("since"))
    return max(each for each in times if each is not None)


def _steps(row: Limited, limits: Lifetime, state: State) -> Iterator[LifetimeStep]:
    part = part_of(row.status)
    if part is Part.OVER:
        return
    end = ENDS[limits.on_end]
    if part is Part.STOPPED:
        yield from _stopped_steps(row, limits, state)
    elif row.status == S.FAILED and (row.novita_id is None or row.novita_status == "removed"):
        pass  # there is no machine to end
    else:
        yield from (step for step in _running_steps(row, limits, state) if _can_end(row, step))
        return
    if limits.deadline is not None and end is OperationKind.DELETE:
        yield LifetimeStep(limits.deadline, end, StepReason.DEADLINE)


def _can_end(row: Limited, step: LifetimeStep) -> bool:
    """A stop that is under way needs no second one; it arms the limits again if it fails."""
    return row.status != S.STOPPING or step.action is OperationKind.DELETE


def _stopped_steps(row: Limited, limits: Lifetime, state: State) -> Iterator[LifetimeStep]:
    if limits.delete_after_stopped is not None:
        yield LifetimeStep(row.status_since + limits.delete_after_stopped, OperationKind.DELETE, StepReason.STOPPED)
    schedule = limits.schedule
    if schedule is not None:
        after = state.time("since") or row.status_since
        start = next_fire(schedule.start, schedule.timezone, after=after)
        if start is not None and (limits.deadline is None or start < limits.deadline):
            yield LifetimeStep(start, OperationKind.START, StepReason.SCHEDULE)


def _running_steps(row: Limited, limits: Lifetime, state: State) -> Iterator[LifetimeStep]:
    end = ENDS[limits.on_end]
    if limits.deadline is not None:
        yield LifetimeStep(limits.deadline, end, StepReason.DEADLINE)
    at = run_end(row, limits)
    if at is not None:
        yield LifetimeStep(at, end, StepReason.MAX_DURATION)
    at = heartbeat_end(limits, run_accepted_at=row.run_accepted_at, heartbeat_at=row.heartbeat_at)
    if at is not None:
        yield LifetimeStep(at, end, StepReason.HEARTBEAT)
    quiet = idle_from(row, limits)
    if limits.idle is not None and quiet is not None:
        yield LifetimeStep(quiet + limits.idle.window + METRICS_LAG, ENDS[limits.idle.action], StepReason.IDLE)
    schedule = limits.schedule
    if schedule is not None:
        stop = next_fire(schedule.stop, schedule.timezone, after=state.time("since") or row.status_since)
        if stop is not None:
            yield LifetimeStep(stop, OperationKind.STOP, StepReason.SCHEDULE)
