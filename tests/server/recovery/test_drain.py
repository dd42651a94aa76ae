"""The machine that was replaced stays for the drain, but no longer than its instance needs it."""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from server.enums import OperationKind, StartStep
from server.instances.commands.lifecycle import Target, accept
from tests.server.recovery.test_machines import machines_of
from tests.server.recovery.test_replacement import BEFORE, OPEN_ENTRIES, S, notify, ready, removed, replaced
from tests.server.recovery.test_steps import gone
from tests.support.accounting import machines_unaccounted
from tests.support.lifecycle import hasten
from tests.support.world import World

LONG_DRAIN = replace(BEFORE, drain=timedelta(hours=1), steps=(StartStep.RELOCATE,))


async def draining(world: World) -> tuple[UUID, str, str]:
    """An instance whose old machine drains for an hour, the old machine and the new one."""
    instance_id, old = await ready(world, LONG_DRAIN)
    await notify(world, old)
    new = await replaced(world, instance_id, old)
    for _ in range(3):
        await world.hurry()
        await world.work_once()
    assert {each.id for each in world.machines()} == {old, new}
    return instance_id, old, new


@pytest.mark.parametrize("kind", [OperationKind.STOP, OperationKind.DELETE])
async def test_drain_ends_with_a_stop_or_a_delete(world: World, kind: OperationKind):
    instance_id, _, new = await draining(world)

    if kind is OperationKind.STOP:
        await accept(world.database, kind, Target(instance_id), by=world.caller)
    else:
        await world.delete(instance_id)
    await world.work_until_status(instance_id, S.EXITED if kind is OperationKind.STOP else S.DELETED)
    await removed(world, instance_id)

    hasten(world)
    assert [each.id for each in world.machines()] == ([new] if kind is OperationKind.STOP else [])
    assert await world.rows(OPEN_ENTRIES) == []
    assert await machines_unaccounted(world) == []


async def test_drain_does_not_keep_a_recovery_waiting(world: World):
    """The machine that took over is lost: another one may be made only when the old one is gone."""
    instance_id, old, new = await draining(world)
    await gone(world, instance_id, new)

    async def is_back() -> bool:
        assert len(world.machines()) <= 2
        row = await world.instance(instance_id)
        return (row["status"], row["novita_id"] in (old, new)) == (S.READY, False)

    await world.work_until(is_back)

    hasten(world)
    serving = (await world.instance(instance_id))["novita_id"]
    assert [each.id for each in world.machines()] == [serving]
    ended = [each[4] for each in await machines_of(world, instance_id)]
    assert ended == ["REPLACED", "GONE_AT_PROVIDER", None]


async def test_drain_does_not_last_until_a_clock_that_was_set_back_is_there_again(world: World):
    instance_id, _, new = await draining(world)
    await world.execute("UPDATE machine SET removing_from = removing_from + interval '1 day'")

    await removed(world, instance_id)

    hasten(world)
    assert [each.id for each in world.machines()] == [new]
