"""A token bucket refills by the clock up to its burst, and a charge may leave a debt."""

import pytest

from server.batching import TokenBucket


def test_burst_goes_at_once_and_then_the_rate_applies():
    bucket = TokenBucket(rate=2.0, burst=3.0, now=100.0)

    assert [bucket.take(100.0) for _ in range(4)] == [True, True, True, False]
    assert bucket.wait(100.0) == pytest.approx(0.5)
    assert [bucket.take(100.5), bucket.take(100.5)] == [True, False]


def test_tokens_never_exceed_the_burst():
    bucket = TokenBucket(rate=2.0, burst=3.0, now=0.0)

    bucket.give_back(0.0)

    assert bucket.tokens(1_000.0) == 3.0
    assert bucket.wait(1_000.0) == 0.0


def test_charge_leaves_a_debt_that_ends_at_its_limit():
    bucket = TokenBucket(rate=2.0, burst=3.0, now=0.0)

    bucket.charge(8.0, 0.0, debt_max=4.0)

    assert bucket.tokens(0.0) == -4.0
    assert not bucket.take(2.0)
    assert bucket.wait(2.0) == pytest.approx(0.5)
    assert bucket.take(2.5)


def test_returned_token_can_be_taken_again():
    bucket = TokenBucket(rate=0.0, burst=1.0, now=0.0)
    assert bucket.take(0.0)
    assert not bucket.take(1.0)

    bucket.give_back(1.0)

    assert bucket.take(1.0)
