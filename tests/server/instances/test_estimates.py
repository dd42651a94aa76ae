"""Estimated ready times: from defaults at first, then from past operations."""

from datetime import datetime, timedelta
from uuid import UUID

import pytest

from server.clock import new_id, now
from server.db.tables import Operation
from server.enums import InstanceStatus, OperationKind
from server.instances.estimates import usual_time
from tests.support.lifecycle import ask, exited
from tests.support.world import RTX, SINGAPORE, World


async def remember(world: World, seconds: int, *, finished_at: datetime | None = None, **fields: object) -> None:
    """An operation that succeeded after so many seconds."""
    instance = await world.put(InstanceStatus.READY)
    end = finished_at or now()
    values: dict[str, object] = {
        "project_id": instance.project_id,
        "kind": OperationKind.START,
        "status": "SUCCEEDED",
        "product_name": RTX,
        "region": SINGAPORE,
        **fields,
    }
    operation = Operation(
        id=new_id(),
        instance_id=instance.id,
        phase="OVER",
        created_at=end - timedelta(seconds=seconds),
        finished_at=end,
        **values,
    )
    async with world.database.write() as session:
        session.add(operation)


async def usual(world: World, kind: OperationKind = OperationKind.START, project: UUID | None = None) -> timedelta:
    async with world.database.read() as session:
        return await usual_time(
            session, kind, project_id=project or world.caller.project_id, product_name=RTX, region=SINGAPORE
        )


async def test_with_history_the_estimate_is_the_median(world: World):
    for seconds in (10, 20, 3000):
        await remember(world, seconds)

    assert await usual(world) == timedelta(seconds=20)


async def test_only_what_is_alike_counts(world: World):
    stranger = await world.new_caller("other")
    await remember(world, 10, region="CN-HK-01")
    await remember(world, 10, product_name="H100")
    await remember(world, 10, kind=OperationKind.RESTART)
    await remember(world, 10, status="FAILED", error_code="X")
    await remember(world, 10, project_id=stranger.project_id)

    assert await usual(world) == timedelta(minutes=3)


async def test_the_last_fifty_count(world: World):
    for _ in range(50):
        await remember(world, 30)
    for _ in range(60):
        await remember(world, 900, finished_at=now() - timedelta(days=1))

    assert await usual(world) == timedelta(seconds=30)


@pytest.mark.parametrize("kind", [OperationKind.CREATE, OperationKind.START])
async def test_a_success_is_recorded_and_used_for_the_next_estimate(
    world: World, kind: OperationKind, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("server.instances.estimates.CACHE_TTL", 0.0)  # else an estimate serves for some seconds
    if kind is OperationKind.CREATE:
        first = await world.create("first")
        assert first.instance.estimated_ready_at is not None
        by_the_book = first.instance.estimated_ready_at - first.instance.created_at
        assert abs(by_the_book - world.settings.estimated_ready_time) < timedelta(seconds=1)
        await world.work_until_over(first.operation.id)
        second = await world.create("second")
    else:
        instance_id = await exited(world)
        await world.work_until_over((await ask(world, kind, instance_id)).operation.id)
        await world.work_until_over((await ask(world, OperationKind.STOP, instance_id)).operation.id)
        second = await ask(world, kind, instance_id)

    assert second.operation.estimated_ready_at is not None
    assert second.operation.estimated_ready_at - second.operation.created_at < timedelta(seconds=60)


async def test_the_median_is_one_walk_of_its_index(world: World):
    await world.execute(
        """
        INSERT INTO operation (id, project_id, instance_id, kind, status, phase, created_at, finished_at,
                               product_name, region)
        SELECT gen_random_uuid(), $1, $2, 'START', 'SUCCEEDED', 'OVER', now() - interval '1 day',
               now() - n * interval '1 second', 'p' || n % 50, 'r' || n % 10
        FROM generate_series(1, 20000) AS n
        """,
        world.caller.project_id,
        (await world.put(InstanceStatus.READY)).id,
    )
    await world.execute("ANALYZE operation")

    plan = "\n".join(
        row[0]
        for row in await world.rows(
            """
            EXPLAIN SELECT finished_at - created_at FROM operation
            WHERE status = 'SUCCEEDED' AND project_id = $1 AND kind = 'START' AND product_name = 'p1' AND region = 'r1'
            ORDER BY finished_at DESC LIMIT 50
            """,
            world.caller.project_id,
        )
    )

    assert "Index Scan Backward using operation_that_succeeded" in plan
    assert "Sort" not in plan
