"""Subscriptions share the event loop: few turns per iteration, projects in turn, and room for active ones."""

import asyncio
import time
from uuid import uuid4

import pytest

from server.graphql.live.turns import TURNS_AT_ONCE, TURNS_PER_ITERATION, Turns

NOISY, OTHER = uuid4(), uuid4()


async def run_all(turns: Turns, projects: list[object], done: list[object]) -> None:
    async def one(project: object) -> None:
        await turns.take(project)  # pyright: ignore[reportArgumentType]
        done.append(project)

    await asyncio.gather(*(one(project) for project in projects))


async def test_other_tasks_run_between_the_turns_of_a_project_that_has_many():
    turns, done = Turns(), list[object]()
    running = asyncio.create_task(run_all(turns, [NOISY] * 100, done))
    per_iteration: list[int] = []
    while not running.done():
        before = len(done)
        await asyncio.sleep(0)
        per_iteration.append(len(done) - before)

    assert len(done) == 100
    assert max(per_iteration) <= 2 * TURNS_PER_ITERATION  # those of one iteration may be seen in the next
    assert len(per_iteration) >= 100 / (2 * TURNS_PER_ITERATION)


async def test_a_project_does_not_wait_for_all_turns_of_another():
    done: list[object] = []
    noisy = [uuid4() for _ in range(2 * TURNS_PER_ITERATION)]  # more than have a turn in one iteration
    await run_all(Turns(), [each for each in noisy for _ in range(100)] + [OTHER], done)

    assert done.index(OTHER) <= 3 * len(noisy)


async def test_beside_an_active_project_a_project_has_a_share_of_the_loop(monkeypatch: pytest.MonkeyPatch):
    moment = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: moment[0])
    turns, done = Turns(), list[object]()
    turns.note_request(NOISY)
    turns.note_request(OTHER)
    running = asyncio.create_task(run_all(turns, [NOISY] * (TURNS_AT_ONCE + 20), done))
    for _ in range(3 * TURNS_AT_ONCE):
        await asyncio.sleep(0)
    assert len(done) == TURNS_AT_ONCE  # no time passes, so there are no more

    await run_all(turns, [OTHER], done)  # which is not held back by it
    moment[0] += 60  # the other has become idle
    await running
    assert len(done) == TURNS_AT_ONCE + 21


async def test_a_turn_whose_subscription_has_ended_is_given_to_the_next():
    turns, done = Turns(), list[object]()
    waiting = [asyncio.create_task(run_all(turns, [NOISY], done)) for _ in range(10)]
    await asyncio.sleep(0)
    for task in waiting[TURNS_PER_ITERATION:-1]:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)

    assert len(done) == TURNS_PER_ITERATION + 1
