"""A process whose clock is wrong by a day recovers nothing that was not reclaimed or lost, and what was."""

from uuid import UUID

from server.queue.kinds import Reconcile
from server.simulator import lifecycle
from tests.server.jobs.test_wrong_clock import WrongClock, wrong_clock
from tests.server.recovery.test_machines import machines_of
from tests.server.recovery.test_recovery import RECOVERIES, S, ready, reclaim, see
from tests.server.recovery.test_replacement import LONG
from tests.support.lifecycle import hasten
from tests.support.world import World

__all__ = ["wrong_clock"]


async def test_wrong_clock_recovers_nothing(world: World, wrong_clock: WrongClock):
    """Not a machine whose reclaim is announced, nor one that was stopped after the notice."""
    instance_id, machine = await ready(world)
    simulated = world.simulator.world
    lifecycle.reclaim(simulated, simulated.instances[machine], notice=LONG)
    with wrong_clock():
        for is_stopped in (False, True):
            if is_stopped:
                await world.novita.stop_instance(machine)
                hasten(world)
            await see(world)
            for _ in range(3):
                await world.hurry()
                await world.work_once()

    assert (await world.value(RECOVERIES), world.made()) == (0, 1)
    assert (await world.instance(instance_id))["status"] == S.EXITED
    assert await machines_of(world, instance_id) == [(1, machine, True, False, None)]


async def test_wrong_clock_keeps_nothing_from_being_recovered(world: World, wrong_clock: WrongClock):
    instance_id, machine = await ready(world)
    reclaim(world, machine)
    with wrong_clock():
        await world.enqueue(Reconcile())
        await recovered_once(world, instance_id)

    assert (await world.value(RECOVERIES), world.made()) == (1, 1)


async def recovered_once(world: World, instance_id: UUID) -> None:
    async def is_over() -> bool:
        return bool(
            await world.value("SELECT count(*) FROM operation WHERE reason = 'RECOVERY' AND status = 'SUCCEEDED'")
        )

    await world.work_until(is_over)
    assert (await world.instance(instance_id))["status"] == S.READY
