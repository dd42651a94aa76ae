"""Nothing grows for ever: after the retentions only the rows of deleted instances are left."""

import pytest

from server.errors import CursorExpired
from server.events.event import Cursor
from server.events.log_identity import confirm_epoch
from server.events.partitions import make_partitions
from server.events.replay import check_cursor, cursor_now
from server.queue.kinds import CleanUp
from tests.support.world import World

MANY = 2_500  # more than two batches
# As left by instances that were created and deleted an hour ago.
LEFT_BEHIND = (
    """
    INSERT INTO instance (id, project_id, name, status, version, product_name, gpu_count, rootfs_size_gb, billing,
                          image, regions, env, ports, labels, health_check, endpoints, created_at, updated_at,
                          status_since, deleted_at)
    SELECT md5('i' || n)::uuid, $1, 'gone-' || n, 'DELETED', 9, 'RTX 4090 24GB', 1, 60, 'SPOT', 'nginx', '{}', '{}',
           '[]', '{}', '{}', '[]', t, t, t, t
    FROM generate_series(1, $2::int) AS n, (SELECT now() - interval '1 hour' AS t) AS hour
    """,
    """
    INSERT INTO operation (id, project_id, instance_id, kind, status, phase, version, created_at, started_at,
                           finished_at, before, wanted)
    SELECT md5('o' || n)::uuid, $1, md5('i' || n)::uuid, 'CREATE', 'SUCCEEDED', 'WAITING', 3, t, t, t, '{}', '{}'
    FROM generate_series(1, $2::int) AS n, (SELECT now() - interval '1 hour' AS t) AS hour
    """,
    """
    INSERT INTO attempt (id, operation_id, instance_id, number, status, region, reason_code, created_at, finished_at)
    SELECT md5('a' || n)::uuid, md5('o' || n)::uuid, md5('i' || n)::uuid, 1, 'REJECTED', 'AS-SGP-02', 'NONE', t, t
    FROM generate_series(1, $2::int) AS n, (SELECT $1::uuid, now() - interval '1 hour' AS t) AS hour
    """,
    """
    INSERT INTO idempotency_key (project_id, key, fingerprint, operation_id, created_at)
    SELECT $1, 'key-' || n, '', CASE WHEN n % 2 = 0 THEN md5('o' || n)::uuid END, now() - interval '1 hour'
    FROM generate_series(1, $2::int) AS n
    """,
    """
    INSERT INTO delivery (id, project_id, instance_id, event_type, url, body, status, keeps_order, attempts, counted,
                          created_at, asked_at, finished_at)
    SELECT md5('d' || n)::uuid, $1, md5('i' || n)::uuid, 'instance.deleted', 'http://x', '{}', 'DELIVERED', true, 1, 0,
           t, t, t
    FROM generate_series(1, $2::int) AS n, (SELECT now() - interval '1 hour' AS t) AS hour
    """,
    """
    INSERT INTO delivery_attempt (delivery_id, number, started_at, finished_at, http_status)
    SELECT md5('d' || n)::uuid, 1, t, t, 200
    FROM generate_series(1, $2::int) AS n, (SELECT $1::uuid, now() - interval '1 hour' AS t) AS hour
    """,
    """
    INSERT INTO job_history (id, kind, args, priority, status, attempts, run_at, created_at, finished_at)
    SELECT -n, 'CREATE_INSTANCE', '{}', 0, 'SUCCEEDED', 0, t, t, t
    FROM generate_series(1, $2::int) AS n, (SELECT $1::uuid, now() - interval '1 hour' AS t) AS hour
    """,
    """
    INSERT INTO event (position, id, type, project_id, data, occurred_at)
    SELECT (SELECT head FROM event_log) + n, md5('e' || n)::uuid, 'instance.deleted', $1, '{}',
           now() - interval '1 hour'
    FROM generate_series(1, $2::int) AS n
    """,
    "UPDATE event_log SET head = head + $2::int WHERE $1::uuid IS NOT NULL",
)
GROWING = ("operation", "attempt", "idempotency_key", "delivery", "delivery_attempt", "job_history", "event")
RETENTIONS = ("job_retention", "event_retention", "deleted_retention", "idempotency_retention")


@pytest.fixture
async def sequenced(world: World) -> World:
    """The world, with room in the log, as the sequencer makes it."""
    connection = await world.database.connect()
    try:
        log = await confirm_epoch(connection)
        await make_partitions(connection, head=log.head, size=2 * MANY)
    finally:
        await connection.close()
    return world


async def leave_behind(world: World, many: int) -> None:
    for statement in LEFT_BEHIND:
        await world.execute(statement, world.caller.project_id, many)


async def counts(world: World) -> dict[str, int]:
    return {name: await world.value(f"SELECT count(*) FROM {name}") for name in GROWING}


async def clean(world: World) -> None:
    await world.enqueue(CleanUp())
    while await world.work_once():
        await world.hurry()


async def test_thousands_of_deleted_instances_leave_only_their_rows(sequenced: World):
    await sequenced.configure(**dict.fromkeys(RETENTIONS, "5s"))
    await leave_behind(sequenced, MANY)

    await clean(sequenced)

    left = await counts(sequenced)
    assert left.pop("job_history") == 1  # the clean-up itself
    assert left == dict.fromkeys(left, 0)
    assert await sequenced.value("SELECT count(*) FROM instance WHERE status = 'DELETED'") == MANY
    async with sequenced.database.read() as session:
        head = await cursor_now(session)
        assert await check_cursor(session, head) == head.position
        with pytest.raises(CursorExpired):
            await check_cursor(session, Cursor(head.epoch, head.position - 1))


async def test_what_is_younger_than_its_retention_stays(sequenced: World):
    await sequenced.configure(**dict.fromkeys(RETENTIONS, "1d"))
    await leave_behind(sequenced, 10)
    before = await counts(sequenced)

    await clean(sequenced)

    assert await counts(sequenced) == {**before, "job_history": 11}


async def test_operations_stay_while_an_attempt_may_have_created_a_machine(sequenced: World):
    await sequenced.configure(**dict.fromkeys(RETENTIONS, "5s"))
    await leave_behind(sequenced, 2)
    await sequenced.execute(
        "UPDATE attempt SET status = 'UNKNOWN', finished_at = NULL, marker = 'pl0', cluster_id = 'c', product_id = 'p',"
        " billing_mode = 'SPOT', price_per_hour_e5 = 1 WHERE id = md5('a1')::uuid"
    )

    await clean(sequenced)

    left = await counts(sequenced)
    assert (left["operation"], left["attempt"]) == (1, 1)
