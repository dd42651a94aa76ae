"""Which step comes next in which part of an instance's life, and when its job has to run."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from server.enums import InstanceStatus, LifetimeAction, OperationKind, StepReason
from server.instances.limits.spec import Idle, Lifetime, Schedule
from server.instances.limits.steps import (
    METRICS_LAG,
    UNCERTAIN,
    LifetimeStep,
    State,
    View,
    next_step,
    step_at,
    wake_at,
    warning_times,
    warnings_at,
)

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
BEGUN = datetime(2026, 11, 18, 6, 30, tzinfo=UTC)  # a Wednesday
S, DELETE = InstanceStatus, LifetimeAction.DELETE


def step_of(
    status: InstanceStatus = S.READY, *, state: dict[str, Any] | None = None, **given: Any
) -> LifetimeStep | None:
    columns = {"heartbeat_at": None, "novita_id": "m-1", "novita_status": "running", "run_accepted_at": BEGUN}
    fields = {name: given.pop(name, value) for name, value in columns.items()}
    row = View(
        status=status, status_since=BEGUN, lifetime=Lifetime(**given).to_json(), lifetime_state=state or {}, **fields
    )
    return next_step(row)


@pytest.mark.parametrize(
    ("limits", "step"),
    [
        ({"max_duration": HOUR}, None),
        ({"heartbeat": HOUR}, None),
        ({"idle": Idle()}, None),
        ({"deadline": BEGUN + HOUR}, None),  # a stop: it is stopped
        ({"schedule": Schedule(stop=("0 18 * * *",))}, None),
        ({"deadline": BEGUN + HOUR, "on_end": DELETE}, (BEGUN + HOUR, "DELETE", "DEADLINE")),
        ({"delete_after_stopped": HOUR, "max_duration": MINUTE}, (BEGUN + HOUR, "DELETE", "STOPPED")),
        ({"schedule": Schedule(start=("0 8 * * *",))}, (BEGUN.replace(hour=8, minute=0), "START", "SCHEDULE")),
        # A start that the deadline would end at once is none.
        ({"schedule": Schedule(start=("0 8 * * *",)), "deadline": BEGUN + HOUR}, None),
    ],
)
def test_stopped_instance_keeps_only_the_limits_of_stopped_ones(limits: dict[str, Any], step: tuple[Any, ...] | None):
    found = step_of(S.EXITED, run_accepted_at=None, **limits)
    assert (found and (found.at, found.action, found.reason)) == step


@pytest.mark.parametrize(
    ("limits", "at", "reason"),
    [
        ({"max_duration": HOUR, "deadline": BEGUN + 2 * HOUR, "heartbeat": 3 * HOUR}, HOUR, "MAX_DURATION"),
        ({"max_duration": 3 * HOUR, "deadline": BEGUN + HOUR, "heartbeat": 2 * HOUR}, HOUR, "DEADLINE"),
        ({"max_duration": 2 * HOUR, "deadline": BEGUN + 3 * HOUR, "heartbeat": HOUR}, HOUR, "HEARTBEAT"),
        ({"idle": Idle(window=HOUR, grace=5 * MINUTE)}, HOUR + 5 * MINUTE + METRICS_LAG, "IDLE"),
        ({"schedule": Schedule("Europe/Berlin", stop=("30 8 * * 3",))}, HOUR, "SCHEDULE"),
        ({"delete_after_stopped": HOUR, "max_duration": 2 * HOUR}, 2 * HOUR, "MAX_DURATION"),
    ],
)
def test_earliest_limit_of_a_running_instance_comes_next(limits: dict[str, Any], at: timedelta, reason: str):
    step = step_of(**limits)
    assert step is not None
    assert (step.at, step.action, step.reason) == (BEGUN + at, "STOP", reason)


def test_of_two_steps_at_one_time_the_delete_is_taken():
    step = step_of(max_duration=HOUR, on_end=DELETE, schedule=Schedule(stop=("30 7 * * *",)))
    assert (step and step.action) == OperationKind.DELETE


@pytest.mark.parametrize("beaten", [-HOUR, 30 * MINUTE])
def test_heartbeat_counts_from_the_later_of_the_last_one_and_this_runs_acceptance(beaten: timedelta):
    step = step_of(heartbeat=HOUR, heartbeat_at=BEGUN + beaten)
    assert (step and step.at) == BEGUN + max(beaten, timedelta(0)) + HOUR


@pytest.mark.parametrize("limits", [{"max_duration": HOUR}, {"heartbeat": HOUR}, {"idle": Idle()}])
def test_run_that_the_provider_has_not_accepted_has_no_end(limits: dict[str, Any]):
    assert step_of(S.CREATING, run_accepted_at=None, novita_id=None, novita_status=None, **limits) is None


@pytest.mark.parametrize("status", [S.DELETING, S.DELETED])
def test_nothing_follows_a_delete(status: InstanceStatus):
    assert step_of(status, max_duration=HOUR, deadline=BEGUN + HOUR, on_end=DELETE) is None


def test_stop_under_way_needs_no_second_one_and_a_delete_still_comes():
    assert step_of(S.STOPPING, max_duration=HOUR) is None
    step = step_of(S.STOPPING, max_duration=HOUR, on_end=DELETE)
    assert (step and step.action) == OperationKind.DELETE


def test_failed_instance_ends_only_while_it_has_a_machine():
    assert step_of(S.FAILED, max_duration=HOUR) is not None
    assert step_of(S.FAILED, max_duration=HOUR, novita_status="removed") is None
    assert step_of(S.FAILED, max_duration=HOUR, novita_id=None, novita_status=None) is None


def test_failed_end_is_repeated_at_its_time_and_not_before():
    retry_at = BEGUN + 2 * HOUR
    step = step_of(max_duration=HOUR, state={"retry_at": retry_at.isoformat()})
    assert (step and step.at) == retry_at


@pytest.mark.parametrize(
    ("reason", "warn_before", "leads"),
    [
        (StepReason.DEADLINE, 10 * MINUTE, [10 * MINUTE, MINUTE]),
        (StepReason.DEADLINE, timedelta(0), [MINUTE]),
        (StepReason.DEADLINE, MINUTE, [MINUTE]),
        (StepReason.HEARTBEAT, 10 * MINUTE, [MINUTE]),  # heartbeats come every five minutes
        (StepReason.IDLE, 10 * MINUTE, []),
    ],
)
def test_ends_are_announced_at_the_callers_time_and_a_minute_before(
    reason: StepReason, warn_before: timedelta, leads: list[timedelta]
):
    limits = Lifetime(heartbeat=5 * MINUTE, warn_before=warn_before)
    step = LifetimeStep(BEGUN, OperationKind.STOP, reason)
    assert [BEGUN - at for at in warning_times(step, limits)] == leads
    assert warning_times(LifetimeStep(BEGUN, OperationKind.START, StepReason.SCHEDULE), limits) == ()


def test_job_runs_at_the_next_announcement_that_was_not_made():
    limits = Lifetime(deadline=BEGUN + HOUR).to_json()
    end = BEGUN + HOUR
    times: list[datetime] = []
    for sent in range(3):
        state = State(None).with_values(told=[end.isoformat(), sent])
        row = View(S.READY, BEGUN, "m-1", "running", BEGUN, None, limits, state)
        times.append(wake_at(row))
    assert times == [end - 10 * MINUTE, end - MINUTE, end]


@pytest.mark.parametrize(
    ("limits", "beaten", "read_at", "wakes"),
    [
        # An idle end that may come just before it.
        ({"max_duration": HOUR, "idle": Idle(window=50 * MINUTE, grace=timedelta(0))}, None, None, 50 * MINUTE),
        # A heartbeat every five minutes, which moves the end that is next.
        ({"max_duration": HOUR, "heartbeat": 5 * MINUTE}, 49 * MINUTE, None, 50 * MINUTE),
        # A reading that waits for its share of the calls until after the end.
        ({"deadline": BEGUN + HOUR, "idle": Idle(window=30 * MINUTE, grace=timedelta(0))}, None, 2 * HOUR, 50 * MINUTE),
    ],
)
def test_certain_end_is_announced_at_its_time_although_another_may_come_first(
    limits: dict[str, Any], beaten: timedelta | None, read_at: timedelta | None, wakes: timedelta
):
    state = None if read_at is None else {"read_at": (BEGUN + read_at).isoformat()}
    heartbeat_at = None if beaten is None else BEGUN + beaten
    row = View(S.READY, BEGUN, "m-1", "running", BEGUN, heartbeat_at, Lifetime(**limits).to_json(), state)
    step = next_step(row)
    assert step is not None
    assert step.reason in UNCERTAIN
    assert wake_at(row) == BEGUN + wakes

    [ending], told = warnings_at(row, BEGUN + wakes)
    assert (ending.at, ending.reason in UNCERTAIN) == (BEGUN + HOUR, False)
    row.lifetime_state = State(state).with_values(**told)
    assert warnings_at(row, BEGUN + wakes) == ([], {})


def test_metrics_that_are_to_be_read_do_not_delay_what_is_due():
    idle = Idle(window=30 * MINUTE, grace=timedelta(0))
    limits = Lifetime(deadline=BEGUN + HOUR, heartbeat=50 * MINUTE, idle=idle).to_json()
    state = {"read_at": (BEGUN + 2 * HOUR).isoformat()}
    row = View(S.READY, BEGUN, "m-1", "running", BEGUN, None, limits, state)
    reasons = [(step_at(row, BEGUN + minutes * MINUTE) or next_step(row)) for minutes in (20, 40, 50, 60)]
    assert [each and each.reason for each in reasons] == ["IDLE", "IDLE", "HEARTBEAT", "HEARTBEAT"]
    row.heartbeat_at = BEGUN + 20 * MINUTE
    step = step_at(row, BEGUN + HOUR)
    assert (step and step.reason) == StepReason.DEADLINE
    row.lifetime_state = {"told": [(BEGUN + HOUR).isoformat(), 2]}
    assert wake_at(row) == BEGUN + 20 * MINUTE + 30 * MINUTE + METRICS_LAG
    row.lifetime_state |= state
    assert wake_at(row) == BEGUN + HOUR
