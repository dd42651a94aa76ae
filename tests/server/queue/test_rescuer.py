"""Expired leases are looked for once per interval and process, however many workers it has."""

from uuid import uuid4

from server.queue.rescuer import LeaseWatch
from tests.server.queue.conftest import World

EXPIRED = "INSERT INTO job_worker (id, name, lease_until, lease) VALUES ($1, 'gone', now() - interval '1 s', '5 s')"


async def test_one_worker_of_a_process_looks_for_expired_leases_in_each_interval(world: World):
    watch, pool = world.database.shared(LeaseWatch), world.database.raw
    assert not await watch.look_for_expired(pool, interval=0.0)

    await pool.execute(EXPIRED, uuid4())

    assert not await watch.look_for_expired(pool, interval=60.0)  # another has just looked
    assert await watch.look_for_expired(pool, interval=0.0)
    assert world.database.shared(LeaseWatch) is watch
