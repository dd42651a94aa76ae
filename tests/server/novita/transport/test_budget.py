"""The budget of provider calls: shares of classes, and a rate that follows the provider's refusals."""

from collections import Counter

import pytest

from server.novita.transport.budget import (
    LOWERED_BY,
    SHARES,
    CallBudgetState,
    CallPriority,
    full_budget,
    lower_rate,
    take_calls,
)

LIMIT = 2.0  # calls a second: a bucket of 12
P = CallPriority
MANY = 1_000


@pytest.fixture
def state() -> CallBudgetState:
    return full_budget(LIMIT, 0.0)


def served(state: CallBudgetState, hungry: list[CallPriority], *, seconds: int) -> Counter[CallPriority]:
    """What each class gets while it wants more than there is; asked for ten times a second."""
    got: Counter[CallPriority] = Counter()
    for tenth in range(1, seconds * 10 + 1):
        got.update(take_calls(state, LIMIT, tenth / 10, dict.fromkeys(hungry, MANY), {}, 0).calls)
    return got


def test_a_class_alone_has_the_whole_rate():
    for each in P:
        assert served(full_budget(LIMIT, 0.0), [each], seconds=100)[each] == pytest.approx(LIMIT * 100, abs=12)


def test_each_class_has_its_share_while_all_are_busy(state: CallBudgetState):
    got = served(state, list(P), seconds=200)
    assert got.total() == pytest.approx(LIMIT * 200, abs=12)
    for each in P:
        assert got[each] >= SHARES[each] * LIMIT * 200 * 0.95


def test_what_idle_classes_leave_goes_to_the_most_urgent(state: CallBudgetState):
    got = served(state, [P.END, P.CREATE], seconds=200)
    assert got[P.CREATE] == pytest.approx(SHARES[P.CREATE] * LIMIT * 200, abs=12)
    assert got[P.END] == pytest.approx((1 - SHARES[P.CREATE]) * LIMIT * 200, abs=12)


def test_a_stop_finds_a_call_at_once_while_creates_take_all_they_can(state: CallBudgetState):
    served(state, [P.CREATE], seconds=60)
    assert take_calls(state, LIMIT, 60.05, {P.END: 2}, {}, 0).calls == {P.END: 2}


@pytest.mark.parametrize("busy", [P.USER, P.POLL])
def test_a_stop_finds_a_call_while_users_or_polls_of_another_process_wait_for_more(state: CallBudgetState, busy: P):
    served(state, [busy], seconds=60)
    assert take_calls(state, LIMIT, 60.05, {P.END: 1}, {}, 0).calls == {P.END: 1}


def test_a_stop_finds_a_look_and_a_call_while_all_others_take_their_shares(state: CallBudgetState):
    served(state, [P.USER, P.POLL, P.START, P.CREATE], seconds=60)
    assert take_calls(state, LIMIT, 60.05, {P.END: 2}, {}, 0).calls == {P.END: 2}


def test_ends_that_have_used_up_their_share_keep_nothing_from_the_others(state: CallBudgetState):
    take_calls(state, LIMIT, 0.0, {P.END: 12}, {}, 0)
    assert take_calls(state, LIMIT, 0.5, {P.USER: 1}, {}, 0).calls == {P.USER: 1}


def test_a_call_that_was_not_made_is_there_again(state: CallBudgetState):
    take_calls(state, LIMIT, 0.0, {P.END: 12}, {}, 0)
    assert take_calls(state, LIMIT, 0.0, {P.END: 2}, {P.END: -1}, 0).calls == {P.END: 1}
    assert take_calls(state, LIMIT, 10.0, {}, {P.END: -5}, 0).available == 12  # the bucket holds no more


def test_calls_that_did_not_wait_are_paid_for_by_later_ones(state: CallBudgetState):
    take_calls(state, LIMIT, 0.0, {P.END: 12}, {}, 0)
    grant = take_calls(state, LIMIT, 0.0, {P.END: 1}, {P.START: 4}, 0)
    assert (grant.calls, grant.available) == ({P.END: 0}, -4)
    assert grant.wait == pytest.approx(5 / LIMIT)


def test_a_refusal_lowers_the_rate_and_successes_raise_it_again(state: CallBudgetState):
    assert lower_rate(state, LIMIT, 10.0) == pytest.approx(LIMIT * LOWERED_BY)
    assert lower_rate(state, LIMIT, 10.5) == pytest.approx(LIMIT * LOWERED_BY)  # of calls sent before the first
    assert lower_rate(state, LIMIT, 13.0) == pytest.approx(LIMIT * LOWERED_BY**2)
    assert take_calls(state, LIMIT, 13.0, {P.USER: 1}, {}, 0).calls == {P.USER: 0}

    assert take_calls(state, LIMIT, 14.0, {}, {}, 10).rate == pytest.approx(LIMIT * (LOWERED_BY**2 + 0.1))
    assert take_calls(state, LIMIT, 15.0, {}, {}, 1_000).rate == LIMIT


def test_a_clock_that_jumps_back_neither_adds_nor_stops_calls(state: CallBudgetState):
    take_calls(state, LIMIT, 1_000.0, {P.USER: 12}, {}, 0)
    assert take_calls(state, LIMIT, 10.0, {P.USER: 1}, {}, 0).calls == {P.USER: 0}
    assert take_calls(state, LIMIT, 11.0, {P.USER: 1}, {}, 0).calls == {P.USER: 1}
