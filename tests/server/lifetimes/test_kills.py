"""A worker killed with -9 during an end, before or after its commit: one end per due time, and no job is lost."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from server.enums import InstanceStatus
from server.lifetimes.repair import repair_lifetimes
from tests.server.lifetimes.conftest import Ready, age, jobs, lifetime_events
from tests.support.lifecycle import rescue
from tests.support.processes import pilotlight
from tests.support.waiting import until
from tests.support.world import World

HOUR = timedelta(hours=1)
STOPS = "SELECT count(*) FROM operation WHERE kind = 'STOP'"
RUNNING_ENDS = "SELECT count(*) FROM job WHERE kind = 'END_LIFETIME' AND status = 'RUNNING'"
# What the trigger stands for waits for the lock that the test holds.
HOLD = """
    CREATE FUNCTION hold_end() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_advisory_xact_lock_shared(4711);
        RETURN {row};
    END $$;
    CREATE TRIGGER hold_end BEFORE {event} FOR EACH ROW WHEN ({row}.kind = '{kind}') EXECUTE FUNCTION hold_end()
"""
HELD = "FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711 AND NOT granted"

pytestmark = pytest.mark.slow


async def due_end(world: World, ready: Ready) -> UUID:
    instance_id = await ready(max_duration=HOUR)
    await age(world, instance_id, HOUR)
    await world.execute(
        "UPDATE job SET run_at = now(), due_at = now() WHERE unique_key = $1", f"lifetime {instance_id}"
    )
    return instance_id


@asynccontextmanager
async def held(url: str, table: str, **values: str) -> AsyncIterator[Any]:
    """Statements that the trigger stands for wait; afterwards those of killed processes are undone."""
    holder = await asyncpg.connect(url)

    async def is_free() -> bool:
        return not await holder.fetchval(f"SELECT count(*) {HELD}")

    await holder.execute("SELECT pg_advisory_lock(4711)")
    await holder.execute(HOLD.format(**values))
    try:
        yield holder
    finally:
        # As a server does that has noticed: what was not committed is undone.
        await holder.execute(f"SELECT pg_terminate_backend(pid) {HELD}")
        await until(is_free)
        await holder.execute(f"DROP TRIGGER hold_end ON {table}; DROP FUNCTION hold_end()")
        await holder.close()


async def killed_while_held(world: World, holder: Any, url: str) -> None:
    env = {
        "DATABASE_URL": url,
        "NOVITA_API_BASE_URL": world.simulator.url,
        "NOVITA_API_KEY": world.simulator.api_key,
    }

    async def is_held() -> bool:
        return bool(await holder.fetchval(f"SELECT count(*) {HELD}"))

    async with pilotlight("worker", env=env) as worker:
        await until(is_held, within=60)
        await worker.kill_tree()


async def check_one_end(world: World, instance_id: UUID) -> None:
    await rescue(world)
    await world.work_until_status(instance_id, InstanceStatus.EXITED)
    assert await world.value(STOPS) == 1
    ended = [
        values["outcome"] for type, values in await lifetime_events(world, instance_id) if type == "lifetime.ended"
    ]
    assert ended == ["ACCEPTED"]
    assert (await jobs(world, instance_id), await repair_lifetimes(world.database)) == (0, 0)


async def test_worker_killed_inside_an_end_neither_loses_nor_repeats_it(world: World, ready: Ready, database_url: str):
    instance_id = await due_end(world, ready)
    async with held(database_url, "operation", event="INSERT ON operation", row="NEW", kind="STOP") as holder:
        await killed_while_held(world, holder, database_url)
    assert (await world.value(STOPS), await world.value(RUNNING_ENDS)) == (0, 1)

    await check_one_end(world, instance_id)


async def test_worker_killed_right_after_the_commit_of_an_end_does_not_repeat_it(
    world: World, ready: Ready, database_url: str
):
    instance_id = await due_end(world, ready)
    async with held(database_url, "job", event="DELETE ON job", row="OLD", kind="END_LIFETIME") as holder:
        await killed_while_held(world, holder, database_url)
    # The stop was accepted, and its job is still the dead worker's.
    assert (await world.value(STOPS), await world.value(RUNNING_ENDS)) == (1, 1)
    assert (await world.instance(instance_id))["status"] == "STOPPING"

    await check_one_end(world, instance_id)
