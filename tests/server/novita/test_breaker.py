"""When calls are not made at all."""

from datetime import timedelta

import pytest

from server.errors import CircuitOpen
from server.novita.breaker import Breaker, BreakerState
from tests.server.novita.parts import SkippingTicks

A, B = "GET /a", "GET /b"


def make(threshold: int = 3) -> tuple[Breaker, SkippingTicks]:
    ticks = SkippingTicks()
    return Breaker(threshold=threshold, recovery=timedelta(seconds=60), ticks=ticks), ticks


def fail(breaker: Breaker, route: str, times: int) -> None:
    for _ in range(times):
        with breaker.enter(route) as permit:
            permit.failed()


def test_it_opens_at_the_threshold_and_says_when_to_come_back():
    breaker, ticks = make()
    fail(breaker, A, 2)
    assert breaker.state is BreakerState.CLOSED

    fail(breaker, A, 1)
    ticks.time += 20

    with pytest.raises(CircuitOpen) as refused:
        breaker.enter(A)
    assert refused.value.retry_after == timedelta(seconds=40)
    assert refused.value.is_certain_refusal
    assert breaker.snapshot().circuits == {A: BreakerState.OPEN}
    assert (breaker.state, breaker.retry_after) == (BreakerState.OPEN, timedelta(seconds=40))


def test_only_failures_in_a_row_count():
    breaker, _ = make()
    fail(breaker, A, 2)
    with breaker.enter(A) as permit:
        permit.answered()
    fail(breaker, A, 2)
    assert breaker.state is BreakerState.CLOSED


def test_one_route_that_fails_takes_no_other_away():
    breaker, _ = make()
    fail(breaker, A, 3)
    with breaker.enter(B) as permit:
        permit.answered()
    with pytest.raises(CircuitOpen):
        breaker.enter(A)


def test_a_host_that_nobody_reaches_is_open_for_every_route():
    breaker, _ = make()
    for route in (A, B, A):
        with breaker.enter(route) as permit:
            permit.not_connected()
    with pytest.raises(CircuitOpen):
        breaker.enter("GET /never-called-before")
    assert breaker.snapshot().circuits == {"host": BreakerState.OPEN}


def test_half_open_lets_exactly_one_probe_through():
    breaker, ticks = make()
    fail(breaker, A, 3)
    ticks.time += 60
    assert breaker.state is BreakerState.HALF_OPEN

    with breaker.enter(A) as probe:
        for _ in range(10):
            with pytest.raises(CircuitOpen) as refused:
                breaker.enter(A)
            assert refused.value.retry_after == timedelta(seconds=1)
        probe.answered()

    assert breaker.state is BreakerState.CLOSED
    fail(breaker, A, 2)
    assert breaker.state is BreakerState.CLOSED


def test_a_probe_that_fails_opens_it_for_another_whole_while():
    breaker, ticks = make()
    fail(breaker, A, 3)
    ticks.time += 75
    fail(breaker, A, 1)
    assert (breaker.state, breaker.retry_after) == (BreakerState.OPEN, timedelta(seconds=60))


def test_a_probe_that_ends_without_a_verdict_leaves_the_place_to_the_next():
    breaker, ticks = make()
    fail(breaker, A, 3)
    ticks.time += 60
    with breaker.enter(A):
        pass  # as a cancelled call does
    with breaker.enter(A) as probe:
        probe.answered()
    assert breaker.state is BreakerState.CLOSED


def test_the_probe_of_a_host_is_not_taken_by_a_route_that_is_open_itself():
    breaker, ticks = make()
    for _ in range(3):
        with breaker.enter(B) as permit:
            permit.not_connected()
    ticks.time += 60
    with breaker.enter(A) as probe:
        probe.answered()
    fail(breaker, A, 3)
    for _ in range(3):
        with breaker.enter(B) as permit:
            permit.not_connected()
    ticks.time += 59.5  # the host opened in the same moment as A

    with pytest.raises(CircuitOpen):
        breaker.enter(A)
    ticks.time += 0.5
    with breaker.enter(B) as probe:
        probe.answered()
    assert breaker.snapshot().circuits == {A: BreakerState.HALF_OPEN}


def test_what_was_asked_before_the_opening_decides_nothing_after_it():
    breaker, ticks = make()
    early_good, early_bad = breaker.enter(A), breaker.enter(A)
    fail(breaker, A, 3)

    early_good.answered()
    assert breaker.state is BreakerState.OPEN

    ticks.time += 60
    with breaker.enter(A) as probe:
        early_bad.failed()
        assert breaker.state is BreakerState.HALF_OPEN
        probe.answered()
    assert breaker.state is BreakerState.CLOSED


def test_a_threshold_of_zero_never_opens():
    breaker, _ = make(threshold=0)
    fail(breaker, A, 100)
    assert breaker.state is BreakerState.CLOSED
