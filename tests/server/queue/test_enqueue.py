"""Enqueueing: only with the caller's commit, and only once per unique key."""

import asyncio
from datetime import timedelta
from uuid import uuid4

import asyncpg
import pytest

from server.queue.enqueue import enqueue, enqueue_many
from server.queue.kinds import CreateInstance
from tests.server.queue.conftest import Note, World


async def test_a_job_exists_only_if_its_transaction_commits(world: World):
    async def refused() -> None:
        async with world.database.write() as session:
            await enqueue(session, Note())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await refused()

    assert await world.jobs() == []


async def test_the_row_knows_its_instance_and_project(world: World):
    work, project = CreateInstance(uuid4(), uuid4()), uuid4()

    await world.enqueue(work, project_id=project)

    [row] = await world.rows("SELECT kind, project_id, instance_id, args->>'operation_id' AS operation FROM job")
    assert tuple(row) == ("CREATE_INSTANCE", project, work.instance_id, str(work.operation_id))


async def test_callers_racing_with_the_same_unique_key_get_one_job(world: World):
    ids = await asyncio.gather(*(world.enqueue(Note(str(n)), unique_key="one") for n in range(8)))

    assert len({job_id for [job_id] in ids}) == 1
    assert len(await world.jobs()) == 1


async def test_a_unique_key_is_free_again_when_its_job_is_over(world: World):
    [first] = await world.enqueue(Note(), unique_key="one")
    await world.worker().work_once()

    [second] = await world.enqueue(Note(), unique_key="one")

    assert second != first


async def test_many_jobs_are_one_statement_and_keep_their_order(world: World):
    async with world.database.write() as session:
        ids = await enqueue_many(session, [Note(str(n)) for n in range(100)])

    rows = await world.rows("SELECT id, args->>'text' AS text FROM job ORDER BY id")
    assert [row["id"] for row in rows] == ids
    assert [row["text"] for row in rows] == [str(n) for n in range(100)]


async def test_a_job_for_later_is_not_due_before(world: World):
    await world.enqueue(Note(), after=timedelta(minutes=1))

    assert await world.worker().work_once() == 0


async def test_a_job_can_not_be_due_before_it_may_run(world: World):
    await world.enqueue(Note())

    with pytest.raises(asyncpg.CheckViolationError, match="job_is_not_due_before_it_may_run"):
        await world.execute("UPDATE job SET due_at = run_at - interval '1 s'")
