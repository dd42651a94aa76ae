"""A worker whose wall clock is wrong: it makes no second machine, and holds no message up."""

import time
from datetime import datetime, timedelta, tzinfo
from typing import Any

import pytest

import server.clock
from server.instances import moves
from server.novita.simulator.faults import Fault, FaultKind
from server.words import InstanceStatus
from tests.server.webhooks.receiver import Receiver
from tests.world import World

CREATE = "POST /gpu/instance/create"


@pytest.fixture(params=[timedelta(days=1), timedelta(days=-1)], ids=["a day ahead", "a day behind"])
def wrong_clock(request: pytest.FixtureRequest) -> type[datetime]:
    class Wrong(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return datetime.now(tz) + request.param

    return Wrong


async def statuses(world: World, operation_id: Any) -> list[str]:
    return [status for _, _, status, _ in await world.attempts(operation_id)]


async def test_a_create_in_doubt_is_not_given_up_early_by_a_worker_whose_clock_is_wrong(
    world: World, wrong_clock: type[datetime], monkeypatch: pytest.MonkeyPatch
):
    accepted = await world.create("doubtful")
    # Made, answered with an error, and not yet in the list.
    world.faults(Fault(FaultKind.ERROR_AFTER, (CREATE,), times=1), Fault(FaultKind.LIST_LAG, (CREATE,), seconds=60))
    await world.work_once()

    monkeypatch.setattr(server.clock, "datetime", wrong_clock)
    for _ in range(3):
        await world.hurry()
        await world.work_once()

    assert await statuses(world, accepted.operation.id) == ["UNKNOWN"]
    assert world.made() == 1


async def test_an_attempt_of_a_worker_whose_clock_is_wrong_is_not_given_up_early_by_others(
    world: World, wrong_clock: type[datetime], monkeypatch: pytest.MonkeyPatch
):
    accepted = await world.create("doubtful")
    world.faults(Fault(FaultKind.ERROR_AFTER, (CREATE,), times=1), Fault(FaultKind.LIST_LAG, (CREATE,), seconds=60))
    with monkeypatch.context() as patch:
        patch.setattr(server.clock, "datetime", wrong_clock)
        await world.work_once()

    for _ in range(3):
        await world.hurry()
        await world.work_once()

    assert await statuses(world, accepted.operation.id) == ["UNKNOWN"]
    assert world.made() == 1


async def test_messages_wait_as_long_as_they_should_whatever_the_workers_clock_says(
    world: World, receiver: Receiver, wrong_clock: type[datetime], monkeypatch: pytest.MonkeyPatch
):
    receiver.always = 503
    monkeypatch.setattr(server.clock, "datetime", wrong_clock)
    instance = await world.put(InstanceStatus.RUNNING, webhook_url=receiver.url)
    for status in (InstanceStatus.HEALTH_CHECKING, InstanceStatus.READY):
        async with world.database.write() as session:
            await moves.move(session, instance.id, status, cause=moves.Cause())

    await world.work_once()
    await world.hurry()
    await world.work_once()  # the second one looks how long the first will take

    pauses = await world.rows("SELECT extract(epoch FROM run_at - now())::float8 AS seconds FROM job")
    assert [each["seconds"] < 20 for each in pauses] == [True, True]
    shown = await world.rows(
        "SELECT status, next_attempt_at - now() < interval '20 seconds' AS soon FROM delivery ORDER BY seq"
    )
    assert [tuple(each) for each in shown] == [("PENDING", True), ("PENDING", None)]
    assert abs(float(receiver.got[0].headers["webhook-timestamp"]) - time.time()) < 3600
