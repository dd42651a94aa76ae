"""Takes the next step of an instance's lifetime: warns, ends or starts it, or says that its metrics have to be read.

Everything is decided in one transaction under the row's lock, by the database's clock. An extension takes the same
lock, so it comes either before the end, which then is not due, or after it and is refused.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.tables import Instance, Operation
from server.enums import InstanceStatus, OperationKind, OperationReason, OperationStatus, StepReason
from server.errors import BudgetExceeded
from server.events.event import EventType
from server.instances import operations, transitions
from server.instances.commands.cancel import end_create
from server.instances.commands.delete import begin_delete
from server.instances.commands.lifecycle import begin_verb
from server.instances.commands.revert import end_start, is_uncalled
from server.instances.limits import arming
from server.instances.limits.schedule import last_fire
from server.instances.limits.spec import Idle, read
from server.instances.limits.steps import METRICS_LAG, UNTOLD, LifetimeStep, State, next_step, step_at, warnings_at
from server.instances.status import VERBS, actions, has_machine
from server.lifetimes.idle import Verdict
from server.lifetimes.share import take_reading
from server.spend.refusals import QuotaExceeded

# An operation of a caller may end by itself for this long before a delete supersedes it.
WAIT_FOR_OPERATION = timedelta(minutes=2)
LOOK_AGAIN = timedelta(seconds=5)
# A scheduled time that is older was missed and is left out.
MISSED_AFTER = timedelta(hours=1)
OVERDUE_EVERY = timedelta(hours=1)
# If the worker dies while it reads metrics, another run does it after this time.
READ_TIMEOUT = timedelta(minutes=2)
REASONS = {StepReason.IDLE: OperationReason.IDLE, StepReason.SCHEDULE: OperationReason.SCHEDULE}
DATABASE_TIME = text("SELECT clock_timestamp()")
# What an end that failed leaves in the state until it is repeated; over once the instance is not to end any more.
FAILED_END: dict[str, None] = dict.fromkeys(("due", "retry_at", "overdue_at"))


@dataclass(frozen=True, slots=True)
class Reading:
    """The window of metrics that decides whether an instance is idle."""

    instance_id: UUID
    novita_id: str
    gpu_count: int
    limit: Idle
    since: datetime
    until: datetime


async def take_step(
    session: AsyncSession, instance_id: UUID, *, retry: timedelta, calls_per_minute: float
) -> Reading | None:
    """Do what is due, and keep the job for what comes next. Returns the metrics to read, for `finish_reading`."""
    instance = await transitions.lock(session, instance_id)
    moment = await database_time(session)
    step = step_at(instance, moment)
    reading, again = None, None
    if step is None:
        await transitions.write_silently(session, instance)
    elif step.at > moment:
        await _warn(session, await _forget_failed_end(session, instance, step), moment)
    elif step.reason is StepReason.IDLE:
        instance = await _warn(session, instance, moment)
        reading, again = await _plan_reading(session, instance, moment, calls_per_minute)
    elif step.reason is StepReason.SCHEDULE:
        again = await _follow_schedule(session, instance, step, moment, retry)
    else:
        again = await _act(session, instance, step, moment, retry)
    await _keep(session, await transitions.lock(session, instance_id), again)
    return reading


async def finish_reading(session: AsyncSession, reading: Reading, verdict: Verdict, *, retry: timedelta) -> None:
    """Act on what the metrics showed, unless a heartbeat or an extension has come since they were read."""
    instance = await transitions.lock(session, reading.instance_id)
    moment = await database_time(session)
    step, again = next_step(instance), None
    if step is not None and step.reason is StepReason.IDLE and step.at <= moment:
        state = State(instance.lifetime_state)
        if verdict.is_idle:
            again = await _act(session, instance, step, moment, retry)
        elif verdict.busy_at is not None:
            values = {"busy_at": verdict.busy_at, "idle_since": verdict.idle_since, "known_until": reading.until}
            await _note(session, instance, **FAILED_END, **values, blind=None, read_at=None)
        else:
            blind = int(state.number("blind")) + 1
            values = {"busy_at": reading.until, "blind": blind, "read_at": None}
            instance = await _note(session, instance, **FAILED_END, **values)
            if blind == 2:
                await _tell(session, EventType.LIFETIME_IDLE_UNKNOWN, instance, since=reading.since)
    else:
        await _end_reading(session, instance)
    await _keep(session, await transitions.lock(session, instance.id), again)


async def _end_reading(session: AsyncSession, instance: Instance) -> None:
    """A heartbeat, an extension or another end has come while the metrics were read."""
    if State(instance.lifetime_state).time("read_at") is None:
        await transitions.write_silently(session, instance)  # the row may still show the time of before
    else:
        await _note(session, instance, read_at=None)


async def database_time(session: AsyncSession) -> datetime:
    return (await session.execute(DATABASE_TIME)).scalar_one()


async def _forget_failed_end(session: AsyncSession, instance: Instance, step: LifetimeStep) -> Instance:
    """A heartbeat has moved the end that failed: it is neither repeated nor overdue."""
    state = State(instance.lifetime_state)
    if state.time("due") is None or step.at == state.time("retry_at"):
        return instance
    return await _note(session, instance, **FAILED_END)


async def _warn(session: AsyncSession, instance: Instance, moment: datetime) -> Instance:
    """Announce the ends that it is time for."""
    steps, told = warnings_at(instance, moment)
    # Without any, the row still shows the time of before: a heartbeat may have moved the end.
    state = {"lifetime_state": State(instance.lifetime_state).with_values(**told)} if told else {}
    instance = await transitions.write_silently(session, instance, **state)
    for step in steps:
        await _tell(session, EventType.LIFETIME_ENDING, instance, at=step.at, action=step.action, reason=step.reason)
    return instance


async def _plan_reading(
    session: AsyncSession, instance: Instance, moment: datetime, calls_per_minute: float
) -> tuple[Reading | None, datetime | None]:
    """The window to read now; else when to look again, because an operation is open.

    While the calls are used up, and while another run reads the window, the state says when it is read next. What comes
    before that wakes the job all the same.
    """
    if await operations.open_operation(session, instance.id) is not None:
        return None, moment + LOOK_AGAIN
    waiting_until = State(instance.lifetime_state).time("read_at")
    if waiting_until is not None and waiting_until > moment:
        return None, None
    read_at = await take_reading(session, instance, calls_per_minute=calls_per_minute)
    instance = await _note(session, instance, read_at=read_at or moment + READ_TIMEOUT)
    if read_at is not None:
        return None, None
    limit = None if instance.lifetime is None else read(instance.lifetime).idle
    if limit is None or instance.novita_id is None:
        return None, None
    until = moment - METRICS_LAG
    window = Reading(instance.id, instance.novita_id, instance.gpu_count, limit, until - limit.window, until)
    return window, None


async def _follow_schedule(
    session: AsyncSession, instance: Instance, step: LifetimeStep, moment: datetime, retry: timedelta
) -> datetime | None:
    """Take the latest scheduled step, if no worker ran at its time and it is not too old; the others are left out."""
    limits = None if instance.lifetime is None else read(instance.lifetime)
    if limits is None or limits.schedule is None:
        return None
    schedule = limits.schedule
    starts = last_fire(schedule.start, schedule.timezone, until=moment)
    stops = last_fire(schedule.stop, schedule.timezone, until=moment)
    times = [(at, kind) for at, kind in ((starts, OperationKind.START), (stops, OperationKind.STOP)) if at is not None]
    latest, kind = max(times, key=lambda each: each[0], default=(step.at, step.action))
    is_repeated = State(instance.lifetime_state).time("due") is not None  # its stop failed, however long ago
    is_recent = is_repeated or moment - latest < MISSED_AFTER
    is_too_late = kind is OperationKind.START and limits.deadline is not None and limits.deadline <= moment
    if kind is step.action and is_recent and not is_too_late:
        return await _act(session, instance, LifetimeStep(latest, kind, step.reason), moment, retry)
    instance = await _note(session, instance, **FAILED_END, since=moment)
    values = {"at": step.at, "action": step.action, "reason": step.reason, "outcome": "MISSED"}
    await _tell(session, EventType.LIFETIME_ENDED, instance, **values)
    return None


async def _act(
    session: AsyncSession, instance: Instance, step: LifetimeStep, moment: datetime, retry: timedelta
) -> datetime | None:
    """Begin the step's operation as if a caller had requested it; return when to look again, while it can't begin."""
    state = State(instance.lifetime_state)
    due = state.time("due") or step.at
    await operations.end_replacement(session, instance)
    running = await operations.open_operation(session, instance.id)
    is_create = running is not None and running.kind == OperationKind.CREATE
    if running is not None and await _may_end(session, running):
        return await _end_start(session, instance, running, step, moment)
    if running is not None and not is_create:
        if step.action is not OperationKind.DELETE or moment < due + WAIT_FOR_OPERATION:
            return moment + LOOK_AGAIN
        await operations.finish(session, running.id, OperationStatus.SUPERSEDED)
    elif running is None and step.action not in allowed(instance):
        return moment + LOOK_AGAIN
    is_first = state.time("due") is None
    told_at = state.time("overdue_at")
    is_told_again = not is_first and (told_at is None or moment - told_at >= OVERDUE_EVERY)
    values: dict[str, Any] = {"due": due, "retry_at": moment + retry, "read_at": None, **UNTOLD}
    if is_told_again:
        values["overdue_at"] = moment
    changes = {"status_reason": str(step.reason), "lifetime_state": state.with_values(**values)}
    reason = REASONS.get(step.reason, OperationReason.LIFETIME)
    if running is not None and is_create:
        await end_create(session, instance, running, reason=reason, changes=changes)
    elif step.action is OperationKind.DELETE:
        await begin_delete(session, instance, by=None, reason=reason, changes=changes)
    else:
        try:
            await begin_verb(session, VERBS[step.action], instance, by=None, changes=changes, reason=reason)
        except (BudgetExceeded, QuotaExceeded) as error:  # of a start; it is left out, as one that was missed
            instance = await _note(session, instance, **FAILED_END, since=moment)
            values = {"at": due, "action": step.action, "reason": step.reason, "outcome": error.code}
            await _tell(session, EventType.LIFETIME_ENDED, instance, **values)
            return None
    ended = await transitions.lock(session, instance.id)
    step_values = {"at": due, "action": step.action, "reason": step.reason}
    if is_first:
        await _tell(session, EventType.LIFETIME_ENDED, ended, **step_values, outcome="ACCEPTED")
    if is_told_again:
        await _tell(session, EventType.LIFETIME_OVERDUE, ended, **step_values)
    return None


async def _may_end(session: AsyncSession, running: Operation) -> bool:
    """A wait of a recovery is not meant: it ends at the deadline by itself."""
    is_start = running.kind == OperationKind.START and running.reason != OperationReason.RECOVERY
    return is_start and await is_uncalled(session, running)


async def _end_start(
    session: AsyncSession, instance: Instance, running: Operation, step: LifetimeStep, moment: datetime
) -> datetime | None:
    """End a start that waits for capacity: nothing runs that would have to be stopped. A delete follows at once."""
    state = State(instance.lifetime_state).with_values(**FAILED_END, **UNTOLD)
    values: dict[str, Any] = {"status_reason": str(step.reason), "lifetime_state": state}
    ended = await end_start(session, instance, running, by=None, **values)
    if step.action is OperationKind.DELETE:
        return moment
    shown_values = {"at": step.at, "action": step.action, "reason": step.reason, "outcome": "ACCEPTED"}
    await _tell(session, EventType.LIFETIME_ENDED, ended, **shown_values)
    return None


async def _keep(session: AsyncSession, instance: Instance, again: datetime | None) -> None:
    """The job for what comes next. If nothing does, there is none to remove: this run has released its key."""
    if again is not None or instance.lifetime_due_at is not None:
        await arming.keep(session, instance, at=again)


def allowed(instance: Instance) -> tuple[OperationKind, ...]:
    """The verbs that its status allows."""
    return actions(InstanceStatus(instance.status), has_machine=has_machine(instance))


async def _note(session: AsyncSession, instance: Instance, **values: Any) -> Instance:
    state = State(instance.lifetime_state).with_values(**values)
    return await transitions.write_silently(session, instance, lifetime_state=state)


async def _tell(session: AsyncSession, type: EventType, instance: Instance, **values: Any) -> None:
    await transitions.record_event(session, type, instance, cause=transitions.Cause(), values=shown(**values))


def shown(**values: Any) -> dict[str, str]:
    """The values of an event, as text."""
    return {name: each.isoformat() if isinstance(each, datetime) else str(each) for name, each in values.items()}
