"""A machine that ended by itself and runs again is not charged for the time between, whenever that is noticed."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from server.enums import InstanceStatus, OperationKind
from server.instances.provider.reconcile import reconcile
from server.novita.client import NovitaClient
from server.simulator import lifecycle
from server.simulator.models import Instance as Machine
from server.spend.sums import sum_entries
from tests.server.spend.test_ledger import change
from tests.support.aging import age_all
from tests.support.lifecycle import ask, hasten, machine
from tests.support.world import World

S = InstanceStatus
WHILE = timedelta(minutes=5)


def exit_by_itself(world: World, shown: Machine) -> None:
    lifecycle.exit_by_itself(world.simulator.world, shown, code=0)


async def wait(world: World) -> None:
    """So much time passes here and at the provider, and nothing is looked at."""
    await age_all(world, WHILE)
    for each in world.machines():
        each.last_started_at -= WHILE.total_seconds()
        each.last_stopped_at -= WHILE.total_seconds() if each.last_stopped_at else 0
        each.billed = [(begin - 300, end - 300 if end else end, price) for begin, end, price in each.billed]


async def ledger(world: World) -> list[tuple[datetime, datetime | None]]:
    """The times that are paid for: entries without a time between them are one."""
    runs: list[tuple[datetime, datetime | None]] = []
    for row in await world.rows("SELECT * FROM cost_entry WHERE ended_at IS DISTINCT FROM began_at ORDER BY began_at"):
        if runs and runs[-1][1] == row["began_at"]:
            runs[-1] = (runs[-1][0], row["ended_at"])
        else:
            runs.append((row["began_at"], row["ended_at"]))
    return runs


async def is_as_charged(world: World) -> None:
    """Within a second each, because the provider names whole seconds."""
    found, charged = await ledger(world), machine(world).billed
    assert len(found) == len(charged)
    for (began, ended), (begin, end, _) in zip(found, charged, strict=True):
        assert abs(began.timestamp() - begin) <= 1.1
        assert (ended is None) == (end == 0)
        assert ended is None or abs(ended.timestamp() - end) <= 1.1


async def ran(world: World) -> UUID:
    one = (await world.create()).instance.id
    await world.work_until_status(one, S.READY)
    await wait(world)
    return one


@pytest.mark.parametrize("kind", [OperationKind.RESTART, OperationKind.MIGRATE])
async def test_machine_that_ended_by_itself_twice_and_was_restarted_before_a_look(world: World, kind: OperationKind):
    one = await ran(world)
    for _ in range(2):
        exit_by_itself(world, machine(world))
        await wait(world)
        await world.work_until_over((await ask(world, kind, one)).operation.id)
        assert (await world.instance(one))["status"] == "READY"
        await wait(world)

    await is_as_charged(world)
    assert len(machine(world).billed) == 3


async def test_machine_that_ended_by_itself_again_before_its_restart_was_looked_at(world: World):
    one = await ran(world)
    exit_by_itself(world, machine(world))
    await wait(world)

    class EndsAgain(NovitaClient):
        async def start_instance(self, *args: Any, **options: Any) -> None:
            await super().start_instance(*args, **options)
            hasten(world)
            exit_by_itself(world, machine(world))

    world.novita.__class__ = EndsAgain
    restart = await world.work_until_over((await ask(world, OperationKind.RESTART, one)).operation.id)

    assert (restart["status"], len(machine(world).billed)) == ("FAILED", 2)
    found = [each for each in await ledger(world) if each[1] is None or (each[1] - each[0]) > timedelta(seconds=1)]
    assert [each[1] for each in found] == [datetime.fromtimestamp(int(machine(world).billed[0][1]), UTC)]


async def test_machine_that_ends_between_the_look_and_the_call_of_a_restart(world: World):
    one = await ran(world)

    class EndsFirst(NovitaClient):
        async def restart_instance(self, *args: Any, **options: Any) -> None:
            exit_by_itself(world, machine(world))
            await wait(world)
            await super().restart_instance(*args, **options)

    world.novita.__class__ = EndsFirst
    restart = await world.work_until_over((await ask(world, OperationKind.RESTART, one)).operation.id)

    assert restart["status"] == "FAILED"
    await is_as_charged(world)


@pytest.mark.parametrize("is_cut", ["before", "between", "after", "summed", None])
async def test_end_and_start_elsewhere_between_two_looks(world: World, is_cut: str | None):
    """Also if the entry was cut meanwhile by another label."""
    one = await ran(world)
    if is_cut == "before":
        await change(world, one, labels={"team": "a"})
        await wait(world)
    exit_by_itself(world, machine(world))
    await wait(world)
    if is_cut in ("between", "summed"):
        await change(world, one, labels={"team": "a"})
        if is_cut == "summed":
            await sum_entries(world.database.raw)
        await wait(world)
    lifecycle.start(world.simulator.world, machine(world))
    hasten(world)
    await wait(world)
    if is_cut == "after":
        await change(world, one, labels={"team": "a"})
        await wait(world)
    await reconcile(world.database, world.novita)
    await is_as_charged(world)
    before = await world.value("SELECT count(*) FROM cost_entry")

    await change(world, one, status_reason="ANOTHER")
    await reconcile(world.database, world.novita)

    assert await world.value("SELECT count(*) FROM cost_entry") == before
    await is_as_charged(world)


async def test_restart_without_an_end_is_one_run(world: World):
    one = await ran(world)
    await world.work_until_over((await ask(world, OperationKind.RESTART, one)).operation.id)
    await wait(world)
    await reconcile(world.database, world.novita)

    assert len(machine(world).billed) == 1
    await is_as_charged(world)
