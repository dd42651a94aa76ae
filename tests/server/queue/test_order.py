"""The order of jobs and the limits per kind."""

import asyncio
import time
from datetime import timedelta
from typing import Any
from uuid import uuid4

from server.queue.claim import Claim
from server.queue.control import pause_jobs, resume_jobs
from server.queue.enqueue import BURST_MAX, DELAY_MAX, JOBS_PER_SECOND, FairShare, enqueue_many
from server.queue.handler import Done, Outcome
from server.queue.queries import job_stats
from tests.server.queue.conftest import Chore, Narrow, Note, Urgent, World
from tests.support.waiting import until


async def test_high_goes_before_normal_before_low(world: World):
    await world.enqueue(Chore("low"), Note("normal"), Urgent("high"))
    worker = world.worker(concurrency=1)

    while await worker.work_once():
        pass

    assert world.ran == ["high", "normal", "low"]


async def test_a_low_job_that_has_waited_a_minute_goes_before_a_fresh_high_one(world: World):
    await world.enqueue(Chore("low"))
    await world.execute("UPDATE job SET run_at = run_at - interval '61 s', due_at = due_at - interval '61 s'")
    await world.enqueue(Urgent("high"))
    worker = world.worker(concurrency=1)

    while await worker.work_once():
        pass

    assert world.ran == ["low", "high"]


async def test_one_claim_takes_the_first_of_all_kinds_and_not_the_first_of_each(world: World):
    await world.enqueue(*[Urgent(f"high {n}") for n in range(3)], Chore("low"), Note("normal"))

    assert await world.worker(concurrency=4).work_once() == 4

    assert world.ran == ["high 0", "high 1", "high 2", "normal"]


async def test_a_project_with_a_thousand_waiting_jobs_does_not_delay_anothers_first(world: World):
    greedy, modest = uuid4(), uuid4()
    began = time.monotonic()
    async with world.database.write() as session:
        await enqueue_many(session, [Note(f"greedy {n}") for n in range(1000)], project_id=greedy)
    await world.enqueue(Note("modest"), project_id=modest)
    # What the greedy project may have run by then; on a busy machine some time has passed since its first.
    share = BURST_MAX + (time.monotonic() - began) * JOBS_PER_SECOND
    worker = world.worker(concurrency=1000)

    await worker.work_once()

    place = world.ran.index("modest")
    assert BURST_MAX <= place <= share + 1
    assert world.ran[0] == "greedy 0"


def test_debt_only_begins_after_a_burst_and_is_bounded():
    share, project = FairShare(), uuid4()

    debts = [share.delay(project) for _ in range(100_000)]

    assert max(debts[: int(BURST_MAX)]) == timedelta(0)
    assert abs(debts[int(BURST_MAX) + 100].total_seconds() - 100 / JOBS_PER_SECOND) < 1
    assert abs(max(debts) - DELAY_MAX) < timedelta(milliseconds=1)
    assert share.delay(uuid4()) == timedelta(0)


async def test_a_kind_with_a_limit_never_runs_more_than_that_at_once(world: World):
    now, most, others = 0, 0, asyncio.Event()

    async def count(work: Any, _claim: Claim) -> Outcome:
        nonlocal now, most
        if isinstance(work, Note):
            others.set()
            return Done()
        now += 1
        most = max(most, now)
        await others.wait()  # the others are not held up by a kind that is full
        await asyncio.sleep(0)
        now -= 1
        return Done()

    await world.enqueue(*[Narrow(str(n)) for n in range(20)], Note("other"))
    world.start(count, concurrency=10)

    await until(lambda: len(world.ran) == 21)
    assert most == 2


async def test_a_paused_kind_waits_until_it_is_resumed_and_others_go_on(world: World):
    async with world.database.write() as session:
        assert await pause_jobs(session, "TEST_NOTE")
        assert not await pause_jobs(session, "TEST_NOTE")
    await world.enqueue(Note("paused"), Urgent("free"))
    world.start(poll_interval=timedelta(hours=1))

    await until(lambda: world.ran == ["free"])
    async with world.database.read() as session:
        assert [kind.kind for kind in (await job_stats(session)).kinds if kind.paused_at] == ["TEST_NOTE"]
    async with world.database.write() as session:
        assert await resume_jobs(session, "TEST_NOTE")

    await until(lambda: world.ran == ["free", "paused"], within=30)


async def test_prefetched_jobs_are_released_when_the_handlers_are_slow(world: World):
    """Short jobs make the worker prefetch; a slow one must not keep prefetched jobs from other workers."""
    stuck = asyncio.Event()

    async def first_quick_then_stuck(work: Any, _claim: Claim) -> Outcome:
        if work.text == "stuck":
            await stuck.wait()
        return Done()

    await world.enqueue(*[Urgent("quick") for _ in range(300)])
    world.start(first_quick_then_stuck, concurrency=2, lease=timedelta(seconds=4))
    await until(lambda: len(world.ran) == 300)
    await world.enqueue(*[Urgent("stuck") for _ in range(2)], *[Urgent("other") for _ in range(50)])
    await until(lambda: world.ran.count("stuck") == 2)

    world.start(concurrency=2)

    await until(lambda: world.ran.count("other") == 50, within=30)
    stuck.set()
