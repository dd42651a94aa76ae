"""A process with a wrong clock fails no create, creates no second machine and delays no delivery."""

import time
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta, tzinfo
from typing import Any

import pytest

import server.clock
from server.db.database import Database
from server.enums import InstanceStatus
from server.instances import transitions
from server.simulator.faults import Fault, FaultKind
from tests.support.receiver import Receiver
from tests.support.world import World

WrongClock = Callable[[], AbstractContextManager[None]]

CREATE = "POST /gpu/instance/create"


WRONG = {
    "a day ahead": timedelta(days=1),
    "15 minutes ahead": timedelta(minutes=15),
    "15 minutes behind": timedelta(minutes=-15),
    "a day behind": timedelta(days=-1),
}


@pytest.fixture(params=WRONG)
async def wrong_clock(request: pytest.FixtureRequest, world: World, database_url: str) -> AsyncIterator[WrongClock]:
    """What the world does meanwhile, a process does whose machine's clock is wrong."""

    class Wrong(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return datetime.now(tz) + WRONG[request.param]

    elsewhere = Database(database_url)

    @contextmanager
    def entered() -> Generator[None]:
        here = world.database, world.worker
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(server.clock, "datetime", Wrong)
            patch.setattr(server.clock, "CLOCK", server.clock.Clock())
            world.database = elsewhere
            world.worker = world.worker_with(world.novita)
            yield
        world.database, world.worker = here

    yield entered
    await elsewhere.close()


async def statuses(world: World, operation_id: Any) -> list[str]:
    return [status for _, _, status, _ in await world.attempts(operation_id)]


async def test_worker_with_a_wrong_clock_fails_no_create(world: World, wrong_clock: WrongClock):
    accepted = [await world.create(f"one-{number}") for number in range(3)]
    with wrong_clock():
        for each in accepted:
            await world.work_until_status(each.instance.id, InstanceStatus.READY)

    assert world.made() == 3
    odd = "SELECT count(*) FROM instance WHERE abs(extract(epoch FROM ready_at - now())) > 60"
    assert await world.value(odd) == 0


async def test_times_of_a_process_with_a_wrong_clock_fail_no_create_elsewhere(world: World, wrong_clock: WrongClock):
    with wrong_clock():
        accepted = await world.create("one")
        await world.work_once()

    await world.work_until_status(accepted.instance.id, InstanceStatus.READY)
    assert world.made() == 1


async def test_unresolved_create_is_not_failed_early_by_a_worker_with_a_wrong_clock(
    world: World, wrong_clock: WrongClock
):
    accepted = await world.create("doubtful")
    # Made, answered with an error, and not yet in the list.
    world.faults(Fault(FaultKind.ERROR_AFTER, (CREATE,), times=1), Fault(FaultKind.LIST_LAG, (CREATE,), seconds=60))
    await world.work_once()

    with wrong_clock():
        for _ in range(3):
            await world.hurry()
            await world.work_once()

    assert await statuses(world, accepted.operation.id) == ["UNKNOWN"]
    assert world.made() == 1


async def test_attempt_of_a_worker_with_a_wrong_clock_is_not_failed_early_by_others(
    world: World, wrong_clock: WrongClock
):
    accepted = await world.create("doubtful")
    world.faults(Fault(FaultKind.ERROR_AFTER, (CREATE,), times=1), Fault(FaultKind.LIST_LAG, (CREATE,), seconds=60))
    with wrong_clock():
        await world.work_once()

    for _ in range(3):
        await world.hurry()
        await world.work_once()

    assert await statuses(world, accepted.operation.id) == ["UNKNOWN"]
    assert world.made() == 1


async def test_deliveries_wait_for_their_time_with_a_wrong_clock(
    world: World, receiver: Receiver, wrong_clock: WrongClock
):
    receiver.always = 503
    with wrong_clock():
        instance = await world.put(InstanceStatus.RUNNING, webhook_url=receiver.url)
        for status in (InstanceStatus.HEALTH_CHECKING, InstanceStatus.READY):
            async with world.database.write() as session:
                await transitions.transition(session, instance.id, status, cause=transitions.Cause())

        await world.work_once()
        await world.hurry()
        await world.work_once()  # the second one checks how long the first will take

    pauses = await world.rows("SELECT extract(epoch FROM run_at - now())::float8 AS seconds FROM job")
    assert [each["seconds"] < 20 for each in pauses] == [True, True]
    shown = await world.rows(
        "SELECT status, next_attempt_at - now() < interval '20 seconds' AS soon FROM delivery ORDER BY seq"
    )
    assert [tuple(each) for each in shown] == [("PENDING", True), ("PENDING", None)]
    assert abs(float(receiver.got[0].headers["webhook-timestamp"]) - time.time()) < 3600
