"""Claiming, running and finishing jobs."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from server.errors import RateLimited, ValidationFailed
from server.queue.claim import Claim
from server.queue.enqueue import TOPIC, enqueue
from server.queue.handler import Again, Done, Failure, GiveUp, Outcome
from tests.server.queue.conftest import Note, Stubborn, Urgent, World
from tests.support.waiting import until


async def test_a_done_job_leaves_the_table_and_is_kept_in_the_history(world: World):
    await world.enqueue(Note("a"))

    assert await world.worker().work_once() == 1

    assert world.ran == ["a"]
    assert await world.jobs() == []
    assert await world.history() == [("TEST_NOTE", "SUCCEEDED", 0, None)]


async def test_again_counts_no_attempt_and_reschedules_the_job(world: World):
    async def not_yet(_work: Any, _claim: Claim) -> Outcome:
        return Again(timedelta(seconds=30))

    await world.enqueue(Note())
    worker = world.worker(not_yet)

    assert await worker.work_once() == 1
    assert await worker.work_once() == 0

    assert await world.jobs() == [("TEST_NOTE", "WAITING", 0)]
    assert 29 < await world.value("SELECT extract(epoch FROM run_at - now())::float8 FROM job") <= 30


async def test_give_up_fails_the_job_and_calls_failed_at_once(world: World):
    async def hopeless(_work: Any, _claim: Claim) -> Outcome:
        return GiveUp("NO_STOCK", "there is none")

    await world.enqueue(Note())

    await world.worker(hopeless).work_once()

    assert await world.history() == [("TEST_NOTE", "FAILED", 1, "NO_STOCK")]
    assert world.failures == [("TEST_NOTE", Failure("NO_STOCK", "there is none", False, 1))]


async def test_an_exception_is_an_attempt_and_after_the_last_one_the_job_is_failed(world: World):
    async def broken(_work: Any, _claim: Claim) -> Outcome:
        raise ValueError("secret \x00 detail")

    await world.enqueue(Note(), Stubborn())
    worker = world.start(broken, max_attempts=2)

    await until(lambda: len(world.failures) == 2)
    await worker.stop()

    assert await world.jobs() == []
    assert await world.history() == [
        ("TEST_NOTE", "FAILED", 2, "INTERNAL_ERROR"),
        ("TEST_STUBBORN", "FAILED", 5, "INTERNAL_ERROR"),
    ]
    assert len(world.ran) == 7


async def test_a_provider_error_that_no_retry_can_help_fails_at_once(world: World):
    async def refused(_work: Any, _claim: Claim) -> Outcome:
        raise ValidationFailed("wrong field")

    await world.enqueue(Note())

    await world.worker(refused).work_once()

    assert world.failures == [("TEST_NOTE", Failure("PROVIDER_VALIDATION_FAILED", "wrong field", False, 1))]


async def test_retry_after_of_the_provider_is_respected(world: World):
    async def too_fast(_work: Any, _claim: Claim) -> Outcome:
        raise RateLimited("slow down", retry_after=timedelta(seconds=40))

    await world.enqueue(Note())

    await world.worker(too_fast).work_once()

    [row] = await world.rows("SELECT attempts, error_code, extract(epoch FROM run_at - now())::float8 AS left FROM job")
    assert (row["attempts"], row["error_code"]) == (1, "RATE_LIMITED")
    assert 39 < row["left"] <= 40


@pytest.mark.parametrize("args", ['{"text": 7}', "[]", '{"text": null}'])
async def test_unreadable_arguments_fail_their_job_and_not_the_worker(world: World, args: str):
    [bad, _good] = await world.enqueue(Note("bad"), Note("good"))
    await world.execute("UPDATE job SET args = $2::jsonb WHERE id = $1", bad, args)

    await world.worker().work_once()

    assert world.ran == ["good"]
    assert [row[1:] for row in await world.history()] == [
        ("FAILED", 0, "UNREADABLE_ARGUMENTS"),
        ("SUCCEEDED", 0, None),
    ]


async def test_a_running_worker_is_woken_by_the_commit_and_not_by_its_poll(world: World):
    world.start(poll_interval=timedelta(hours=1))
    await until(lambda: world.workers[0].is_working)

    for each in range(5):
        await world.enqueue(Urgent(str(each)))
        await until(lambda each=each: str(each) in world.ran, within=20)


async def test_polling_finds_jobs_without_a_notification(world: World):
    world.start(poll_interval=timedelta(milliseconds=50))
    await until(lambda: world.workers[0].is_working)

    await world.execute(
        "INSERT INTO job (kind, args, priority, run_at, due_at)"
        " VALUES ('TEST_NOTE', '{\"text\": \"x\"}', 1, now(), now())"
    )

    await until(lambda: world.ran == ["x"])


async def test_job_committed_below_the_scan_floor_is_found(world: World):
    world.start(poll_interval=timedelta(milliseconds=50))
    await world.enqueue(Note("first"))
    await until(lambda: world.ran == ["first"])

    await world.execute(
        "INSERT INTO job (kind, args, priority, run_at, due_at)"
        " VALUES ('TEST_NOTE', '{\"text\": \"older\"}', 1, now() - interval '1 hour', now() - interval '1 hour')"
    )

    await until(lambda: world.ran == ["first", "older"], within=30)


async def test_a_short_delay_is_kept_to_within_milliseconds_however_long_the_poll_interval(world: World):
    world.start(poll_interval=timedelta(seconds=30))
    await until(lambda: world.workers[0].is_working)

    await world.enqueue(Note("soon"), after=timedelta(milliseconds=200))

    await until(lambda: world.ran == ["soon"], within=20)
    assert 0.19 < await _waited(world) < 20


async def _waited(world: World) -> float:
    await until(lambda: _is_over(world))
    return await world.value("SELECT extract(epoch FROM claimed_at - created_at)::float8 FROM job_history")


async def _is_over(world: World) -> bool:
    return bool(await world.value("SELECT count(*) = 1 FROM job_history"))


CLAIM_WAITS = """
    SELECT count(*) > 0 FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock' AND query ILIKE '%skip locked%'
"""
CLAIM_IS_OVER = f"SELECT NOT ({CLAIM_WAITS})"


async def test_stopping_lets_a_running_handler_finish(world: World):
    began, may_end = asyncio.Event(), asyncio.Event()

    async def slow(_work: Any, _claim: Claim) -> Outcome:
        began.set()
        await may_end.wait()
        return Done()

    await world.enqueue(Note("slow"))
    worker = world.start(slow)
    await began.wait()

    stopping = asyncio.create_task(worker.stop())
    await world.enqueue(Note("after"))
    may_end.set()
    await stopping

    assert world.ran == ["slow"]
    assert await world.history() == [("TEST_NOTE", "SUCCEEDED", 0, None)]
    assert await world.jobs() == [("TEST_NOTE", "WAITING", 0)]


async def test_job_whose_claim_succeeds_while_the_worker_stops_is_released(world: World):
    began, may_end = asyncio.Event(), asyncio.Event()

    async def slow(_work: Any, _claim: Claim) -> Outcome:
        began.set()
        await may_end.wait()
        return Done()

    await world.enqueue(Note("slow"))
    worker = world.start(slow)
    await began.wait()

    async with world.database.write() as session:
        await (await session.connection()).exec_driver_sql("LOCK TABLE job IN ACCESS EXCLUSIVE MODE")
        await enqueue(session, Note("after"))
        world.notifier.notify([TOPIC])
        await until(lambda: world.value(CLAIM_WAITS))
        stopping = asyncio.create_task(worker.stop())
        await asyncio.sleep(0.1)  # it has stopped claiming
    await until(lambda: world.value(CLAIM_IS_OVER))
    may_end.set()
    await stopping

    assert world.ran == ["slow"]
    assert await world.jobs() == [("TEST_NOTE", "WAITING", 0)]


async def test_handler_too_slow_to_stop_is_released_without_an_attempt(world: World):
    began = asyncio.Event()

    async def endless(_work: Any, _claim: Claim) -> Outcome:
        began.set()
        await asyncio.Event().wait()
        return Done()

    await world.enqueue(Note("endless"))
    worker = world.start(endless, shutdown_timeout=timedelta(milliseconds=50))
    await began.wait()

    await worker.stop()

    assert await world.jobs() == [("TEST_NOTE", "WAITING", 0)]
    assert await world.value("SELECT losses FROM job") == 0
    assert await world.value("SELECT count(*) FROM job_worker") == 0


async def test_thousands_of_jobs_are_all_run_once_by_several_workers(world: World):
    await world.execute(
        "INSERT INTO job (kind, args, priority, run_at, due_at)"
        " SELECT 'TEST_NOTE', jsonb_build_object('text', n::text), 1, now(), now() FROM generate_series(1, 3000) AS n"
    )
    for _ in range(3):
        world.start()

    await until(lambda: len(world.ran) >= 3000)
    for worker in world.workers:
        await worker.stop()

    assert sorted(map(int, world.ran)) == list(range(1, 3001))
    assert await world.value("SELECT count(*) FROM job_history WHERE status = 'SUCCEEDED'") == 3000
    assert await world.jobs() == []
