"""Instances with network volumes: in their region, each volume in one instance, free again after a delete."""

import asyncio
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from server.enums import InstanceStatus
from server.simulator.faults import Fault, FaultKind
from server.volumes.attach import can_share
from tests.server.volumes.test_volumes import available, codes, create, has_status, new_account, read, send
from tests.support.api import Api
from tests.support.waiting import until

__all__ = ["new_account"]

S = InstanceStatus


async def mounted(api: Api, *volumes: dict[str, Any], **fields: Any) -> dict[str, Any]:
    mounts = [{"id": each["id"], "mountPath": f"/data{number}"} for number, each in enumerate(volumes)]
    return await api.create(**{"volumes": mounts, **fields})


async def refused(api: Api, *volumes: dict[str, Any], **fields: Any) -> list[tuple[str, str]]:
    payload = await mounted(api, *volumes, **fields)
    assert payload["instance"] is None
    return [(error["code"], ".".join(error["path"])) for error in payload["errors"]]


def row_id(instance: dict[str, Any]) -> UUID:
    return UUID(instance["id"].removeprefix("inst_"))


async def test_the_machine_mounts_it_in_its_region_until_it_is_deleted(api: Api):
    volume = await available(api, region="US-CA-06")
    accepted = await mounted(api, volume)
    assert accepted["errors"] == []
    instance_id = row_id(accepted["instance"])
    await api.world.work_until_status(instance_id, S.STARTING)

    # By its id: the simulator also has machines of other tests.
    machine = api.world.simulator.world.instance((await api.world.instance(instance_id))["novita_id"])
    assert machine.cluster_id == "us-ca-6"
    assert machine.volumes == [("network", 100, volume["novitaId"], "/data0")]
    document = "query ($id: ID!) { instance(id: $id) { regions volumes { volumeId mountPath } } }"
    shown = (await api.ask(document, id=accepted["instance"]["id"])).data["instance"]
    assert shown == {
        "regions": ["US-CA-06"],
        "volumes": [{"volumeId": volume["id"], "mountPath": "/data0"}],
    }
    assert (await read(api, volume["id"]))["attachedTo"] == [{"name": "web"}]
    assert await codes(api, "deleteVolume", id=volume["id"]) == [("VOLUME_IN_USE", "input.id")]
    assert await refused(api, volume, name="second") == [("VOLUME_IN_USE", "input.volumes.0.id")]

    await api.delete(accepted["instance"]["id"])
    await api.world.work_until_status(instance_id, S.DELETED)

    assert (await read(api, volume["id"]))["attachedTo"] == []
    assert (await mounted(api, volume, name="second"))["errors"] == []


@pytest.mark.parametrize("provider_keeps_them", [True, False])
async def test_an_upgrade_keeps_the_volumes_and_the_machines_own_disk(api: Api, provider_keeps_them: bool):
    volume = await available(api)
    accepted = await mounted(api, volume)
    instance_id = row_id(accepted["instance"])
    await api.world.work_until_status(instance_id, S.READY)
    simulated = api.world.simulator.world
    machine = simulated.instance((await api.world.instance(instance_id))["novita_id"])
    machine.volumes = [("local", 60, "", "/workspace"), *machine.volumes]
    before = list(machine.volumes)
    simulated.set_dialect(simulated.dialect.changed({"upgrade_keeps_storages": provider_keeps_them}))
    try:
        upgrade = await send(
            api,
            "upgradeInstance",
            selected="operation { id } errors { code }",
            id=accepted["instance"]["id"],
            image="nginx:1.28",
        )
        assert upgrade["errors"] == []
        await api.world.work_until_over(UUID(upgrade["operation"]["id"].removeprefix("op_")))
    finally:
        simulated.set_dialect(api.world.simulator.options.dialect)
    assert (machine.image_url, sorted(machine.volumes)) == ("nginx:1.28", sorted(before))
    assert (await read(api, volume["id"]))["attachedTo"] == [{"name": "web"}]


async def test_every_refusal_names_the_volume(api: Api):
    stranger, _ = await api.world.new_token("strangers")
    here, there = await available(api), await available(api, name="there", region="US-CA-06")
    creating = (await create(api, name="creating"))["volume"]
    foreign = (await create(api, token=stranger, name="foreign"))["volume"]
    nothing = {"id": "vol_" + "0" * 32}

    assert await refused(api, nothing) == [("VOLUME_NOT_FOUND", "input.volumes.0.id")]
    assert await refused(api, foreign) == [("VOLUME_NOT_FOUND", "input.volumes.0.id")]
    assert await refused(api, {"id": "inst_x"}) == [("VOLUME_NOT_FOUND", "input.volumes.0.id")]
    assert await refused(api, here, creating) == [("VOLUME_NOT_AVAILABLE", "input.volumes.1.id")]
    assert await refused(api, here, there) == [("VOLUME_REGION_MISMATCH", "input.volumes")]
    assert await refused(api, here, regions=["US-CA-06"]) == [("VOLUME_REGION_MISMATCH", "input.volumes")]
    assert (await mounted(api, here, regions=["US-CA-06", "AS-SGP-02"]))["errors"] == []


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["data"], [("INVALID_VOLUME", "0.mountPath")]),
        (["/"], [("INVALID_VOLUME", "0.mountPath")]),
        (["/a/../b"], [("INVALID_VOLUME", "0.mountPath")]),
        (["/" + "a" * 255], [("INVALID_VOLUME", "0.mountPath")]),
        (["//a"], [("INVALID_VOLUME", "0.mountPath")]),
        (["/a/b", "/a//b"], [("INVALID_VOLUME", "1.mountPath")]),
        (["/a", "/a/"], [("INVALID_VOLUME", "1.mountPath")]),
        (["/a/b", "/a"], [("INVALID_VOLUME", "1.mountPath")]),
    ],
)
async def test_a_mount_path_is_absolute_and_alone(api: Api, paths: list[str], expected: list[tuple[str, str]]):
    mounts = [{"id": "vol_" + str(number) * 32, "mountPath": path} for number, path in enumerate(paths)]
    payload = await api.create(volumes=mounts)
    found = [(error["code"], ".".join(error["path"][2:])) for error in payload["errors"]]
    assert found == expected


async def test_a_volume_is_given_once_and_there_are_at_most_thirty(api: Api):
    twice = [{"id": "vol_" + "1" * 32, "mountPath": path} for path in ("/a", "/b")]
    assert [error["path"][2:] for error in (await api.create(volumes=twice))["errors"]] == [["1", "id"]]
    many = [{"id": f"vol_{number:032x}", "mountPath": f"/v{number}"} for number in range(1, 32)]
    assert [error["path"] for error in (await api.create(volumes=many))["errors"]] == [["input", "volumes"]]


async def test_of_ten_creates_at_once_one_gets_the_volume(api: Api):
    volume = await available(api)
    assert can_share("AS-SGP-02") is False
    payloads = await asyncio.gather(*(mounted(api, volume, name=f"n{number}") for number in range(10)))
    assert [bool(payload["instance"]) for payload in payloads].count(True) == 1
    assert {error["code"] for payload in payloads for error in payload["errors"]} == {"VOLUME_IN_USE"}
    assert await api.world.value("SELECT count(*) FROM instance") == 1
    assert await api.world.value("SELECT count(*) FROM volume_attachment") == 1


@pytest.mark.parametrize("key", [None, "k"])
async def test_a_volume_whose_delete_is_accepted_meanwhile_is_not_mounted(api: Api, key: str | None):
    """The create has looked before, and writes while the transaction of the delete is open."""
    volume = await available(api)
    async with api.world.database.write() as session:
        await session.execute(text("SELECT FROM volume FOR UPDATE"))
        creating = asyncio.create_task(refused(api, volume, **({} if key is None else {"idempotencyKey": key})))
        await until(
            lambda: api.world.value(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
        )
        await session.execute(text("UPDATE volume SET status = 'DELETING'"))
    assert await creating == [("VOLUME_NOT_AVAILABLE", "input.volumes")]
    assert await api.world.value("SELECT count(*) FROM instance") == 0
    assert await api.world.value("SELECT count(*) FROM volume_attachment") == 0
    assert (await api.create(**({} if key is None else {"idempotencyKey": key})))["errors"] == []


async def test_the_same_key_replays_although_the_volume_is_taken(api: Api):
    volume = await available(api)
    first = await mounted(api, volume, idempotencyKey="k")
    again = await mounted(api, volume, idempotencyKey="k")
    assert (again["replayed"], again["instance"]["id"]) == (True, first["instance"]["id"])
    assert [error["code"] for error in (await api.create(name="web", idempotencyKey="k"))["errors"]] == [
        "IDEMPOTENCY_KEY_REUSED"
    ]


async def test_a_process_of_the_release_before_leaves_no_volume_taken(api: Api):
    """It deletes instances without knowing of volumes."""
    volume = await available(api)
    first = await mounted(api, volume)
    await api.world.execute("UPDATE instance SET status = 'DELETED', deleted_at = now()")
    assert (await read(api, volume["id"]))["attachedTo"] == []
    assert (await mounted(api, volume, name="second"))["errors"] == []
    assert first["instance"] is not None


async def test_a_quote_checks_volumes_as_a_create_does(api: Api):
    volume = await available(api, region="US-CA-06")
    document = """query ($input: QuoteInput!) { quote(input: $input) { best { region } errors { code path } } }"""
    given: dict[str, Any] = {"productName": "RTX 4090 24GB", "volumes": [{"id": volume["id"], "mountPath": "/data"}]}

    quote = (await api.ask(document, input=given)).data["quote"]
    wrong = (await api.ask(document, input={**given, "region": "AS-IN-01", "regions": ["AS-IN-01"]})).data["quote"]

    assert quote == {"best": {"region": "US-CA-06"}, "errors": []}
    assert wrong["errors"] == [{"code": "VOLUME_REGION_MISMATCH", "path": ["input", "volumes"]}]


async def test_validate_only_takes_no_volume(api: Api):
    volume = await available(api)
    assert (await mounted(api, volume, validateOnly=True))["errors"] == []
    assert await api.world.value("SELECT count(*) FROM volume_attachment") == 0
    assert (await mounted(api, volume))["errors"] == []
    assert await refused(api, volume, name="second", validateOnly=True) == [("VOLUME_IN_USE", "input.volumes.0.id")]


async def test_a_network_and_a_volume_must_be_in_one_region(api: Api):
    volume = await available(api)
    world = api.world.simulator.world
    await api.world.novita.create_network(cluster_id="us-ca-6", name="lan-far-away")
    network_id = next(key for key, record in world.table("network").items() if record["name"] == "lan-far-away")
    assert await refused(api, volume, networkId=network_id) == [("VOLUME_REGION_MISMATCH", "input.volumes")]
    world.drop("network", network_id)


async def test_a_volume_that_vanishes_before_the_create_fails_it_with_the_reason(api: Api):
    volume = await available(api)
    before = api.world.machines()  # of tests before this one
    accepted = await mounted(api, volume)
    api.world.simulator.world.table("storage").clear()
    await api.world.work_until_status(row_id(accepted["instance"]), S.FAILED)
    row = await api.world.instance(row_id(accepted["instance"]))
    assert row["failure_code"] == "VOLUME_NOT_AVAILABLE"
    assert {each.id for each in api.world.machines()} <= {each.id for each in before}


async def test_a_delete_waits_for_a_machine_that_still_has_it(api: Api):
    """The instance is DELETED here before the provider has let go of the volume."""
    volume = await available(api)
    api.world.faults(
        Fault(
            FaultKind.ERROR,
            routes=("POST /networkstorage/delete",),
            status=400,
            reason="NETWORK_STORAGE_IN_USE",
            message="in use",
            times=2,
        )
    )
    await send(api, "deleteVolume", id=volume["id"])
    await api.world.work_until(lambda: has_status(api, volume["id"], None))
    assert api.world.simulator.world.table("storage") == {}
