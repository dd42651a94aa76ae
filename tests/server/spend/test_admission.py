"""Admission: one transaction for a batch, and statements whose plans are reused."""

import asyncio

import asyncpg
import pytest

from server.db.database import fetch_in
from server.spend.admission import LOCK_BUDGETS, LOCK_QUOTAS, Admission, Want
from server.spend.quotas import USAGE as QUOTA_USAGE
from server.spend.quotas import QuotaDraft, set_quota
from server.spend.usage import USAGE
from tests.server.spend.test_budgets import LIFETIME, budget
from tests.support.waiting import until
from tests.support.world import World

MANY = 8
WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
PREPARED = "SELECT statement, generic_plans, custom_plans FROM pg_prepared_statements"


async def test_admissions_one_after_another_reuse_their_plans(world: World, database_url: str):
    await budget(world, 10**12)
    async with world.database.write() as session:
        await set_quota(session, QuotaDraft(max_instances=100), project_id=world.caller.project_id)
    want = Want(world.caller.project_id, world.caller.token_id, {"team": "a"}, 36_000, 3600, 1)

    connection = await asyncpg.connect(database_url)  # a new one: plans of other tests are not reused
    for _ in range(5 + MANY):  # PostgreSQL tries five plans for the values before it compares
        async with connection.transaction():
            (await Admission.lock(connection.fetch, want.project_id, [want])).admit(want)
    plans = {row[0]: (row[1] >= MANY, row[2]) for row in await connection.fetch(PREPARED)}
    await connection.close()

    assert [plans[each] for each in (LOCK_BUDGETS, LOCK_QUOTAS, USAGE, QUOTA_USAGE)] == [(True, 5)] * 4


async def test_a_connection_lost_while_the_budget_is_waited_for_accepts_nothing_and_the_next_create_works(world: World):
    await budget(world, 10**12)
    before = await world.counts()
    async with world.database.write() as session:
        await Admission.lock(fetch_in(session), world.caller.project_id, [])
        create = asyncio.create_task(world.create("lost", lifetime=LIFETIME))

        async def is_waiting() -> bool:
            return bool(await world.rows(WAITING))

        await until(is_waiting)
        await world.rows(f"SELECT pg_terminate_backend(pid) FROM ({WAITING}) AS waiting")
        with pytest.raises(ConnectionError, match="the database went away"):
            await create

    assert await world.counts() == before
    await world.create("next", lifetime=LIFETIME)
