"""An instance with a volume comes back in the volume's region, with the same data."""

from typing import Any
from uuid import UUID

import aiohttp

from server.enums import InstanceStatus, OperationKind, StartStep
from server.instances.commands.lifecycle import Target, accept
from server.simulator import lifecycle
from tests.server.recovery.test_recovery import see
from tests.server.recovery.test_steps import start
from tests.server.volumes.test_attach import mounted, row_id
from tests.server.volumes.test_volumes import available, new_account, read
from tests.support.api import Api
from tests.support.lifecycle import cancel, hasten

__all__ = ["new_account"]

S = InstanceStatus
DATA = bytes(range(256)) * 16
FIELDS: dict[str, Any] = {"billing": "SPOT", "ports": [{"port": 8080, "type": "http"}]}


async def request(api: Api, instance_id: UUID, method: str, **options: Any) -> tuple[int, bytes]:
    """Of the file on the volume, by the instance's present endpoint."""
    address = await api.world.value("SELECT endpoints -> 0 ->> 'address' FROM instance WHERE id = $1", instance_id)
    async with aiohttp.ClientSession() as client, client.request(method, f"{address}/data0/model", **options) as answer:
        return answer.status, await answer.read()


async def test_data_on_a_volume_is_identical_after_a_relocation(api: Api):
    world, region = api.world, "US-CA-06"
    volume = await available(api, region=region)
    recovery = {"allowDataLoss": True, "steps": ["RELOCATE"], "regions": ["EU-GB-01", region]}
    accepted = await mounted(api, volume, recovery=recovery, **FIELDS)
    assert accepted["errors"] == []
    instance_id = row_id(accepted["instance"])
    await world.work_until_status(instance_id, S.READY)
    old = (await world.instance(instance_id))["novita_id"]
    assert await request(api, instance_id, "PUT", data=DATA) == (201, b"")
    lifecycle.reclaim(world.simulator.world, world.simulator.world.instances[old], notice=0)
    hasten(world)
    await see(world)
    assert (await world.instance(instance_id))["status"] == S.EXITED

    await world.work_until_status(instance_id, S.READY)

    row = await world.instance(instance_id)
    assert (row["novita_id"] != old, row["region"]) == (True, region)
    assert await request(api, instance_id, "GET") == (200, DATA)
    machine = world.simulator.world.instances[row["novita_id"]]
    assert machine.volumes == [("network", 100, volume["novitaId"], "/data0")]
    assert (await read(api, volume["id"]))["attachedTo"] == [{"name": "web"}]
    assert await world.value("SELECT count(*) FROM machine WHERE ended_at IS NULL") == 1


async def test_start_that_is_cancelled_after_it_gave_up_its_machine_can_be_begun_again(api: Api):
    world = api.world
    volume = await available(api, region="US-CA-06")
    instance_id = row_id((await mounted(api, volume, **FIELDS))["instance"])
    await world.work_until_status(instance_id, S.READY)
    assert await request(api, instance_id, "PUT", data=DATA) == (201, b"")
    await accept(world.database, OperationKind.STOP, Target(instance_id), by=world.caller)
    await world.work_until_status(instance_id, S.EXITED)
    old = (await world.instance(instance_id))["novita_id"]
    accepted = await start(world, instance_id, StartStep.RELOCATE)

    async def has_given_it_up() -> bool:
        return (await world.instance(instance_id))["novita_id"] is None

    await world.work_until(has_given_it_up)
    await cancel(world, accepted.operation.id)

    row = await world.instance(instance_id)
    assert (row["status"], row["failure_code"], row["novita_id"]) == (S.FAILED, "GONE_AT_PROVIDER", None)
    await world.work_until_over((await start(world, instance_id, StartStep.RELOCATE)).operation.id)
    assert await request(api, instance_id, "GET") == (200, DATA)
    hasten(world)
    there = {each.id for each in world.machines()}
    assert (old in there, (await world.instance(instance_id))["novita_id"] in there) == (False, True)


async def test_volume_that_one_machine_can_hold_is_not_replaced_before_a_reclaim(api: Api):
    volume = await available(api, region="US-CA-06")
    recovery = {"allowDataLoss": True, "replaceBeforeReclaim": True}
    before = await api.world.counts()

    refused = await mounted(api, volume, recovery=recovery, **FIELDS)

    assert [(each["code"], each["path"]) for each in refused["errors"]] == [
        ("INVALID_RECOVERY", ["input", "recovery", "replaceBeforeReclaim"])
    ]
    assert await api.world.counts() == before
    accepted = await mounted(api, volume, **FIELDS)
    await api.world.work_until_status(row_id(accepted["instance"]), S.READY)
    document = """mutation ($input: UpdateInstanceInput!) {
        updateInstance(input: $input) { errors { code path } } }"""
    wish = {"id": accepted["instance"]["id"], "recovery": {"set": recovery}}
    updated = (await api.ask(document, input=wish)).data["updateInstance"]
    assert [(each["code"], each["path"]) for each in updated["errors"]] == [
        ("INVALID_RECOVERY", ["input", "recovery", "set", "replaceBeforeReclaim"])
    ]
