"""Admission: one transaction for a batch, and statements whose plans are reused."""

import asyncio

import pytest

from server.db.database import fetch_in
from server.instances.commands.create_statement import insert_statement
from server.spend.admission import LOCK_BUDGETS, LOCK_QUOTAS, Admission
from server.spend.quotas import USAGE as QUOTA_USAGE
from server.spend.quotas import QuotaDraft, set_quota
from server.spend.usage import USAGE
from tests.server.spend.test_budgets import LIFETIME, budget
from tests.support.waiting import until
from tests.support.world import World

MANY = 8
WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
PREPARED = "SELECT statement, generic_plans, custom_plans FROM pg_prepared_statements"


async def test_creates_one_after_another_reuse_the_plans_of_their_admission(world: World):
    # Statistics that appear in the middle may make PostgreSQL plan for the values again.
    for table in ("budget", "quota", "instance", "operation", "cost_entry"):
        await world.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false)")
    await budget(world, 10**12)
    async with world.database.write() as session:
        await set_quota(session, QuotaDraft(max_instances=100), project_id=world.caller.project_id)

    for number in range(5 + MANY):  # PostgreSQL tries five plans for the values before it compares
        await world.create(f"i{number}", lifetime=LIFETIME)

    plans = {row[0]: (row[1] >= MANY, row[2]) for row in await world.database.raw.fetch(PREPARED)}
    statements = (LOCK_BUDGETS, LOCK_QUOTAS, USAGE, QUOTA_USAGE, insert_statement())
    assert [plans[statement] for statement in statements] == [(True, 5)] * 5


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
