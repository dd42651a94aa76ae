"""The workers of `up` have a loop of their own: a blocked edge delays no job and costs no lease."""

import asyncio
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import SecretStr

from server.cli.loop_thread import LoopThread
from server.config import Settings
from server.queue.enqueue import enqueue
from server.queue.kinds import CleanUp
from server.runtime import Runtime
from tests.support.waiting import until
from tests.support.world import QUICK, World


async def test_jobs_are_run_under_one_lease_while_the_main_loop_is_blocked(world: World, database_url: str):
    settings = Settings(**{**QUICK, "job_lease": timedelta(seconds=2), "job_poll_interval": timedelta(milliseconds=50)})
    simulator = world.simulator
    given = {"database_url": database_url, "novita_url": simulator.url}
    key = SecretStr(simulator.api_key)
    async with (
        LoopThread("workers") as apart,
        Runtime(settings, **given, novita_key=key) as edge,
        apart.holding(lambda: Runtime(settings, **given, novita_key=key, beside=edge)) as working,
    ):
        await apart.run(_call(working.work))
        await until(lambda: edge.active_workers == 2)
        leases = await world.rows("SELECT id FROM job_worker ORDER BY id")
        async with world.database.write() as session:
            job_id = await enqueue(session, CleanUp(), after=timedelta(milliseconds=200))

        time.sleep(3)  # longer than a lease, as a flood would
        unblocked_at = datetime.now(UTC)

        finished = await world.rows("SELECT finished_at FROM job_history WHERE id = $1", job_id)
        assert [row["finished_at"] < unblocked_at for row in finished] == [True]
        assert await world.rows("SELECT id FROM job_worker ORDER BY id") == leases
        assert edge.has_workers
    assert "workers" not in {thread.name for thread in threading.enumerate()}


async def test_an_error_in_the_thread_reaches_the_caller():
    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("from there")

    async with LoopThread("apart") as apart:
        with pytest.raises(ValueError, match="from there"):
            await apart.run(fail())


async def _call(work: Callable[[], None]) -> None:
    work()
