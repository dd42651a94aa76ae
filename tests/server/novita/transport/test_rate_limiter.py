"""The rate limiter and the slots per route: order, priorities, timeouts and cancellation."""

import asyncio

import pytest

from server.errors import RateLimited
from server.novita.transport.concurrency import USER_CALLS_PER_POLL, CallPriority, RouteSlots
from server.novita.transport.rate_limiter import CallRateLimiter
from tests.server.novita.parts import HeldClock, settle

USER, POLL = CallPriority.USER, CallPriority.POLL


class Callers:
    """Callers of a rate limiter, and the order in which they were served."""

    def __init__(self, calls_per_minute: int) -> None:
        self.clock = HeldClock()
        self.limiter = CallRateLimiter(calls_per_minute, self.clock)
        self.served: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def call(self, name: str, priority: CallPriority = USER, route: str = "GET /a") -> None:
        async def go() -> None:
            if not self.limiter.try_acquire(priority):
                await self.limiter.acquire(route, priority, seconds=60)
            self.served.append(name)

        self.tasks[name] = asyncio.create_task(go())
        await settle()

    async def close(self) -> None:
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        await self.limiter.close()


@pytest.fixture
async def callers():
    callers = Callers(60)  # one a second, six at once
    for n in range(6):
        await callers.call(f"burst{n}", CallPriority.END)
    assert len(callers.served) == 6
    callers.served.clear()
    yield callers
    await callers.close()


async def test_after_the_burst_calls_go_at_an_even_pace(callers: Callers):
    for n in range(3):
        await callers.call(str(n), CallPriority.END)
    assert callers.served == []

    for expected in (["0"], ["0", "1"], ["0", "1", "2"]):
        await callers.clock.advance(1)
        assert callers.served == expected


async def test_a_minute_lets_no_more_through_than_the_limit_and_its_burst():
    callers = Callers(60)
    for n in range(100):
        await callers.call(str(n), CallPriority.END)
    for _ in range(60):
        await callers.clock.advance(1)
    assert len(callers.served) == 66
    await callers.close()


async def test_user_calls_go_before_polling_ones_that_came_earlier(callers: Callers):
    await callers.call("poll", POLL)
    await callers.call("user", USER)
    await callers.clock.advance(1)
    await callers.clock.advance(1)
    assert callers.served == ["user", "poll"]


async def test_polling_is_not_starved_by_users(callers: Callers):
    await callers.call("poll", POLL)
    for n in range(20):
        await callers.call(f"user{n}", USER)
    for _ in range(USER_CALLS_PER_POLL + 1):
        await callers.clock.advance(1)
    assert "poll" in callers.served


async def test_a_flood_on_one_route_delays_another_by_one_call(callers: Callers):
    for n in range(50):
        await callers.call(f"flood{n}", POLL, "GET /flood")
    await callers.call("other", POLL, "GET /other")
    await callers.clock.advance(1)
    await callers.clock.advance(1)
    assert callers.served == ["flood0", "other"]


async def test_a_cancelled_waiter_leaves_the_queue(callers: Callers):
    for name in ("first", "second", "third"):
        await callers.call(name)
    callers.tasks["first"].cancel()
    await settle()
    assert callers.limiter.snapshot().waiting[CallPriority.USER] == 2

    await callers.clock.advance(1)
    assert callers.served == ["second"]


async def test_a_permit_for_a_cancelled_caller_goes_to_the_next(callers: Callers):
    await callers.call("first")
    await callers.call("second")
    assert callers.limiter._waiters.wake(USER)  # first has its turn, but its task has not run yet
    callers.tasks["first"].cancel()
    await settle()
    assert callers.served == ["second"]


async def test_a_call_that_a_stop_returns_is_left_for_the_next_stop(callers: Callers):
    await callers.call("create", CallPriority.CREATE)

    callers.limiter.refund(CallPriority.END)
    await settle()
    assert callers.served == []
    await callers.call("stop", CallPriority.END)
    assert callers.served == ["stop"]


async def test_a_snapshot_counts_the_waiters(callers: Callers):
    await callers.call("user", USER)
    await callers.call("poll", POLL)
    seen = callers.limiter.snapshot()
    assert (seen.calls_per_minute, seen.available, seen.waiting[USER], seen.waiting[POLL]) == (60, 0, 1, 1)


async def test_calls_are_short_while_one_waits_and_for_a_moment_after(callers: Callers):
    assert not callers.limiter.is_short  # the bucket is empty, and nothing waits for it
    await callers.call("create", CallPriority.CREATE)
    assert callers.limiter.is_short
    await callers.clock.advance(2)
    assert (callers.served, callers.limiter.is_short) == (["create"], True)
    await callers.clock.advance(3)
    assert not callers.limiter.is_short


async def test_closing_wakes_all_waiting_calls(callers: Callers):
    for n in range(5):
        await callers.call(str(n))
    await callers.limiter.close()
    await settle()
    assert len(callers.served) == 5


async def test_a_route_reserves_a_quarter_of_its_slots_for_users():
    route_slots = RouteSlots("GET /a", slots=4)
    assert [route_slots.try_acquire(POLL) for _ in range(4)] == [True, True, True, False]
    assert [route_slots.try_acquire(USER) for _ in range(2)] == [True, False]


async def test_a_freed_slot_goes_to_users_first_and_reserved_slots_never_to_polls():
    route_slots = RouteSlots("GET /a", slots=4)
    assert [route_slots.try_acquire(USER) for _ in range(4)] == [True] * 4
    poll, user = (
        asyncio.create_task(route_slots.acquire(POLL, seconds=60)),
        asyncio.create_task(route_slots.acquire(USER, seconds=60)),
    )
    await settle()

    route_slots.release()
    await settle()
    assert (user.done(), poll.done()) == (True, False)

    route_slots.release()
    await settle()
    assert not poll.done()

    route_slots.release()
    await settle()
    assert poll.done()


async def test_a_cancelled_waiter_loses_no_slot():
    route_slots = RouteSlots("GET /a", slots=1)
    assert route_slots.try_acquire(USER)
    waiting = asyncio.create_task(route_slots.acquire(USER, seconds=60))
    await settle()
    route_slots.release()  # it has its turn
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert route_slots.try_acquire(USER)


async def test_a_caller_cancelled_at_the_moment_of_a_release_is_passed_over():
    route_slots = RouteSlots("GET /a", slots=1)
    assert route_slots.try_acquire(USER)
    cancelled, other = (asyncio.create_task(route_slots.acquire(USER, seconds=60)) for _ in range(2))
    await settle()

    cancelled.cancel()
    route_slots.release()  # before the cancelled task runs
    await settle()

    assert (cancelled.cancelled(), other.done()) == (True, True)
    await other
    assert not route_slots.try_acquire(USER)  # `other` has the only slot


async def test_users_pass_polls_that_wait_for_a_slot_they_may_not_have():
    route_slots = RouteSlots("GET /a", slots=4)
    assert [route_slots.try_acquire(POLL) for _ in range(3)] == [True] * 3
    poll = asyncio.create_task(route_slots.acquire(POLL, seconds=60))
    await settle()

    assert route_slots.try_acquire(USER)
    assert not poll.done()
    route_slots.release()
    route_slots.release()
    await poll


async def test_a_timed_out_wait_takes_no_slot():
    route_slots = RouteSlots("GET /a", slots=1)
    assert route_slots.try_acquire(USER)
    with pytest.raises(RateLimited):
        await route_slots.acquire(USER, seconds=0.01)
    route_slots.release()
    assert route_slots.try_acquire(USER)


async def test_each_waiter_has_its_own_timeout_and_the_last_one_gets_the_slot():
    route_slots = RouteSlots("GET /a", slots=1)
    assert route_slots.try_acquire(USER)
    patient, middling, hasty = (
        asyncio.create_task(route_slots.acquire(USER, seconds=each)) for each in (60, 0.05, 0.01)
    )
    for task in (hasty, middling):
        with pytest.raises(RateLimited) as late:
            await task
        assert late.value.is_certain_refusal
    assert not patient.done()

    route_slots.release()
    await patient
