"""Waiting for an operation to end: returns at once, respects the timeout, and holds no connection."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import UUID

import pytest

from server.clock import new_id
from server.db.database import Database
from server.db.tables import Operation
from server.enums import InstanceStatus, OperationKind, OperationPhase, OperationStatus
from server.events.sequencer import Sequencer
from server.events.tail import Tail
from server.instances import operations, transitions
from server.instances.queries.await_operation import await_operation
from tests.support.waiting import until
from tests.support.world import World


@pytest.fixture
async def tail(world: World) -> AsyncIterator[Tail]:
    sequencer, tail = Sequencer(world.database, world.notifier), Tail(world.database, world.notifier)
    sequencer.start()
    tail.start()
    yield tail
    await tail.stop()
    await sequencer.stop()


async def begun(world: World) -> UUID:
    instance = await world.put(InstanceStatus.READY)
    async with world.database.write() as session:
        row = await transitions.lock(session, instance.id)
        operation = await operations.begin(session, row, OperationKind.UPDATE, by=world.caller.token_id)
    return operation.id


async def finish(world: World, operation_id: UUID) -> None:
    async with world.database.write() as session:
        await operations.finish(session, operation_id, OperationStatus.SUCCEEDED)


async def wait_for(
    world: World, tail: Tail, operation_id: UUID, seconds: float, database: Database | None = None
) -> Operation | None:
    return await await_operation(
        database or world.database,
        tail,
        operation_id,
        by=world.caller,
        timeout=timedelta(seconds=seconds),
    )


async def test_it_answers_as_soon_as_the_operation_is_over(world: World, tail: Tail):
    operation_id = await begun(world)
    waiting = asyncio.create_task(wait_for(world, tail, operation_id, 60))
    await until(lambda: tail.subscribers == 1)
    assert not waiting.done()

    await finish(world, operation_id)

    async with asyncio.timeout(30):
        operation = await waiting
    assert operation is not None
    assert (operation.id, operation.status, operation.phase) == (operation_id, "SUCCEEDED", "OVER")
    assert operation.finished_at is not None
    assert tail.subscribers == 0


async def test_it_answers_with_the_operation_as_it_is_when_the_time_is_over(world: World, tail: Tail):
    operation_id = await begun(world)
    began = time.monotonic()

    operation = await wait_for(world, tail, operation_id, 0.2)

    assert operation is not None
    assert operation.status == "QUEUED"
    assert time.monotonic() - began >= 0.2
    assert tail.subscribers == 0


async def test_what_is_over_already_is_answered_at_once(world: World, tail: Tail):
    operation_id = await begun(world)
    await finish(world, operation_id)

    async with asyncio.timeout(30):
        operation = await wait_for(world, tail, operation_id, 60)

    assert operation is not None
    assert operation.status == "SUCCEEDED"


async def test_a_change_that_is_not_the_end_is_waited_through(world: World, tail: Tail):
    operation_id = await begun(world)
    waiting = asyncio.create_task(wait_for(world, tail, operation_id, 60))
    await until(lambda: tail.subscribers == 1)

    async with world.database.write() as session:
        await operations.set_phase(session, operation_id, OperationPhase.UPDATING)
    await finish(world, operation_id)

    operation = await waiting
    assert operation is not None
    assert operation.version == 3


async def test_an_operation_of_another_project_is_not_waited_for(world: World, tail: Tail):
    operation_id = await begun(world)
    stranger = await world.new_caller("other")

    assert await wait_for(world, tail, new_id(), 60) is None
    found = await await_operation(world.database, tail, operation_id, by=stranger, timeout=timedelta(seconds=60))
    assert found is None


async def test_a_process_that_can_not_follow_the_log_answers_from_the_row(world: World):
    operation_id = await begun(world)
    silent = Tail(world.database, world.notifier)

    operation = await wait_for(world, silent, operation_id, 0.1)

    assert operation is not None
    assert operation.status == "QUEUED"


async def test_twenty_waiters_hold_none_of_two_connections(world: World, tail: Tail, database_url: str):
    operation_id = await begun(world)
    small = Database(database_url, pool_size=2)
    waiting = [asyncio.create_task(wait_for(world, tail, operation_id, 60, small)) for _ in range(20)]
    try:
        await until(lambda: tail.subscribers == 20 and small.engine.pool.checkedout() == 0)  # type: ignore[attr-defined]
        # All of them wait, and both connections are there for others.
        async with asyncio.timeout(30), small.read() as one, small.read() as two:
            assert one is not two

        await finish(world, operation_id)

        async with asyncio.timeout(30):
            answers = await asyncio.gather(*waiting)
        assert [answer.status for answer in answers if answer is not None] == ["SUCCEEDED"] * 20
    finally:
        await small.close()
