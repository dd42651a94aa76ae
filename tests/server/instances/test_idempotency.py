"""Requests with the same key make one operation, however often and concurrently they are sent."""

import asyncio

import pytest

from server.enums import OperationKind
from server.errors import Invalid, KeyReused
from server.instances.commands.delete import accept_delete
from server.instances.commands.lifecycle import Target
from server.instances.commands.update import UpdateDraft, update_instance
from tests.support.lifecycle import ROUTES, START, ask, cancel, changes, exited, fit_for, ready
from tests.support.world import World


async def test_a_start_with_one_key_sent_fifty_times_at_once_is_one_operation(world: World):
    instance_id = await exited(world)

    answers = await asyncio.gather(*(ask(world, OperationKind.START, instance_id, key="once") for _ in range(50)))

    assert len({answer.operation.id for answer in answers}) == 1
    assert [answer.replayed for answer in answers].count(False) == 1
    assert await world.event_types(instance_id) == ["operation.started", "instance.starting"]
    assert await world.value("SELECT count(*) FROM job") == 1
    await world.work_until_over(answers[0].operation.id)
    assert changes(world) == {START: 1}


@pytest.mark.parametrize("kind", list(ROUTES))
async def test_a_key_gives_the_same_operation_long_after_it_is_over(world: World, kind: OperationKind):
    instance_id = await fit_for(world, kind)
    first = await ask(world, kind, instance_id, key="k")
    await world.work_until_over(first.operation.id)
    before = await world.counts()

    again = await ask(world, kind, instance_id, key="k")

    assert (again.replayed, again.operation.id, again.operation.status) == (True, first.operation.id, "SUCCEEDED")
    assert await world.counts() == before


async def test_a_key_that_stood_for_something_else_is_refused(world: World):
    instance_id = await exited(world)
    other = await ready(world, "other")
    await ask(world, OperationKind.START, instance_id, key="k")
    before = await world.counts()

    with pytest.raises(KeyReused):
        await ask(world, OperationKind.STOP, other, key="k")
    with pytest.raises(KeyReused):
        await ask(world, OperationKind.START, other, key="k")
    with pytest.raises(KeyReused):
        await accept_delete(world.database, Target(instance_id), by=world.caller, key="k")
    draft = UpdateDraft(name="x", idempotency_key="k")
    with pytest.raises(KeyReused):
        await update_instance(world.database, Target(instance_id), draft, by=world.caller)

    assert await world.counts() == before


async def test_a_refused_request_does_not_use_its_key_up(world: World):
    instance_id = await exited(world)
    with pytest.raises(Exception, match="Stop is not allowed while the instance is"):
        await ask(world, OperationKind.STOP, instance_id, key="k")

    accepted = await ask(world, OperationKind.START, instance_id, key="k")

    assert accepted.replayed is False


async def test_two_keys_for_one_delete_stand_for_the_same_operation(world: World):
    instance_id = await ready(world)
    first = await accept_delete(world.database, Target(instance_id), by=world.caller, key="a")
    second = await accept_delete(world.database, Target(instance_id), by=world.caller, key="b")
    await world.work_until_over(first.operation.id)

    again = await accept_delete(world.database, Target(instance_id), by=world.caller, key="b")

    assert (second.replayed, second.operation.id) == (False, first.operation.id)
    assert (again.replayed, again.operation.id, again.instance.status) == (True, first.operation.id, "DELETED")


async def test_a_cancel_with_a_key_gives_the_same_answer_again(world: World):
    accepted = await world.create("one")
    await world.work_once()
    first = await cancel(world, accepted.operation.id, key="k")
    assert first.clean_up is not None
    await world.work_until_over(first.clean_up.id)

    again = await cancel(world, accepted.operation.id, key="k")

    assert (again.replayed, again.operation.id, again.operation.status) == (True, accepted.operation.id, "CANCELLED")


@pytest.mark.parametrize("key", ["", "x" * 256, "a\x00b"])
async def test_a_key_that_can_not_be_kept_is_refused(world: World, key: str):
    instance_id = await exited(world)

    with pytest.raises(Invalid) as refused:
        await ask(world, OperationKind.START, instance_id, key=key)

    assert refused.value.code == "INVALID_IDEMPOTENCY_KEY"
