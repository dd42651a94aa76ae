"""The check of lifetimes in a chaos run detects ends that are early, late or missing, and excuses what must wait."""

from typing import Any

import pytest

from tests.chaos.availability import Availability
from tests.chaos.lifetimes import LATE, RETRY, Op, Version, early_ends, ends_of, late_ends
from tests.chaos.schedule import WORKERS

BEGAN, DUE = 1000.0, 1020.0


def versions(**more: Any) -> list[Version]:
    """Accepted and READY, and due at DUE."""
    values = {"run": BEGAN, "run_end": DUE, **more}
    return [Version(BEGAN - 1, 1, "CREATING"), Version(BEGAN, 2, "READY", **values)]


def late(
    rows: list[Version], *operations: Op, until: float = DUE + LATE + 20, available: Availability | None = None
) -> list[str]:
    return list(late_ends(rows, operations, available or Availability(), until=until, offset=0.0))


@pytest.mark.parametrize(("at", "wrong"), [(DUE, []), (DUE - 0.5, ["ended 0.500 s early"])])
def test_end_before_its_time_is_noticed(at: float, wrong: list[str]):
    stop = Op(at, at + 1, 9, "STOP", "LIFETIME")
    rows = [*versions(), Version(at + 0.001, 9, "STOPPING", run=BEGAN, run_end=DUE + 99)]

    assert list(early_ends(rows, ends_of(rows, [stop]))) == wrong


def test_end_without_a_limit_is_noticed():
    rows = versions(run_end=None)

    assert list(early_ends(rows, ends_of(rows, [Op(DUE, None, 9, "STOP", "LIFETIME")]))) == [
        "ended though no limit was set"
    ]


def test_create_that_is_cancelled_before_it_has_a_machine_is_an_end():
    rows = [
        Version(BEGAN, 1, "CREATING", deadline=DUE),
        Version(DUE - 2, 9, "DELETING", deadline=DUE),
        Version(DUE - 2, 9, "DELETED", deadline=DUE, reason="DEADLINE"),
    ]

    assert list(early_ends(rows, ends_of(rows, []))) == ["ended 2.000 s early"]


@pytest.mark.parametrize("wrong_by", [-3600.0, 30.0])
def test_run_that_counts_from_another_time_is_noticed(wrong_by: float):
    rows = versions(run=BEGAN + wrong_by)

    assert list(early_ends(rows, [])) == [f"counts from {wrong_by:+.1f} s after it was written"]


def test_stopped_instance_that_keeps_its_run_is_noticed():
    rows = [*versions(), Version(DUE + 2, 9, "EXITED"), Version(DUE + 3, 10, "EXITED", run=BEGAN)]

    assert list(early_ends(rows, [])) == ["is stopped and keeps the run of before, which would end its next start"]


def test_end_that_never_comes_is_noticed():
    assert late(versions(), until=DUE + LATE - 0.1) == []
    assert len(late(versions())) == 1
    assert late(versions(run_end=None)) == []
    assert late([*versions(), Version(DUE + 2, 9, "STOPPING", run_end=DUE), Version(DUE + 3, 9, "EXITED")]) == []


def test_only_a_worker_that_has_all_it_needs_for_long_enough_counts():
    available = Availability()
    available.lacks(DUE + 4, DUE + 5, WORKERS[0])
    available.lacks(DUE + 8, DUE + 9, WORKERS[1])
    assert late(versions(), until=DUE + LATE + 4, available=available) == []
    assert len(late(versions(), until=DUE + LATE + 12, available=available)) == 1

    available.fault("database away for all", "", DUE + 12, DUE + 13)
    assert late(versions(), until=DUE + LATE + 12, available=available) == []

    available = Availability()
    available.fault("clock jump", WORKERS[0], DUE - 10, DUE + 60)  # no excuse
    assert len(late(versions(), available=available)) == 1


def test_an_open_operation_is_waited_for_but_not_a_create():
    assert late(versions(), Op(DUE - 5, None, 3, "UPDATE")) == []
    assert len(late(versions(), Op(DUE - 5, DUE + 5, 3, "UPDATE"), until=DUE + LATE + 6)) == 1
    assert len(late(versions(), Op(BEGAN - 1, None, 1, "CREATE"))) == 1
    assert len(late(versions(on_end="DELETE"), Op(DUE - 5, None, 3, "UPDATE"), until=DUE + 120 + LATE + 1)) == 1


def test_stop_that_failed_is_to_be_repeated():
    failed = Op(DUE, DUE + 2, 9, "STOP", "LIFETIME")
    rows = [*versions(), Version(DUE + 2, 10, "READY", run=BEGAN, run_end=DUE)]

    assert late(rows, failed, until=DUE + RETRY + LATE - 0.1) == []
    assert len(late(rows, failed, until=DUE + RETRY + LATE + 0.1)) == 1
