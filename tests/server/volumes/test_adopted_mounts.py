"""Volumes of machines that were created outside: in use, shown, and free again, as those of other instances."""

from typing import Any
from uuid import UUID

import pytest

from server.enums import InstanceStatus, Role
from tests.server.volumes.test_volumes import available, codes, create, new_account, read, reconcile, send
from tests.support.api import Api
from tests.support.machines import make_running
from tests.support.waiting import until

__all__ = ["new_account"]

INSTANCE = "instance { id version volumes { volumeId mountPath } } errors { code }"


@pytest.fixture
async def admin(api: Api) -> str:
    return (await api.world.new_token("default", Role.ADMIN))[0]


async def machine_with(api: Api, novita_id: str) -> str:
    """A machine that was created in the console with this volume and a disk of its own."""
    (machine,) = await make_running(api.world, 1)
    mounts = [("local", 60, "", "/workspace"), ("network", 100, novita_id, "/data")]
    api.world.simulator.world.instance(machine).volumes = mounts
    return machine


async def adopt(api: Api, admin: str, machine: str) -> dict[str, Any]:
    payload = await send(api, "adoptInstance", token=admin, selected=INSTANCE, novitaId=machine)
    assert payload["errors"] == []
    return payload["instance"]


async def versions(api: Api, id: str) -> tuple[int, int]:
    """Version and number of events."""
    instance_id = UUID(id.removeprefix("inst_"))
    return (await api.world.instance(instance_id))["version"], len(await api.world.event_types(instance_id))


async def test_an_adopted_machine_holds_its_volume_until_it_is_deleted(api: Api, admin: str):
    volume = await available(api)
    machine = await machine_with(api, volume["novitaId"])

    instance = await adopt(api, admin, machine)

    assert instance["volumes"] == [{"volumeId": volume["id"], "mountPath": "/data"}]
    assert [each["name"] for each in (await read(api, volume["id"]))["attachedTo"]] == ["by-hand-0"]
    assert await codes(api, "deleteVolume", id=volume["id"]) == [("VOLUME_IN_USE", "input.id")]
    mounts = [{"id": volume["id"], "mountPath": "/data"}]
    assert [error["code"] for error in (await api.create(volumes=mounts))["errors"]] == ["VOLUME_IN_USE"]

    await api.world.work_until_status(UUID(instance["id"].removeprefix("inst_")), InstanceStatus.READY)
    await api.delete(instance["id"])
    await api.world.work_until_status(UUID(instance["id"].removeprefix("inst_")), InstanceStatus.DELETED)
    assert (await read(api, volume["id"]))["attachedTo"] == []
    assert (await api.create(volumes=mounts))["errors"] == []


@pytest.mark.parametrize("by", ["reconcile", "syncFleet"])
async def test_a_volume_that_is_adopted_later_is_found_once(api: Api, admin: str, by: str):
    storage = await api.world.novita.create_network_storage(cluster_id="as-sgp-2", name="by-hand", size_gb=100)
    instance = await adopt(api, admin, await machine_with(api, storage))
    assert instance["volumes"] == []
    volume = (await send(api, "adoptVolume", token=admin, novitaId=storage))["volume"]
    version, events = await versions(api, instance["id"])

    async def is_found() -> bool:
        await reconcile(api)
        return bool((await read(api, volume["id"]))["attachedTo"])

    if by == "reconcile":
        await until(is_found)  # a row that a job beside it holds is left for the next one
        await reconcile(api)
    else:
        for _ in range(2):
            synced = await send(api, "syncFleet", selected="errors { code }")
            assert synced["errors"] == []

    assert [each["name"] for each in (await read(api, volume["id"]))["attachedTo"]] == ["by-hand-0"]
    document = "query ($id: ID!) { instance(id: $id) { volumes { volumeId mountPath } } }"
    shown = (await api.ask(document, id=instance["id"])).data["instance"]
    assert shown == {"volumes": [{"volumeId": volume["id"], "mountPath": "/data"}]}
    if by == "syncFleet":  # reconcile runs beside the jobs that follow the machine
        assert await versions(api, instance["id"]) == (version + 1, events + 1)


async def test_another_projects_volume_stays_unknown(api: Api, admin: str):
    stranger, _ = await api.world.new_token("strangers")
    theirs = (await create(api, token=stranger))["volume"]
    await api.world.execute("UPDATE volume SET novita_id = 'of-others', status = 'AVAILABLE', asked_at = NULL")

    instance = await adopt(api, admin, await machine_with(api, "of-others"))

    assert instance["volumes"] == []
    assert (await read(api, theirs["id"], token=stranger))["attachedTo"] == []
    assert await api.world.value("SELECT count(*) FROM volume_attachment") == 0
