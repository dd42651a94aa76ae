"""A worker killed with -9 inside the transaction of an end: one end per due time, and no job is lost."""

from datetime import timedelta

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
# A stop waits for the lock that the test holds.
HOLD = """
    CREATE FUNCTION hold_end() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_advisory_xact_lock_shared(4711);
        RETURN NEW;
    END $$;
    CREATE TRIGGER hold_end BEFORE INSERT ON operation FOR EACH ROW WHEN (NEW.kind = 'STOP')
        EXECUTE FUNCTION hold_end()
"""
HELD = "FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711 AND NOT granted"

pytestmark = pytest.mark.slow


async def test_worker_killed_inside_an_end_neither_loses_nor_repeats_it(world: World, ready: Ready, database_url: str):
    instance_id = await ready(max_duration=HOUR)
    await age(world, instance_id, HOUR)
    await world.execute(
        "UPDATE job SET run_at = now(), due_at = now() WHERE unique_key = $1", f"lifetime {instance_id}"
    )
    env = {
        "DATABASE_URL": database_url,
        "NOVITA_API_BASE_URL": world.simulator.url,
        "NOVITA_API_KEY": world.simulator.api_key,
    }
    holder = await asyncpg.connect(database_url)

    async def is_held() -> bool:
        return bool(await holder.fetchval(f"SELECT count(*) {HELD}"))

    async def is_free() -> bool:
        return not await is_held()

    await holder.execute("SELECT pg_advisory_lock(4711)")
    await holder.execute(HOLD)
    try:
        async with pilotlight("worker", env=env) as worker:
            await until(is_held, within=60)
            await worker.kill_tree()
    finally:
        # As a server does that has noticed: what was not committed is undone.
        await holder.execute(f"SELECT pg_terminate_backend(pid) {HELD}")
        await until(is_free)
        await holder.execute("DROP TRIGGER hold_end ON operation; DROP FUNCTION hold_end()")
        await holder.close()
    stops = "SELECT count(*) FROM operation WHERE kind = 'STOP'"
    assert await world.value(stops) == 0
    assert await world.value("SELECT count(*) FROM job WHERE kind = 'END_LIFETIME' AND status = 'RUNNING'") == 1

    await rescue(world)
    await world.work_until_status(instance_id, InstanceStatus.EXITED)
    assert await world.value(stops) == 1
    ended = [
        values["outcome"] for type, values in await lifetime_events(world, instance_id) if type == "lifetime.ended"
    ]
    assert ended == ["ACCEPTED"]
    assert (await jobs(world, instance_id), await repair_lifetimes(world.database)) == (0, 0)
