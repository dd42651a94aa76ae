"""Types and inputs of lifetimes."""

from datetime import datetime, timedelta
from typing import Any

import strawberry

from schema.enums import described
from server.conversion import convert
from server.db import tables
from server.enums import LifetimeAction, OperationKind, StepReason
from server.errors import Invalid, Problem
from server.instances.limits import policy, spec
from server.instances.limits.steps import UNCERTAIN, State, next_step
from server.lifetimes.stop_effects import DELETE_KEEPS, STOP_KEEPS

described(
    LifetimeAction,
    description="What happens to an instance at the end of its lifetime.",
    values={
        "STOP": STOP_KEEPS,
        "DELETE": DELETE_KEEPS,
        "OTHER": "Another action, of a newer version of the server. Refused in inputs.",
    },
)

MAX_DURATION = "Longest run, from the provider's acceptance of its create or start: 300 s to 90 days."
DEADLINE = "Fixed end. A start does not move it."
HEARTBEAT = "Longest time without a call of `heartbeat`, 60 s to 7 days."
ON_END = "What happens at the earliest of maxDuration, deadline and heartbeat."
IDLE = "End of an instance whose GPUs are idle."
DELETE_AFTER_STOPPED = "Time in EXITED after which it is deleted, 600 s to 90 days."
SCHEDULE = "Times at which it is started and stopped."
WARN_BEFORE = "How long before an end `lifetime.ending` announces it, up to a day; another announces it at 60 s."
BELOW = "A GPU is idle below this utilisation, 1 to 100 percent."
WINDOW = "How long every sample of every GPU has to be idle, 300 s to a day."
GRACE = "Time after the start of a run that is never idle, up to a day."
TIMEZONE = "Time zone of the expressions, such as Europe/Berlin."
CRON = "Cron expressions of five fields, such as `0 18 * * 1-5`; at most 10."


@strawberry.input(description="When an instance counts as idle, and what happens then.")
class IdleInput:
    gpu_below_percent: int = strawberry.field(default=5, description=BELOW)
    window: timedelta = strawberry.field(default=timedelta(seconds=1800), description=WINDOW)
    grace: timedelta = strawberry.field(default=timedelta(seconds=900), description=GRACE)
    action: LifetimeAction = strawberry.field(default=LifetimeAction.STOP, description="What happens.")

    def to_domain(self) -> spec.Idle:
        return convert(spec.Idle, self)


@strawberry.input(description="Times at which an instance is started and stopped.")
class ScheduleInput:
    timezone: str = strawberry.field(default="UTC", description=TIMEZONE)
    start: list[str] | None = strawberry.field(default=None, description=CRON)
    stop: list[str] | None = strawberry.field(default=None, description=CRON)

    def to_domain(self) -> spec.Schedule:
        return spec.Schedule(self.timezone, tuple(self.start or ()), tuple(self.stop or ()))


@strawberry.input(description="Limits of an instance's lifetime, enforced by the server. Give at least one.")
class LifetimeInput:
    max_duration: timedelta | None = strawberry.field(default=None, description=MAX_DURATION)
    deadline: datetime | None = strawberry.field(default=None, description=DEADLINE + " At least 300 s ahead.")
    heartbeat: timedelta | None = strawberry.field(default=None, description=HEARTBEAT)
    on_end: LifetimeAction = strawberry.field(default=LifetimeAction.STOP, description=ON_END)
    idle: IdleInput | None = strawberry.field(default=None, description=IDLE)
    delete_after_stopped: timedelta | None = strawberry.field(default=None, description=DELETE_AFTER_STOPPED)
    schedule: ScheduleInput | None = strawberry.field(default=None, description=SCHEDULE)
    warn_before: timedelta = strawberry.field(default=timedelta(seconds=600), description=WARN_BEFORE)

    def to_domain(self) -> spec.Lifetime:
        return convert(
            spec.Lifetime,
            self,
            idle=None if self.idle is None else self.idle.to_domain(),
            schedule=None if self.schedule is None else self.schedule.to_domain(),
        )


@strawberry.input(one_of=True, description="Change of an instance's lifetime.")
class LifetimeChange:
    set: LifetimeInput | None = strawberry.field(
        default=strawberry.UNSET, description="New limits; they replace all present ones."
    )
    remove: bool | None = strawberry.field(default=strawberry.UNSET, description="true: remove all limits.")

    def to_domain(self) -> spec.LifetimeChange:
        if self.remove is False:
            message = "Omit `lifetime` to keep it unchanged."
            raise Invalid([Problem(spec.INVALID_LIFETIME, message, ("input", "lifetime", "remove"))])
        return spec.LifetimeChange(self.set.to_domain() if isinstance(self.set, LifetimeInput) else None)


@strawberry.type(description="When an instance counts as idle, and what happens then.")
class IdleLimit:
    gpu_below_percent: int = strawberry.field(description=BELOW)
    window: timedelta = strawberry.field(description=WINDOW)
    grace: timedelta = strawberry.field(description=GRACE)
    action: LifetimeAction = strawberry.field(description="What happens.")

    @classmethod
    def of(cls, limit: spec.Idle | None) -> "IdleLimit | None":
        return None if limit is None else convert(cls, limit)


@strawberry.type(description="Times at which an instance is started and stopped.")
class Schedule:
    timezone: str = strawberry.field(description=TIMEZONE)
    start: list[str] = strawberry.field(description=CRON)
    stop: list[str] = strawberry.field(description=CRON)


@strawberry.type(description="The next thing that the server will do to an instance because of its lifetime.")
class LifetimeStep:
    at: datetime = strawberry.field(description="When. For IDLE: the earliest time, if the GPUs are idle until then.")
    action: OperationKind = strawberry.field(description="START (schedules only), STOP or DELETE.")
    reason: str = strawberry.field(description="The limit: " + ", ".join(StepReason) + ".")


@strawberry.type(description="Limits of an instance's lifetime, and the next action that follows from them.")
class Lifetime:
    max_duration: timedelta | None = strawberry.field(description=MAX_DURATION)
    deadline: datetime | None = strawberry.field(description=DEADLINE)
    heartbeat: timedelta | None = strawberry.field(description=HEARTBEAT)
    on_end: LifetimeAction = strawberry.field(description=ON_END)
    idle: IdleLimit | None = strawberry.field(description=IDLE)
    delete_after_stopped: timedelta | None = strawberry.field(description=DELETE_AFTER_STOPPED)
    schedule: Schedule | None = strawberry.field(description=SCHEDULE)
    warn_before: timedelta = strawberry.field(description=WARN_BEFORE)
    next: LifetimeStep | None = strawberry.field(description="The next action; null if none is known now.")
    idle_since: datetime | None = strawberry.field(description="Since when its GPUs are idle, as far as known.")
    idle_known_until: datetime | None = strawberry.field(description="Until when its metrics were read.")
    last_heartbeat_at: datetime | None = strawberry.field(description="Last heartbeat or extension.")

    @classmethod
    def of(cls, row: tables.InstanceLike) -> "Lifetime | None":
        if row.lifetime is None:
            return None
        limits, state = spec.read(row.lifetime), State(row.lifetime_state)
        schedule = limits.schedule
        return convert(
            cls,
            limits,
            idle=IdleLimit.of(limits.idle),
            schedule=None
            if schedule is None
            else Schedule(timezone=schedule.timezone, start=list(schedule.start), stop=list(schedule.stop)),
            next=_next(row),
            idle_since=state.time("idle_since"),
            idle_known_until=state.time("known_until"),
            last_heartbeat_at=row.heartbeat_at,
        )


def _next(row: tables.InstanceLike) -> LifetimeStep | None:
    """The stored step; a heartbeat moves its own end and that of idleness without writing them."""
    values: Any = (row.lifetime_due_at, row.lifetime_action, row.lifetime_reason)
    if row.lifetime_reason in UNCERTAIN and row.heartbeat_at is not None:
        step = next_step(row)
        values = (None, None, None) if step is None else (step.at, step.action, step.reason)
    at, action, reason = values
    return None if at is None else LifetimeStep(at=at, action=OperationKind(action), reason=str(reason))


@strawberry.type(description="A project's rules for lifetimes.")
class LifetimePolicy:
    required: bool = strawberry.field(description="Whether create and start need maxDuration or deadline.")
    max_duration_at_most: timedelta | None = strawberry.field(
        description="Longest run; bounds maxDuration and deadline, also when they are extended."
    )
    default_max_duration: timedelta | None = strawberry.field(
        description="Longest run of requests that give neither maxDuration nor deadline."
    )
    default_idle: IdleLimit | None = strawberry.field(description="Idle limit of requests that give none.")

    @classmethod
    def of(cls, rules: policy.Policy) -> "LifetimePolicy":
        return convert(cls, rules, default_idle=IdleLimit.of(rules.default_idle))
