"""A database server without free connections counts as an outage: no attempt is counted."""

from typing import Any

import pytest
from sqlalchemy import text

from server.queue.claim import Claim
from server.queue.handler import Done, Outcome
from tests.server.queue.conftest import Note, World


@pytest.mark.parametrize("trouble", ["disk_full", "out_of_memory", "too_many_connections"])
async def test_a_server_without_room_costs_a_job_no_attempt(world: World, trouble: str):
    async def write(_work: Any, claim: Claim) -> Outcome:
        async with claim.write() as session:
            await session.execute(text(f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{trouble}'; END $$"))
        return Done()

    await world.enqueue(Note())

    await world.worker(write, max_attempts=1).work_once()

    assert await world.jobs() == [("TEST_NOTE", "WAITING", 0)]
