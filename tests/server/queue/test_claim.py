"""Leases, claims and rescue."""

import asyncio
import time
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import text

from server.errors import LostClaim
from server.queue.claim import Claim
from server.queue.handler import Done, Failure, GiveUp, Handler, Outcome
from server.queue.lease import Lease
from server.queue.rescuer import release_unknown_claims, rescue
from server.queue.worker import Worker
from tests.server.queue.conftest import Note, World
from tests.support.waiting import until

STEAL = "UPDATE job SET claim = claim + 1"
EXPIRE = "UPDATE job_worker SET lease_until = now() - interval '1 second'"


async def test_what_a_handler_writes_under_its_claim_is_committed(world: World):
    async def write(_work: Any, claim: Claim) -> Outcome:
        async with claim.write() as session:
            await session.execute(text("INSERT INTO project (id, name) VALUES (:id, 'p')"), {"id": uuid4()})
        return Done()

    await world.enqueue(Note())

    await world.worker(write).work_once()

    assert await world.value("SELECT count(*) FROM project WHERE name = 'p'") == 1


@pytest.mark.parametrize("loss", [STEAL, EXPIRE, "DELETE FROM job"])
async def test_a_worker_that_lost_its_claim_changes_nothing(world: World, loss: str):
    refused: list[bool] = []

    async def late(_work: Any, claim: Claim) -> Outcome:
        await world.execute(loss)
        try:
            async with claim.write() as session:
                await session.execute(text("INSERT INTO project (id, name) VALUES (:id, 'late')"), {"id": uuid4()})
        except LostClaim:
            refused.append(True)
            raise
        return Done()

    await world.enqueue(Note())

    await world.worker(late).work_once()

    assert refused == [True]
    assert await world.value("SELECT count(*) FROM project") == 0
    assert await world.history() == []
    assert world.failures == []


@pytest.mark.parametrize("outcome", [Done(), GiveUp("X", "y")])
async def test_late_outcome_does_not_end_a_job_that_another_worker_holds(world: World, outcome: Outcome):
    async def late(_work: Any, _claim: Claim) -> Outcome:
        await world.execute(STEAL)
        await world.execute("UPDATE job SET worker_id = $1", uuid4())
        return outcome

    await world.enqueue(Note())

    await world.worker(late).work_once()

    assert await world.jobs() == [("TEST_NOTE", "RUNNING", 0)]
    assert await world.history() == []


async def test_job_can_not_be_taken_over_between_the_check_and_the_commit(world: World):
    async def slow(_work: Any, claim: Claim) -> Outcome:
        async with claim.write() as session:
            await world.execute(EXPIRE)
            assert await rescue(world.database.raw) == []
            await session.execute(text("INSERT INTO project (id, name) VALUES (:id, 'p')"), {"id": uuid4()})
        assert len(await rescue(world.database.raw)) == 1
        return Done()

    await world.enqueue(Note())

    await world.worker(slow).work_once()

    assert await world.value("SELECT count(*) FROM project") == 1
    assert await world.jobs() == [("TEST_NOTE", "WAITING", 0)]


async def test_dead_workers_jobs_are_released_without_an_attempt_and_the_loss_counted(world: World):
    await world.enqueue(Note("a"), Note("b"))
    await _claimed_by_the_dead(world)

    rescued = await rescue(world.database.raw)

    assert len(rescued) == 2
    assert await world.jobs() == [("TEST_NOTE", "WAITING", 0)] * 2
    assert await world.value("SELECT min(losses) FROM job") == 1
    assert await world.value("SELECT count(*) FROM job_worker") == 0


async def test_a_job_claimed_while_its_worker_was_being_removed_is_rescued_too(world: World):
    await world.enqueue(Note())
    await _claimed_by_the_dead(world)
    await world.execute("DELETE FROM job_worker")

    assert len(await rescue(world.database.raw)) == 1


async def test_rescue_leaves_jobs_of_live_workers_alone(world: World):
    await world.enqueue(Note())
    await _claimed_by_the_dead(world)
    await world.execute("UPDATE job_worker SET lease_until = now() + interval '1 minute'")

    assert await rescue(world.database.raw) == []


async def test_job_that_kills_every_worker_fails_in_the_end(world: World):
    await world.enqueue(Note())
    await world.execute("UPDATE job SET losses = 20")

    await world.worker().work_once()

    assert world.ran == []
    assert await world.history() == [("TEST_NOTE", "FAILED", 0, "WORKER_LOST")]


async def test_claim_with_a_lost_response_is_found_and_released(world: World):
    await world.enqueue(Note("known"), Note("lost"))
    await _claimed_by_the_dead(world)
    worker_id = await world.value("SELECT id FROM job_worker")
    await world.execute("UPDATE job SET claim = 2 WHERE args ->> 'text' = 'known'")

    given_back = await release_unknown_claims(world.database.raw, worker_id, {2})

    assert len(given_back) == 1
    assert await world.value("SELECT args ->> 'text' FROM job WHERE status = 'WAITING'") == "lost"


async def test_a_workers_jobs_are_taken_over_within_the_lease(world: World):
    await world.enqueue(Note("orphan"))
    await _claimed_by_the_dead(world)
    await world.execute("UPDATE job_worker SET lease_until = now() + interval '0.5 second'")

    world.start(lease=timedelta(seconds=2))

    await until(lambda: world.ran == ["orphan"], within=20)


async def test_worker_that_can_not_renew_its_lease_cancels_handlers_and_starts_anew(world: World):
    interrupted = asyncio.Event()
    runs = 0

    async def endless(_work: Any, _claim: Claim) -> Outcome:
        nonlocal runs
        runs += 1
        if runs > 1:
            return Done()
        await world.execute("DELETE FROM job_worker")  # as a rescuer would, but the job is still in its name
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            interrupted.set()
            raise
        return Done()

    await world.enqueue(Note())
    world.start(endless, lease=timedelta(seconds=1))

    await asyncio.wait_for(interrupted.wait(), 30)
    await until(lambda: runs == 2)
    await until(lambda: _done(world))


async def test_claimed_job_is_not_started_once_the_lease_is_over(world: World, monkeypatch: pytest.MonkeyPatch):
    """Like a process that was paused after its claim and continues before it learns that the lease is over."""
    is_over = False
    monkeypatch.setattr(Lease, "is_held", property(lambda _: not is_over))

    async def stopped(work: Note, _claim: Claim) -> Outcome:
        nonlocal is_over
        is_over = is_over or work.text == "first"
        return Done()

    await world.enqueue(Note("first"))
    await world.enqueue(Note("second"))
    world.start(stopped, lease=timedelta(seconds=2), concurrency=1)
    await until(lambda: is_over)
    await asyncio.sleep(0.3)
    assert world.ran == ["first"]

    is_over = False

    await until(lambda: world.ran == ["first", "second"])


async def test_a_handler_that_blocks_the_event_loop_does_not_cost_the_lease(world: World):
    async def busy(_work: Any, claim: Claim) -> Outcome:
        time.sleep(1.5)
        async with claim.write():
            pass
        return Done()

    await world.enqueue(Note("busy"))
    world.start(busy, lease=timedelta(seconds=1))

    await until(lambda: _done(world))
    assert world.ran == ["busy"]


async def test_a_failing_failed_is_tried_again_and_the_handler_is_not_run_again(world: World):
    runs: list[str] = []

    async def run(_work: Any, _claim: Claim) -> Outcome:
        runs.append("run")
        return GiveUp("NO", "no")

    async def failed(_session: Any, _work: Any, failure: Failure) -> None:
        runs.append(failure.code)
        if len(runs) == 2:
            raise RuntimeError("first time")

    await world.enqueue(Note())
    worker = Worker(world.database, world.notifier, {"TEST_NOTE": Handler(run, failed)})

    await worker.work_once()
    assert await world.jobs() == [("TEST_NOTE", "WAITING", 3)]
    await world.execute("UPDATE job SET run_at = now(), due_at = now()")
    await worker.work_once()

    assert runs == ["run", "NO", "NO"]
    assert [row[1::2] for row in await world.history()] == [("FAILED", "NO")]


async def _claimed_by_the_dead(world: World) -> None:
    worker_id = uuid4()
    await world.execute("INSERT INTO job_worker (id, name, lease_until) VALUES ($1, 'dead', now())", worker_id)
    await world.execute("UPDATE job SET status = 'RUNNING', claim = 1, worker_id = $1, claimed_at = now()", worker_id)


async def _done(world: World) -> bool:
    return bool(await world.value("SELECT count(*) = 1 FROM job_history WHERE status = 'SUCCEEDED'"))
