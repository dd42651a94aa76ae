"""A process that freezes inside a transaction delays the instance's operation, and never ends it."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from sqlalchemy import text

from server.db.database import Database
from server.db.timeouts import Timeouts
from server.enums import InstanceStatus
from tests.support.frozen import frozen_process
from tests.support.world import World

HOLD = text("SELECT FROM instance WHERE id = :id FOR UPDATE")


@pytest.fixture
async def impatient(world: World, database_url: str) -> AsyncIterator[World]:
    """The world, with a worker whose statements wait for no lock longer than 50 ms."""
    database = Database(database_url, timeouts=Timeouts(lock=timedelta(milliseconds=50)))
    patient, world.database = world.database, database
    world.worker = world.worker_with(world.novita)
    world.database = patient
    yield world
    await database.close()


async def test_create_goes_on_after_a_process_froze_with_the_row_locked(world: World, database_url: str):
    accepted = await world.create("held")

    async with frozen_process(database_url, accepted.instance.id, idle=timedelta(seconds=1)):
        await world.work_until_status(accepted.instance.id, InstanceStatus.READY)

    assert world.made() == 1
    ended = await world.rows("SELECT status, attempts FROM job_history WHERE kind = 'CREATE_INSTANCE'")
    assert [tuple(each) for each in ended] == [("SUCCEEDED", 0)]


async def test_job_that_finds_the_row_locked_is_run_again_and_loses_no_attempt(impatient: World):
    accepted = await impatient.create("held")
    async with impatient.database.write() as holder:
        await holder.execute(HOLD, {"id": accepted.instance.id})
        for _ in range(impatient.settings.max_retry_attempts + 1):
            await impatient.hurry()
            assert await impatient.work_once() == 1
        job = await impatient.one("SELECT status, attempts, error_code FROM job WHERE kind = 'CREATE_INSTANCE'")

    assert tuple(job) == ("WAITING", 0, None)
    await impatient.work_until_status(accepted.instance.id, InstanceStatus.READY)
    assert impatient.made() == 1


async def test_cancelled_and_terminated_statements_lose_no_attempt(world: World):
    accepted = await world.create("cancelled")
    for function in ("pg_cancel_backend", "pg_terminate_backend"):
        await world.execute(f"""
            CREATE FUNCTION interrupt() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN PERFORM {function}(pg_backend_pid()); RETURN NEW; END $$
        """)
        await world.execute("CREATE TRIGGER interrupt BEFORE INSERT ON attempt EXECUTE FUNCTION interrupt()")
        try:
            for _ in range(world.settings.max_retry_attempts + 1):
                await world.hurry()
                assert await world.work_once() == 1
        finally:
            await world.execute("DROP FUNCTION interrupt CASCADE")
        job = await world.one("SELECT status, attempts, error_code FROM job WHERE kind = 'CREATE_INSTANCE'")
        assert tuple(job) == ("WAITING", 0, None)

    await world.work_until_status(accepted.instance.id, InstanceStatus.READY)
    assert world.made() == 1
