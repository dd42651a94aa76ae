"""A key or account that the provider refuses for a while ends no accepted operation."""

from datetime import timedelta

import pytest
from pydantic import SecretStr

from server.enums import InstanceStatus, OperationKind
from server.novita.client import NovitaClient
from server.simulator.faults import Fault, FaultKind
from tests.support.lifecycle import ask, exited, ready, status_of
from tests.support.world import CREATE, GET, LIST, World

REFUSALS = [(401, "INVALID_API_KEY"), (402, "NOT_ENOUGH_BALANCE"), (403, "BANNED_USER")]


@pytest.mark.parametrize(("status", "reason"), REFUSALS)
async def test_every_accepted_operation_waits_and_then_succeeds(world: World, status: int, reason: str):
    """Two creates, a start, a stop and a delete, all accepted while the key is refused."""
    stopped, running, leaving = await exited(world, "a"), await ready(world, "b"), await ready(world, "c")
    monitored = await world.create("d")
    await world.work_once()
    new = await world.create("e")
    operations = [
        monitored.operation.id,
        new.operation.id,
        (await ask(world, OperationKind.START, stopped)).operation.id,
        (await ask(world, OperationKind.STOP, running)).operation.id,
        await world.delete(leaving),
    ]
    world.faults(Fault(FaultKind.ERROR, status=status, reason=reason, message="no"))

    for _ in range(6):
        await world.hurry()
        await world.work_once()

    assert [(await world.operation(each))["finished_at"] for each in operations] == [None] * 5
    assert await world.value("SELECT count(*) FROM instance WHERE status = 'FAILED'") == 0
    assert await world.value("SELECT max(attempts) FROM job") == 0

    world.faults()
    assert [(await world.work_until_over(each))["status"] for each in operations] == ["SUCCEEDED"] * 5
    assert await status_of(world, leaving) == "DELETED"
    assert world.made("e") == 1


@pytest.mark.parametrize("status", [400, 401, 403])
async def test_a_refused_look_never_fails_an_instance(world: World, status: int):
    """Not even when it is refused for longer than any outage may last."""
    accepted = await world.create("hidden")
    await world.work_until_status(accepted.instance.id, InstanceStatus.STARTING)
    await world.configure(provider_max_wait=timedelta(milliseconds=1))
    world.faults(Fault(FaultKind.ERROR, (GET, LIST), status=status, reason="FORBIDDEN" if status == 403 else ""))

    for _ in range(6):
        await world.hurry()
        await world.work_once()
    assert await status_of(world, accepted.instance.id) == "STARTING"

    world.faults()
    await world.work_until_status(accepted.instance.id, InstanceStatus.READY)


async def test_create_refused_for_the_account_is_sent_again_for_the_same_candidate(world: World):
    accepted = await world.create("patient")
    world.faults(Fault(FaultKind.ERROR, (CREATE,), times=2, status=402, reason="NOT_ENOUGH_BALANCE", message="no"))

    await world.work_until_status(accepted.instance.id, InstanceStatus.READY)

    assert [tuple(each)[1:] for each in await world.attempts(accepted.operation.id)] == [
        ("spot", "REJECTED", "PAYMENT_REQUIRED"),
        ("spot", "REJECTED", "PAYMENT_REQUIRED"),
        ("spot", "CREATED", None),
    ]
    assert world.made() == 1


async def test_a_worker_with_a_refused_key_sends_one_call_and_says_why(world: World):
    first, *others = [await ready(world, name) for name in ("a", "b", "c")]
    await world.delete(first)
    world.simulator.world.calls.clear()
    world.faults(Fault(FaultKind.ERROR, status=401, reason="INVALID_API_KEY", message="no"))
    async with NovitaClient(base_url=world.simulator.url, api_key=SecretStr("an old key")) as old:
        worker = world.worker_with(old)
        await world.hurry()
        await world.work_once(worker)
        for instance_id in others:
            await world.delete(instance_id)
        for _ in range(3):
            await world.hurry()
            await world.work_once(worker)

        assert (world.calls(), list(old.breaker.snapshot().refusals)) == (1, ["key"])
        assert await world.value("SELECT count(*) FROM operation WHERE last_error_code LIKE 'PROVIDER_%'") == 3


async def test_while_calls_are_suspended_a_create_leaves_no_attempts(world: World):
    await world.create("patient")
    world.faults(Fault(FaultKind.ERROR, (CREATE,), status=402, reason="NOT_ENOUGH_BALANCE", message="no"))
    async with NovitaClient(base_url=world.simulator.url, api_key=SecretStr(world.simulator.api_key)) as novita:
        worker = world.worker_with(novita)
        for _ in range(5):
            await world.hurry()
            await world.work_once(worker)

    rows = await world.rows("SELECT status, reason_code FROM attempt")
    assert [tuple(row) for row in rows] == [("REJECTED", "PAYMENT_REQUIRED")]
    assert await world.value("SELECT count(*) FROM operation WHERE finished_at IS NULL") == 1
