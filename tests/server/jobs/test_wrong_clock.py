"""A worker whose wall clock is wrong makes no second machine: how long a create has been in doubt is not its to say."""

from datetime import datetime, timedelta, tzinfo
from typing import Any

import pytest

import server.clock
from server.novita.simulator.faults import Fault, FaultKind
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
