"""Workers that die at every place of a recovery: after each commit, and before and after each call of the provider.

However it comes back, the instance has one machine in the end, and the provider has no other.
"""

from typing import Any
from uuid import UUID

import pytest

from server.enums import StartStep
from server.instances.recovery.spec import Recovery
from server.simulator import lifecycle
from tests.server.market.conftest import market
from tests.server.market.polls import NAME, REGION, Market
from tests.server.market.waiters import stock
from tests.server.recovery.test_machines import machines_of
from tests.server.recovery.test_recovery import RECOVERIES, S, ready, reclaim, see
from tests.server.recovery.test_replacement import BEFORE, OPEN_ENTRIES, notify
from tests.server.recovery.test_replacement import ready as ready_to_replace
from tests.server.recovery.test_steps import cluster_of, gone, start, stopped
from tests.server.recovery.test_storm import serving_at_every_event
from tests.server.recovery.test_volumes import DATA, FIELDS, request
from tests.server.volumes.test_attach import mounted, row_id
from tests.server.volumes.test_volumes import available, new_account, read
from tests.support.accounting import machines_unaccounted
from tests.support.api import Api
from tests.support.deaths import Deaths
from tests.support.lifecycle import hasten
from tests.support.world import World

__all__ = ["market", "new_account"]

RELOCATE = Recovery(allow_data_loss=True, steps=(StartStep.RELOCATE,))
ALL = Recovery(allow_data_loss=True)


async def back(deaths: Deaths, instance_id: UUID) -> str:
    """Until it is READY with one machine; its id."""
    world = deaths.world

    async def is_back() -> bool:
        await world.execute("UPDATE machine SET removing_from = now() WHERE removing_from > now()")
        left = await world.value("SELECT count(*) FROM operation WHERE status IN ('QUEUED', 'RUNNING')")
        left += await world.value("SELECT count(*) FROM machine WHERE removing_from IS NOT NULL AND ended_at IS NULL")
        return left == 0 and (await world.instance(instance_id))["status"] == S.READY

    await deaths.work_until(is_back)
    hasten(world)
    machine = (await world.instance(instance_id))["novita_id"]
    assert [each.id for each in world.machines()] == [machine]
    assert await machines_unaccounted(world) == []
    assert await serving_at_every_event(world) == []
    assert [each["machine"] for each in await world.rows(OPEN_ENTRIES)] == [machine]
    assert "instance.orphan_found" not in await world.event_types(instance_id)
    return machine


async def count(world: World, instance_id: UUID, type: str) -> int:
    return (await world.event_types(instance_id)).count(type)


@pytest.mark.parametrize("is_started", [True, False])
async def test_recovery_on_its_own_machine(world: World, is_started: bool):
    """Started again, or migrated if the provider does not start it."""
    instance_id, machine = await ready(world)
    simulated = world.simulator.world
    simulated.set_dialect(simulated.dialect.changed({"starts_reclaimed": is_started}))
    reclaim(world, machine)
    await see(world)
    deaths = Deaths(world)

    async def has_begun() -> bool:
        return bool(await world.value(RECOVERIES))

    await deaths.work_until(has_begun)
    assert await back(deaths, instance_id) == machine

    assert (await world.value(RECOVERIES), world.made()) == (1, 1)
    assert await count(world, instance_id, "recovery.began") == 1
    assert len(deaths.places) >= 8


async def test_recovery_of_a_lost_machine(world: World):
    instance_id, old = await ready(world)
    await gone(world, instance_id, old)
    deaths = Deaths(world)

    async def has_begun() -> bool:
        return bool(await world.value(RECOVERIES))

    await deaths.work_until(has_begun)
    new = await back(deaths, instance_id)

    assert (await world.value(RECOVERIES), world.made()) == (1, 2)
    assert await machines_of(world, instance_id) == [
        (1, old, True, False, "GONE_AT_PROVIDER"),
        (2, new, True, False, None),
    ]
    assert await count(world, instance_id, "instance.relocated") == 1


async def test_start_by_all_steps(world: World):
    instance_id, old = await stopped(world)
    world.stock(cluster_of(world, old), 0)
    await start(world, instance_id)
    deaths = Deaths(world)

    new = await back(deaths, instance_id)

    assert (new != old, world.made()) == (True, 2)
    assert await count(world, instance_id, "recovery.step") == 3
    assert await count(world, instance_id, "instance.relocated") == 1
    assert len(deaths.places) >= 12


async def test_recovery_that_waits_for_capacity(market: Market):
    world = market.world
    await market.poll()
    order: dict[str, Any] = {"product_name": NAME, "regions": (REGION,)}
    instance_id, old = await ready(world, RELOCATE, **order)
    reclaim(world, old)
    await stock(market, 0)
    await world.configure()  # without a catalogue that is older than the stock
    await see(world)
    deaths = Deaths(world)

    async def is_waiting() -> bool:
        return (await world.instance(instance_id))["status_reason"] == "WAITING_FOR_CAPACITY"

    await deaths.work_until(is_waiting)
    assert (await world.value(RECOVERIES), world.made()) == (1, 1)
    await stock(market, 1)
    new = await back(deaths, instance_id)

    assert (new != old, world.made(), await world.value(RECOVERIES)) == (True, 2, 1)
    assert await count(world, instance_id, "wait.began") == 1
    assert await count(world, instance_id, "instance.relocated") == 1
    assert await world.value("SELECT count(*) FROM capacity_wait") == 0


async def test_relocation_with_a_volume_keeps_its_data(api: Api):
    world, region = api.world, "US-CA-06"
    world.simulator.world.instances.clear()  # the API's tests of a process share the simulator
    made = world.made()
    volume = await available(api, region=region)
    recovery = {"allowDataLoss": True, "steps": ["RELOCATE"]}
    accepted = await mounted(api, volume, recovery=recovery, **FIELDS)
    instance_id = row_id(accepted["instance"])
    await world.work_until_status(instance_id, S.READY)
    old = (await world.instance(instance_id))["novita_id"]
    assert await request(api, instance_id, "PUT", data=DATA) == (201, b"")
    lifecycle.reclaim(world.simulator.world, world.simulator.world.instances[old], notice=0)
    hasten(world)
    await see(world)
    deaths = Deaths(world)

    async def has_begun() -> bool:
        return bool(await world.value(RECOVERIES))

    await deaths.work_until(has_begun)
    new = await back(deaths, instance_id)

    assert (new != old, await world.value(RECOVERIES), world.made() - made) == (True, 1, 2)
    assert await request(api, instance_id, "GET") == (200, DATA)
    assert world.simulator.world.instances[new].volumes == [("network", 100, volume["novitaId"], "/data0")]
    assert (await read(api, volume["id"]))["attachedTo"] == [{"name": "web"}]


async def test_replacement_before_a_reclaim(world: World):
    instance_id, old = await ready_to_replace(world, BEFORE)
    await notify(world, old)
    deaths = Deaths(world)

    async def is_replaced() -> bool:
        assert len(world.machines()) <= 2  # by the provider's own count
        return (await world.instance(instance_id))["novita_id"] != old

    await deaths.work_until(is_replaced)
    new = await back(deaths, instance_id)

    assert (new != old, world.made(), await world.value(RECOVERIES)) == (True, 2, 1)
    assert await count(world, instance_id, "instance.relocated") == 1
    assert len(deaths.places) >= 8
