"""Waiting for one's turn."""

import asyncio

import pytest

from server.errors import RateLimited
from server.novita.lane import Lane
from server.novita.limiter import Limiter
from server.novita.priority import USERS_PER_POLL, Priority
from tests.server.novita.parts import HeldTicks, settle

USER, POLL = Priority.USER, Priority.POLL


class Line:
    """Callers of a limiter, and the order in which they got their turn."""

    def __init__(self, calls_per_minute: int) -> None:
        self.ticks = HeldTicks()
        self.limiter = Limiter(calls_per_minute, self.ticks)
        self.went: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def ask(self, name: str, priority: Priority = USER, route: str = "GET /a") -> None:
        async def go() -> None:
            if not self.limiter.try_take():
                await self.limiter.take(route, priority, seconds=60)
            self.went.append(name)

        self.tasks[name] = asyncio.create_task(go())
        await settle()

    async def close(self) -> None:
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        await self.limiter.close()


@pytest.fixture
async def line():
    line = Line(60)  # one a second, six at once
    for n in range(6):
        await line.ask(f"burst{n}")
    assert len(line.went) == 6
    line.went.clear()
    yield line
    await line.close()


async def test_after_the_burst_calls_go_at_an_even_pace(line: Line):
    for n in range(3):
        await line.ask(str(n))
    assert line.went == []

    for expected in (["0"], ["0", "1"], ["0", "1", "2"]):
        await line.ticks.advance(1)
        assert line.went == expected


async def test_a_minute_lets_no_more_through_than_the_limit_and_its_burst():
    line = Line(60)
    for n in range(100):
        await line.ask(str(n))
    for _ in range(60):
        await line.ticks.advance(1)
    assert len(line.went) == 66
    await line.close()


async def test_user_calls_go_before_polling_ones_that_came_earlier(line: Line):
    await line.ask("poll", POLL)
    await line.ask("user", USER)
    await line.ticks.advance(1)
    await line.ticks.advance(1)
    assert line.went == ["user", "poll"]


async def test_polling_is_not_starved_by_users(line: Line):
    await line.ask("poll", POLL)
    for n in range(20):
        await line.ask(f"user{n}", USER)
    for _ in range(USERS_PER_POLL + 1):
        await line.ticks.advance(1)
    assert "poll" in line.went


async def test_a_flood_on_one_route_delays_another_by_one_call(line: Line):
    for n in range(50):
        await line.ask(f"flood{n}", POLL, "GET /flood")
    await line.ask("other", POLL, "GET /other")
    await line.ticks.advance(1)
    await line.ticks.advance(1)
    assert line.went == ["flood0", "other"]


async def test_who_gives_up_waiting_leaves_the_line(line: Line):
    for name in ("first", "second", "third"):
        await line.ask(name)
    line.tasks["first"].cancel()
    await settle()
    assert line.limiter.snapshot().waiting_users == 2

    await line.ticks.advance(1)
    assert line.went == ["second"]


async def test_a_turn_that_comes_as_its_caller_gives_up_goes_to_the_next(line: Line):
    await line.ask("first")
    await line.ask("second")
    line.limiter.give_back()  # first's turn is there, but it has not run yet
    line.tasks["first"].cancel()
    await settle()
    assert line.went == ["second"]


async def test_the_line_can_be_seen(line: Line):
    await line.ask("user", USER)
    await line.ask("poll", POLL)
    seen = line.limiter.snapshot()
    assert (seen.calls_per_minute, seen.available, seen.waiting_users, seen.waiting_polls) == (60, 0, 1, 1)


async def test_closing_leaves_nobody_standing_in_line(line: Line):
    for n in range(5):
        await line.ask(str(n))
    await line.limiter.close()
    await settle()
    assert len(line.went) == 5


async def test_a_lane_keeps_a_quarter_of_its_slots_for_users():
    lane = Lane("GET /a", slots=4)
    assert [lane.try_take(POLL) for _ in range(4)] == [True, True, True, False]
    assert [lane.try_take(USER) for _ in range(2)] == [True, False]


async def test_a_freed_slot_goes_to_the_user_first_and_to_polling_only_beyond_the_kept_ones():
    lane = Lane("GET /a", slots=4)
    assert [lane.try_take(USER) for _ in range(4)] == [True] * 4
    poll, user = asyncio.create_task(lane.take(POLL, seconds=60)), asyncio.create_task(lane.take(USER, seconds=60))
    await settle()

    lane.give_back()
    await settle()
    assert (user.done(), poll.done()) == (True, False)

    lane.give_back()
    await settle()
    assert not poll.done()

    lane.give_back()
    await settle()
    assert poll.done()


async def test_a_cancelled_waiter_loses_no_slot():
    lane = Lane("GET /a", slots=1)
    assert lane.try_take(USER)
    waiting = asyncio.create_task(lane.take(USER, seconds=60))
    await settle()
    lane.give_back()  # its turn is there
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert lane.try_take(USER)


async def test_a_turn_that_does_not_come_in_time_is_no_turn_and_takes_none():
    lane = Lane("GET /a", slots=1)
    assert lane.try_take(USER)
    with pytest.raises(RateLimited):
        await lane.take(USER, seconds=0.01)
    lane.give_back()
    assert lane.try_take(USER)


async def test_each_who_waits_is_sent_away_at_their_own_time_and_the_patient_get_the_turn():
    lane = Lane("GET /a", slots=1)
    assert lane.try_take(USER)
    patient, middling, hasty = (asyncio.create_task(lane.take(USER, seconds=each)) for each in (60, 0.05, 0.01))
    for task in (hasty, middling):
        with pytest.raises(RateLimited) as late:
            await task
        assert late.value.is_certain_refusal
    assert not patient.done()

    lane.give_back()
    await patient
