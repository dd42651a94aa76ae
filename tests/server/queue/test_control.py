"""Reading, cancelling, retrying, pausing and pruning jobs."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import uuid4

from prometheus_client import generate_latest

from server.db.tables.job import JobStatus
from server.queue import metrics
from server.queue.claim import Claim
from server.queue.control import cancel_job, make_ids_due_now, prune_jobs, retry_job, retry_jobs
from server.queue.handler import Done, Failure, GiveUp, Outcome
from server.queue.queries import JobFilter, get_job, job_stats, page_of_jobs
from server.queue.schedule import Recurring
from tests.server.queue.conftest import Chore, Note, Urgent, World
from tests.support.waiting import until

CANCELLED = Failure("CANCELLED", "The job was cancelled.", False, 0)


async def give_up(_work: Any, _claim: Claim) -> Outcome:
    return GiveUp("NO", "no")


async def test_waiting_job_is_cancelled_before_it_is_due_and_failed_is_called(world: World):
    [job_id] = await world.enqueue(Note(), after=timedelta(hours=1))
    world.start(poll_interval=timedelta(hours=1), lease=timedelta(hours=1))
    await until(lambda: world.workers[0].is_working)

    async with world.database.write() as session:
        assert await cancel_job(session, job_id)

    await until(lambda: bool(world.failures))
    assert world.failures == [("TEST_NOTE", CANCELLED)]
    await until(lambda: _history_is(world, [("TEST_NOTE", "CANCELLED", 0, "CANCELLED")]))
    assert world.ran == []


async def test_of_the_jobs_named_by_id_those_that_wait_run_now(world: World):
    [later] = await world.enqueue(Note(), after=timedelta(hours=1))
    [other] = await world.enqueue(Note(), after=timedelta(hours=1))
    world.start(poll_interval=timedelta(hours=1), lease=timedelta(hours=1))
    await until(lambda: world.workers[0].is_working)

    async with world.database.write() as session:
        await make_ids_due_now(session, [later, later + other + 1])

    await until(lambda: len(world.ran) == 1)
    await until(lambda: _history_is(world, [("TEST_NOTE", "SUCCEEDED", 0, None)]))
    assert (await world.rows("SELECT id FROM job WHERE status = 'WAITING'")) == [(other,)]


async def test_a_running_job_is_interrupted_and_cancelled(world: World):
    began, interrupted = asyncio.Event(), asyncio.Event()

    async def endless(work: Any, _claim: Claim) -> Outcome:
        if isinstance(work, Urgent):
            return Done()
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            interrupted.set()
        return Done()

    [job_id] = await world.enqueue(Note())
    world.start(endless)
    await began.wait()

    async with world.database.write() as session:
        assert await cancel_job(session, job_id)

    await asyncio.wait_for(interrupted.wait(), 30)
    await until(lambda: _history_is(world, [("TEST_NOTE", "CANCELLED", 0, "CANCELLED")]))
    assert world.failures == [("TEST_NOTE", CANCELLED)]
    await world.enqueue(Urgent("the task still works"))
    await until(lambda: "the task still works" in world.ran)


async def test_a_finished_job_can_not_be_cancelled(world: World):
    [job_id] = await world.enqueue(Note())
    await world.worker().work_once()

    async with world.database.write() as session:
        assert not await cancel_job(session, job_id)


async def test_a_failed_job_runs_again_under_its_own_id_with_all_its_attempts(world: World):
    [job_id] = await world.enqueue(Note("x"))
    await world.worker(give_up).work_once()

    async with world.database.write() as session:
        assert await retry_job(session, job_id)
        assert not await retry_job(session, job_id)

    assert await world.history() == []
    assert await world.rows("SELECT id, attempts FROM job") == [(job_id, 0)]
    assert await world.worker().work_once() == 1
    assert await world.history() == [("TEST_NOTE", "SUCCEEDED", 0, None)]


async def test_many_failed_jobs_are_retried_at_once_by_kind(world: World):
    notes = await world.enqueue(*[Note() for _ in range(5)])
    await world.enqueue(Chore())
    await world.worker(give_up).work_once()

    async with world.database.write() as session:
        assert await retry_jobs(session, kind="TEST_NOTE") == notes
        assert await retry_jobs(session, kind="TEST_NOTE") == []

    assert [row[0] for row in await world.jobs()] == ["TEST_NOTE"] * 5
    assert [row[0] for row in await world.history()] == ["TEST_CHORE"]


async def test_failed_job_whose_key_is_in_use_again_is_not_run_beside_it(world: World):
    [failed] = await world.enqueue(Note("old"), unique_key="k")
    await world.worker(give_up).work_once()
    await world.enqueue(Note("new"), unique_key="k")

    async with world.database.write() as session:
        assert not await retry_job(session, failed)

    assert len(await world.jobs()) == 1


async def test_old_jobs_are_deleted_and_failed_ones_are_kept_for_a_week(world: World):
    await world.execute("""
        INSERT INTO job_history
            (id, kind, args, priority, status, run_at, attempts, error_code, created_at, finished_at)
        SELECT n, 'TEST_NOTE', '{}', 1, CASE WHEN n % 10 = 0 THEN 'FAILED' ELSE 'SUCCEEDED' END, at, 0, 'X', at, at
        FROM (SELECT n, now() - n * interval '1 hour' AS at FROM generate_series(1, 200) AS n) AS old
    """)

    assert await prune_jobs(world.database, batch=7) == 159 + 4

    rows = await world.rows("SELECT id, status FROM job_history ORDER BY id")
    assert [row["id"] for row in rows if row["status"] == "SUCCEEDED"] == [n for n in range(1, 24) if n % 10]
    assert [row["id"] for row in rows if row["status"] == "FAILED"] == list(range(10, 170, 10))


async def test_a_page_shows_finished_and_unfinished_jobs_newest_first(world: World):
    project, instance = uuid4(), uuid4()
    first = await world.enqueue(Note("a"), Note("b"), project_id=project, instance_id=instance)
    await world.worker().work_once()
    second = await world.enqueue(Note("c"), Chore("d"), project_id=project)
    await world.enqueue(Note("of another"), project_id=uuid4())

    async with world.database.read() as session:
        page = await page_of_jobs(session, JobFilter(project_id=project), limit=3)
        rest = await page_of_jobs(session, JobFilter(project_id=project), limit=3, before_id=page[-1].id)
        done = await page_of_jobs(session, JobFilter(statuses=[JobStatus.SUCCEEDED]))
        chores = await page_of_jobs(session, JobFilter(kind="TEST_CHORE", statuses=[JobStatus.WAITING]))
        of_instance = await page_of_jobs(session, JobFilter(instance_id=instance))
        one = await get_job(session, first[0], project_id=project)
        hidden = await get_job(session, first[0], project_id=uuid4())

    assert [job.id for job in page + rest] == [*reversed(first + second)]
    assert [job.status for job in page] == ["WAITING", "WAITING", "SUCCEEDED"]
    assert [job.id for job in done] == [job.id for job in of_instance] == [*reversed(first)]
    assert [job.args for job in chores] == [{"text": "d"}]
    assert one is not None
    assert one.args == {"text": "a"}
    assert one.finished_at is not None
    assert hidden is None


async def test_stats_tell_how_each_kind_is_doing(world: World):
    await world.enqueue(Note(), Note())
    await world.worker().work_once()
    await world.enqueue(Chore())
    await world.worker(give_up).work_once()
    await world.enqueue(Note(), Urgent())
    await world.enqueue(Note(), after=timedelta(hours=1))

    async with world.database.read() as session:
        stats = await job_stats(session)
    metrics.set_gauges(stats)

    chore, note, urgent = stats.kinds
    assert [kind.kind for kind in stats.kinds] == ["TEST_CHORE", "TEST_NOTE", "TEST_URGENT"]
    assert (chore.failed, chore.failed_per_minute, chore.waiting, chore.oldest_waiting) == (1, 0.2, 0, None)
    assert (note.waiting, note.scheduled, note.running, note.finished_per_minute) == (1, 1, 0, 0.4)
    assert note.oldest_waiting is not None
    assert note.pickup_p50 is not None
    assert note.run_time_p95 is not None
    assert (urgent.waiting, urgent.finished_per_minute, urgent.run_time_p50) == (1, 0, None)
    assert metrics.WAITING.labels("TEST_NOTE")._value.get() == 1
    assert metrics.KEPT_FAILED.labels("TEST_CHORE")._value.get() == 1


async def test_a_run_is_counted_and_timed_per_kind(world: World):
    counts = metrics.JOBS.of("TEST_URGENT")
    before = counts.finished, counts.run_time.total, counts.pickup.total
    await world.enqueue(Urgent())

    await world.worker().work_once()

    assert counts.finished == before[0] + 1
    assert counts.run_time.total > before[1]
    assert counts.pickup.total > before[2]
    scraped = generate_latest().decode()
    assert f'pilotlight_jobs_finished_total{{kind="TEST_URGENT"}} {counts.finished}.0' in scraped
    assert f'pilotlight_job_run_seconds_count{{kind="TEST_URGENT"}} {sum(counts.run_time.counts)}.0' in scraped
    assert 'pilotlight_job_pickup_seconds_bucket{kind="TEST_URGENT",le="+Inf"}' in scraped


async def test_a_recurring_job_fires_once_however_many_workers_run(world: World):
    recurring = [Recurring(Note("tick"), timedelta(hours=1))]
    for _ in range(4):
        world.start(recurring=recurring)
    await until(lambda: _scheduled(world))
    assert world.ran == []

    await world.execute("UPDATE job_schedule SET next_at = now() - interval '150 minutes'")
    for worker in world.workers:
        await worker.stop()
    for _ in range(4):
        world.start(recurring=recurring)

    await until(lambda: _scheduled(world))
    await until(lambda: world.ran == ["tick"])
    [ahead] = await world.rows("SELECT next_at - now() AS ahead FROM job_schedule")
    assert timedelta(minutes=29) < ahead["ahead"] <= timedelta(minutes=30)


async def _scheduled(world: World) -> bool:
    return bool(await world.value("SELECT count(*) = 1 FROM job_schedule WHERE next_at > now()"))


async def _history_is(world: World, expected: list[tuple[Any, ...]]) -> bool:
    return await world.history() == expected
