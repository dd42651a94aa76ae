"""The circuit breaker: when calls are refused without being sent."""

from datetime import timedelta

import pytest

from server.errors import AuthFailed, CircuitOpen, NovitaError, PaymentRequired, Suspended
from server.novita.transport.circuit_breaker import BreakerState, CircuitBreaker
from tests.server.novita.parts import SkippingClock

A, B = "GET /a", "GET /b"


def make(threshold: int = 3) -> tuple[CircuitBreaker, SkippingClock]:
    clock = SkippingClock()
    return CircuitBreaker(threshold=threshold, recovery=timedelta(seconds=60), clock=clock), clock


def fail(breaker: CircuitBreaker, route: str, times: int) -> None:
    for _ in range(times):
        with breaker.enter(route) as permit:
            permit.failed()


def test_it_opens_at_the_threshold_and_says_when_to_retry():
    breaker, clock = make()
    fail(breaker, A, 2)
    assert breaker.state is BreakerState.CLOSED

    fail(breaker, A, 1)
    clock.time += 20

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
        permit.succeeded()
    fail(breaker, A, 2)
    assert breaker.state is BreakerState.CLOSED


def test_one_route_that_fails_takes_no_other_away():
    breaker, _ = make()
    fail(breaker, A, 3)
    with breaker.enter(B) as permit:
        permit.succeeded()
    with pytest.raises(CircuitOpen):
        breaker.enter(A)


def test_an_unreachable_host_opens_the_circuit_for_every_route():
    breaker, _ = make()
    for route in (A, B, A):
        with breaker.enter(route) as permit:
            permit.not_connected()
    with pytest.raises(CircuitOpen):
        breaker.enter("GET /never-called-before")
    assert breaker.snapshot().circuits == {"host": BreakerState.OPEN}


def test_half_open_lets_exactly_one_probe_through():
    breaker, clock = make()
    fail(breaker, A, 3)
    clock.time += 60
    assert breaker.state is BreakerState.HALF_OPEN

    with breaker.enter(A) as probe:
        for _ in range(10):
            with pytest.raises(CircuitOpen) as refused:
                breaker.enter(A)
            assert refused.value.retry_after == timedelta(seconds=1)
        probe.succeeded()

    assert breaker.state is BreakerState.CLOSED
    fail(breaker, A, 2)
    assert breaker.state is BreakerState.CLOSED


def test_a_probe_that_fails_opens_it_for_another_whole_while():
    breaker, clock = make()
    fail(breaker, A, 3)
    clock.time += 75
    fail(breaker, A, 1)
    assert (breaker.state, breaker.retry_after) == (BreakerState.OPEN, timedelta(seconds=60))


def test_a_probe_that_ends_without_a_verdict_leaves_the_place_to_the_next():
    breaker, clock = make()
    fail(breaker, A, 3)
    clock.time += 60
    with breaker.enter(A):
        pass  # as a cancelled call does
    with breaker.enter(A) as probe:
        probe.succeeded()
    assert breaker.state is BreakerState.CLOSED


def test_the_probe_of_a_host_is_not_taken_by_a_route_that_is_open_itself():
    breaker, clock = make()
    for _ in range(3):
        with breaker.enter(B) as permit:
            permit.not_connected()
    clock.time += 60
    with breaker.enter(A) as probe:
        probe.succeeded()
    fail(breaker, A, 3)
    for _ in range(3):
        with breaker.enter(B) as permit:
            permit.not_connected()
    clock.time += 59.5  # the host opened in the same moment as A

    with pytest.raises(CircuitOpen):
        breaker.enter(A)
    clock.time += 0.5
    with breaker.enter(B) as probe:
        probe.succeeded()
    assert breaker.snapshot().circuits == {A: BreakerState.HALF_OPEN}


def test_what_was_asked_before_the_opening_decides_nothing_after_it():
    breaker, clock = make()
    early_good, early_bad = breaker.enter(A), breaker.enter(A)
    fail(breaker, A, 3)

    early_good.succeeded()
    assert breaker.state is BreakerState.OPEN

    clock.time += 60
    with breaker.enter(A) as probe:
        early_bad.failed()
        assert breaker.state is BreakerState.HALF_OPEN
        probe.succeeded()
    assert breaker.state is BreakerState.CLOSED


def test_a_threshold_of_zero_never_opens():
    breaker, _ = make(threshold=0)
    fail(breaker, A, 100)
    assert breaker.state is BreakerState.CLOSED


def refuse(breaker: CircuitBreaker, route: str, error: NovitaError) -> None:
    with breaker.enter(route) as permit:
        permit.refused(error)


def test_a_refused_key_suspends_every_route_until_one_probe_is_accepted():
    breaker, clock = make()
    refuse(breaker, A, AuthFailed("invalid key (HTTP 401)", status=401))

    for route in (A, B):
        with pytest.raises(Suspended, match="invalid key") as refused:
            breaker.enter(route)
        assert (refused.value.code, refused.value.retry_after) == ("PROVIDER_SUSPENDED", timedelta(seconds=60))
    assert breaker.snapshot().refusals == {"key": "invalid key (HTTP 401)"}

    clock.time += 60
    refuse(breaker, B, AuthFailed("still invalid (HTTP 401)", status=401))
    with pytest.raises(Suspended, match="still invalid"):
        breaker.enter(A)

    clock.time += 60
    with breaker.enter(A) as probe:
        with pytest.raises(Suspended):
            breaker.enter(B)  # one call at a time
        probe.succeeded()
    assert (breaker.state, breaker.snapshot().refusals) == (BreakerState.CLOSED, {})


@pytest.mark.parametrize("error", [AuthFailed("no", status=403), PaymentRequired("no", status=402)])
def test_a_refused_account_suspends_only_the_route_it_was_refused_for(error: NovitaError):
    """An account that may not create can still delete, which ends its costs."""
    breaker, _ = make()
    refuse(breaker, A, error)

    with pytest.raises(Suspended):
        breaker.enter(A)
    with breaker.enter(B) as permit:
        permit.succeeded()
    assert breaker.snapshot().refusals == {A: "no"}
