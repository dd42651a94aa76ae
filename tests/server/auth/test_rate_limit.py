"""Limits per token and project: what may come at once, how it fills up, and what a second token changes."""

from types import SimpleNamespace
from uuid import uuid4

import pytest

from server.auth.caller import Caller
from server.auth.rate_limit import REFUSAL_DELAY, REFUSALS_AT_ONCE, RateLimiter
from server.enums import Role
from server.errors import TooManyLiveReads
from server.instances.provider.live_reads import LiveReads


def a_caller(project: Caller | None = None) -> Caller:
    return Caller(project_id=project.project_id if project else uuid4(), token_id=uuid4(), role=Role.OPERATOR)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    moment = [1000.0]
    # Not `time.monotonic` itself: the event loop and what runs in it beside the test go by it.
    monkeypatch.setattr("server.batching.time", SimpleNamespace(monotonic=lambda: moment[0]))
    return moment


def test_a_bucket_fills_up_by_the_clock_and_work_beyond_it_is_waited_for(clock: list[float]):
    rates, caller = RateLimiter(per_token=60, per_project=0), a_caller()
    assert [rates.take(caller) for _ in range(61)] == [None] * 60 + [1000]
    assert rates.take(a_caller()) is None

    clock[0] += 1.5
    assert [rates.take(caller) for _ in range(2)] == [None, 500]

    rates.charge(caller, 10_000)  # no more than a minute's worth is owed
    assert rates.take(caller) == 61_000
    clock[0] += 61
    assert rates.take(caller) is None
    clock[0] += 3600
    assert [rates.take(caller) for _ in range(61)] == [None] * 60 + [1000]


def test_all_tokens_of_a_project_share_its_limit_and_no_other_project_does(clock: list[float]):
    rates, first = RateLimiter(per_token=60, per_project=90), a_caller()
    second = a_caller(first)
    assert [rates.take(first) for _ in range(60)] == [None] * 60
    assert [rates.take(second) for _ in range(31)] == [None] * 30 + [667]
    assert rates.take(a_caller()) is None

    clock[0] += 60
    # A refusal for the project's sake took nothing from the token: its own bucket is full again.
    assert [rates.take(second) for _ in range(61)] == [None] * 60 + [1000]


def test_work_beyond_a_request_is_charged_to_the_project_too(clock: list[float]):
    rates, caller = RateLimiter(per_token=0, per_project=60), a_caller()
    rates.charge(caller, 59)
    assert [rates.take(a_caller(caller)) for _ in range(2)] == [None, 1000]


async def test_refusals_of_a_client_that_does_not_wait_are_delayed(clock: list[float], monkeypatch: pytest.MonkeyPatch):
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("server.auth.rate_limit.asyncio", SimpleNamespace(sleep=sleep))
    rates, caller = RateLimiter(per_token=60, per_project=0), a_caller()
    for _ in range(REFUSALS_AT_ONCE + 3):
        await rates.delay_refusal(caller)
    await rates.delay_refusal(a_caller())

    assert waits == [REFUSAL_DELAY] * 3
    clock[0] += 1
    await rates.delay_refusal(caller)
    assert len(waits) == 3


def test_buckets_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("server.batching.KeyedBuckets.KEYS_MAX", 10)
    rates = RateLimiter(per_token=1, per_project=1)
    callers = [a_caller() for _ in range(12)]
    for caller in callers:
        assert rates.take(caller) is None
    assert rates.take(callers[-1]) is not None
    assert rates.take(callers[0]) is None  # it was silent for longest


def reads_before_a_refusal(reads: LiveReads, caller: Caller) -> int:
    for count in range(1000):
        try:
            reads.take(caller)
        except TooManyLiveReads:
            return count
    raise AssertionError("never refused")


def test_live_reads_of_a_token_its_project_and_all_projects_are_bounded(clock: list[float]):
    reads, first = LiveReads(per_token=20, per_project=32, calls_per_minute=100), a_caller()
    assert reads_before_a_refusal(reads, first) == 10
    assert reads_before_a_refusal(reads, a_caller(first)) == 6  # of the 16 of the project
    assert reads_before_a_refusal(reads, a_caller()) == 9  # of the 25 of all: half of the provider's limit

    clock[0] += 60
    assert reads_before_a_refusal(reads, first) == 10


def test_a_refused_live_read_says_when_to_try_again_and_takes_nothing(clock: list[float]):
    reads, caller = LiveReads(per_token=2, per_project=0, calls_per_minute=0), a_caller()
    reads.take(caller)
    for _ in range(3):
        with pytest.raises(TooManyLiveReads) as refused:
            reads.take(caller)
        assert refused.value.retry_after.total_seconds() == 30
    clock[0] += 30
    reads.take(caller)
