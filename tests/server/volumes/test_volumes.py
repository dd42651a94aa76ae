"""Network volumes: created once, enlarged, deleted for certain, and owned by a project."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from server.enums import Role
from server.queue.kinds import Reconcile
from server.simulator.faults import Fault, FaultKind
from tests.support.api import Api
from tests.support.waiting import until

CREATE = "POST /networkstorage/create"
DELETE = "POST /networkstorage/delete"
LIST = "GET /networkstorages/list"
VOLUME = """id novitaId name region sizeGb status pricePerHour { amountMicros } failure { code message }
            attachedTo { name }"""
FIELDS = f"volume {{ {VOLUME} }} errors {{ code path }}"
WITHOUT_VOLUMES = "OC-AU-01"


async def send(api: Api, mutation: str, *, token: str | None = None, selected: str = FIELDS, **fields: Any) -> Any:
    name = mutation[0].upper() + mutation[1:]
    document = f"mutation ($input: {name}Input!) {{ {mutation}(input: $input) {{ {selected} }} }}"
    return (await api.ask(document, token=token, input=fields)).data[mutation]


async def create(api: Api, **fields: Any) -> Any:
    given = {"name": "data", "region": "AS-SGP-02", "sizeGb": 100, **fields}
    token = given.pop("token", None)
    return await send(api, "createVolume", token=token, selected=FIELDS + " replayed", **given)


async def codes(api: Api, mutation: str, **fields: Any) -> list[tuple[str, str]]:
    payload = await (create(api, **fields) if mutation == "createVolume" else send(api, mutation, **fields))
    assert payload["volume"] is None
    return [(error["code"], ".".join(error["path"])) for error in payload["errors"]]


async def available(api: Api, **fields: Any) -> dict[str, Any]:
    """A volume that the provider has made."""
    id = (await create(api, **fields))["volume"]["id"]
    await api.world.work_until(lambda: has_status(api, id, "AVAILABLE"))
    return await read(api, id)


async def read(api: Api, id: str, *, token: str | None = None) -> Any:
    document = f"query ($id: ID!) {{ node(id: $id) {{ ... on Volume {{ {VOLUME} }} }} }}"
    return (await api.ask(document, token=token, id=id)).data["node"]


async def has_status(api: Api, id: str, status: str | None) -> bool:
    volume = await read(api, id)
    return (None if volume is None else volume["status"]) == status


def storages(api: Api) -> dict[str, Any]:
    """What the provider has, and bills."""
    return api.world.simulator.world.table("storage")


async def events(api: Api) -> list[str]:
    rows = await api.world.rows("SELECT type FROM outbox WHERE type LIKE 'volume.%' ORDER BY seq")
    logged = await api.world.rows("SELECT type FROM event WHERE type LIKE 'volume.%' ORDER BY position")
    return [row["type"] for row in (*logged, *rows)]


async def reconcile(api: Api) -> None:
    await api.world.enqueue(Reconcile())
    await api.world.hurry()
    await api.world.work_once()


@pytest.fixture(autouse=True)
async def new_account(api: Api) -> AsyncIterator[None]:
    """The simulator and the event log serve all tests of the process."""
    api.world.simulator.world.tables.pop("storage", None)
    api.world.simulator.world.calls.clear()
    yield
    await api.world.execute("UPDATE event_log SET restored_at = NULL WHERE restored_at IS NOT NULL")


async def test_it_is_created_listed_enlarged_and_deleted(api: Api):
    first = await create(api, idempotencyKey="k")
    again = await create(api, idempotencyKey="k")
    assert (first["replayed"], again["replayed"], first["errors"]) == (False, True, [])
    assert first["volume"] == again["volume"]
    assert (first["volume"]["status"], first["volume"]["novitaId"]) == ("CREATING", None)
    id = first["volume"]["id"]

    await api.world.work_until(lambda: has_status(api, id, "AVAILABLE"))
    changed = (await send(api, "updateVolume", id=id, name="more data", sizeGb=200))["volume"]

    [(novita_id, storage)] = storages(api).items()
    assert storage["storageName"].startswith("more-data-pl")
    assert storage["storageSize"] == 200
    assert changed == await read(api, id)
    assert changed == {
        "id": id,
        "novitaId": novita_id,
        "name": "more data",
        "region": "AS-SGP-02",
        "sizeGb": 200,
        "status": "AVAILABLE",
        "pricePerHour": {"amountMicros": 14_000},  # 7 of 1/100000 USD per GB and hour
        "failure": None,
        "attachedTo": [],
    }
    shown = (await api.ask("{ volumes { totalCount nodes { id } } }")).data["volumes"]
    assert shown == {"totalCount": 1, "nodes": [{"id": id}]}

    deleting = (await send(api, "deleteVolume", id=id))["volume"]
    assert deleting["status"] == "DELETING"
    assert (await send(api, "deleteVolume", id=id))["volume"]["status"] == "DELETING"
    await api.world.work_until(lambda: has_status(api, id, None))

    assert storages(api) == {}
    assert await codes(api, "deleteVolume", id=id) == [("VOLUME_NOT_FOUND", "input.id")]
    assert await create(api, idempotencyKey="k") == {"volume": None, "errors": [], "replayed": True}
    assert await events(api) == [
        "volume.creating",
        "volume.available",
        "volume.changed",
        "volume.deleting",
        "volume.deleted",
    ]
    assert api.world.calls(CREATE) == 1


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"name": " "}, ("INVALID_VOLUME", "input.name")),
        ({"name": "x" * 256}, ("INVALID_VOLUME", "input.name")),
        ({"sizeGb": 9}, ("INVALID_VOLUME", "input.sizeGb")),
        ({"sizeGb": 10_241}, ("INVALID_VOLUME", "input.sizeGb")),
        ({"region": "XX-01"}, ("INVALID_REGION", "input.region")),
        ({"region": WITHOUT_VOLUMES}, ("VOLUMES_NOT_SUPPORTED", "input.region")),
        ({"idempotencyKey": ""}, ("INVALID_IDEMPOTENCY_KEY", "input.idempotencyKey")),
    ],
)
async def test_a_wrong_create_is_refused_and_writes_nothing(
    api: Api, fields: dict[str, Any], expected: tuple[str, str]
):
    assert await codes(api, "createVolume", **fields) == [expected]
    assert await api.world.value("SELECT count(*) FROM volume") == 0
    assert await api.world.value("SELECT count(*) FROM job WHERE kind = 'CREATE_VOLUME'") == 0


async def test_names_and_keys_are_unique_within_a_project(api: Api):
    stranger, _ = await api.world.new_token("strangers")
    await create(api, idempotencyKey="k")

    assert await codes(api, "createVolume") == [("VOLUME_NAME_TAKEN", "input.name")]
    assert await codes(api, "createVolume", name="other", idempotencyKey="k") == [
        ("IDEMPOTENCY_KEY_REUSED", "input.idempotencyKey")
    ]
    assert (await create(api, token=stranger, idempotencyKey="k"))["errors"] == []
    other = await available(api, name="other")
    assert await codes(api, "updateVolume", id=other["id"], name="data") == [("VOLUME_NAME_TAKEN", "input.name")]


async def test_twenty_requests_with_one_key_create_one(api: Api):
    answers = await asyncio.gather(*(create(api, idempotencyKey="k") for _ in range(20)))
    assert len({answer["volume"]["id"] for answer in answers}) == 1
    assert [answer["replayed"] for answer in answers].count(False) == 1
    assert await api.world.value("SELECT count(*) FROM volume") == 1


async def test_a_volume_never_shrinks(api: Api):
    volume = await available(api)
    for fields, at in (({"sizeGb": 50}, "sizeGb"), ({"sizeGb": 20_000}, "sizeGb"), ({"name": ""}, "name")):
        assert await codes(api, "updateVolume", id=volume["id"], **fields) == [("INVALID_VOLUME", f"input.{at}")]
    assert await codes(api, "updateVolume", id=volume["id"]) == [("INVALID_VOLUME", "input")]
    assert storages(api)[volume["novitaId"]]["storageSize"] == 100


async def test_an_update_whose_response_was_lost_is_sent_again(api: Api):
    volume = await available(api)
    api.world.faults(Fault(FaultKind.LOST_ANSWER, routes=("POST /networkstorage/update",), times=1))
    assert (await send(api, "updateVolume", id=volume["id"], sizeGb=300))["volume"]["sizeGb"] == 300
    assert storages(api)[volume["novitaId"]]["storageSize"] == 300


async def test_reconcile_sees_a_size_that_was_changed_without_an_answer(api: Api):
    volume = await available(api)
    storages(api)[volume["novitaId"]]["storageSize"] = 300

    await reconcile(api)

    assert (await read(api, volume["id"]))["sizeGb"] == 300
    assert (await events(api))[-1] == "volume.changed"


async def test_a_change_needs_an_available_volume(api: Api):
    id = (await create(api))["volume"]["id"]
    assert await codes(api, "updateVolume", id=id, sizeGb=200) == [("VOLUME_NOT_AVAILABLE", "input.id")]


@pytest.mark.parametrize("kind", [FaultKind.LOST_ANSWER, FaultKind.CUT_CONNECTION, FaultKind.CUT_JSON])
async def test_after_a_lost_response_the_volume_is_found_and_not_made_again(api: Api, kind: FaultKind):
    api.world.faults(Fault(kind, routes=(CREATE,)))

    volume = await available(api)

    assert set(storages(api)) == {volume["novitaId"]}
    assert api.world.calls(CREATE) == 1


async def test_a_create_that_never_arrived_is_sent_again_once_it_can_take_no_effect(api: Api):
    api.world.faults(Fault(FaultKind.DROP, routes=(CREATE,), times=1))
    id = (await create(api))["volume"]["id"]
    for _ in range(5):
        await api.world.hurry()
        await api.world.work_once()
    assert (api.world.calls(CREATE), storages(api)) == (1, {})
    assert await has_status(api, id, "CREATING")

    await api.world.execute("UPDATE volume SET asked_at = asked_at - interval '1 day'")
    await api.world.work_until(lambda: has_status(api, id, "AVAILABLE"))

    assert (api.world.calls(CREATE), len(storages(api))) == (2, 1)


async def test_a_volume_that_appears_late_in_the_list_is_not_made_twice(api: Api):
    api.world.simulator.world.set_dialect(api.world.simulator.world.dialect.changed({"list_delay": 0.3}))
    api.world.faults(Fault(FaultKind.LOST_ANSWER, routes=(CREATE,), times=1))
    try:
        volume = await available(api)
    finally:
        api.world.simulator.world.set_dialect(api.world.simulator.options.dialect)
    assert set(storages(api)) == {volume["novitaId"]}


@pytest.mark.parametrize("made", [True, False])
async def test_a_delete_of_a_create_without_a_response_leaves_nothing(api: Api, made: bool):
    api.world.faults(Fault(FaultKind.LOST_ANSWER if made else FaultKind.DROP, routes=(CREATE,)))
    id = (await create(api))["volume"]["id"]
    await api.world.work_once()
    assert len(storages(api)) == made

    assert (await send(api, "deleteVolume", id=id))["volume"]["status"] == "DELETING"
    for _ in range(3):
        await api.world.hurry()
        await api.world.work_once()
    if not made:  # a call in flight may still take effect
        assert await has_status(api, id, "DELETING")
        await api.world.execute("UPDATE volume SET asked_at = asked_at - interval '1 day'")
    await api.world.work_until(lambda: has_status(api, id, None))

    assert storages(api) == {}
    assert api.world.calls(CREATE) == 1


async def test_a_delete_never_gives_up(api: Api):
    volume = await available(api)
    api.world.faults(
        Fault(FaultKind.ERROR, routes=(DELETE,), status=400, reason="NETWORK_STORAGE_IN_USE", message="no")
    )
    await send(api, "deleteVolume", id=volume["id"])
    for _ in range(12):
        await api.world.hurry()
        await api.world.work_once()
    waiting = await read(api, volume["id"])
    assert (waiting["status"], waiting["failure"]["code"]) == ("DELETING", "VOLUME_IN_USE")
    assert (await events(api)).count("volume.changed") == 1  # the reason is said once
    api.world.faults(Fault(FaultKind.LOST_ANSWER, routes=(DELETE,), times=1))

    await api.world.work_until(lambda: has_status(api, volume["id"], None))

    assert storages(api) == {}


async def test_the_longer_a_deleted_volume_is_listed_the_less_often_the_provider_is_asked(api: Api):
    volume = await available(api)
    api.world.faults(Fault(FaultKind.GARBAGE, routes=(DELETE,), body="{}"))  # accepted, and nothing happens
    await send(api, "deleteVolume", id=volume["id"])
    await api.world.work_once()
    since = "SELECT delete_accepted_at FROM volume"
    first = await api.world.value(since)
    assert first is not None
    await api.world.execute("UPDATE volume SET updated_at = updated_at - interval '20 seconds'")
    for _ in range(2):
        await api.world.hurry()
        await api.world.work_once()

    assert await api.world.value(since) == first
    pause = await api.world.value("SELECT extract(epoch FROM pause) FROM job WHERE kind = 'DELETE_VOLUME'")
    assert pause > 4


async def test_a_delete_does_not_believe_a_not_found_at_once(api: Api):
    volume = await available(api)
    api.world.faults(
        Fault(FaultKind.ERROR, routes=(DELETE,), status=404, reason="NOT_FOUNT", message="network storage not found"),
        Fault(FaultKind.GARBAGE, routes=(LIST,), body='{"data": [], "total": 0}'),
    )
    await api.world.configure(gone_grace=timedelta(hours=1))
    await send(api, "deleteVolume", id=volume["id"])
    for _ in range(3):
        await api.world.hurry()
        await api.world.work_once()
    assert await has_status(api, volume["id"], "DELETING")

    api.world.faults()
    await api.world.work_until(lambda: has_status(api, volume["id"], None))
    assert storages(api) == {}


async def test_a_delete_that_sees_the_volume_again_waits_for_the_whole_grace_anew(api: Api):
    volume = await available(api)
    await send(api, "deleteVolume", id=volume["id"])
    # Missing an hour ago, as the provider said; now it is listed, and refuses to delete it as if it were not there.
    await api.world.execute("UPDATE volume SET missing_since = now() - interval '1 hour'")
    api.world.faults(
        Fault(FaultKind.ERROR, routes=(DELETE,), status=404, reason="NOT_FOUNT", message="network storage not found")
    )

    await api.world.hurry()
    await api.world.work_once()

    assert await api.world.value("SELECT missing_since FROM volume") is None
    assert await has_status(api, volume["id"], "DELETING")
    assert len(storages(api)) == 1


async def test_a_final_refusal_fails_the_volume_with_its_reason(api: Api):
    api.world.faults(
        Fault(FaultKind.ERROR, routes=(CREATE,), status=400, reason="NETWORK_STORAGE_TOO_LARGE", message="too large")
    )
    id = (await create(api))["volume"]["id"]
    await api.world.work_until(lambda: has_status(api, id, "FAILED"))

    failed = await read(api, id)
    assert failed["failure"] == {"code": "INVALID_VOLUME", "message": "too large (HTTP 400)"}
    await send(api, "deleteVolume", id=id)
    await api.world.work_until(lambda: has_status(api, id, None))
    assert api.world.calls(DELETE) == 0


async def test_what_disappears_at_the_provider_fails_and_returns_with_it(api: Api):
    volume = await available(api)
    record = storages(api).pop(volume["novitaId"])
    await reconcile(api)
    assert await has_status(api, volume["id"], "AVAILABLE")  # one look is not enough
    await api.world.execute("UPDATE volume SET missing_since = missing_since - interval '1 day'")
    await reconcile(api)
    gone = await read(api, volume["id"])
    assert (gone["status"], gone["failure"]["code"]) == ("FAILED", "GONE_AT_PROVIDER")

    storages(api)[volume["novitaId"]] = record
    await reconcile(api)

    assert await has_status(api, volume["id"], "AVAILABLE")
    assert (await events(api))[-2:] == ["volume.failed", "volume.available"]


async def test_when_most_volumes_seem_to_be_gone_the_list_is_not_believed(api: Api):
    volumes = [await available(api, name=f"v{number}") for number in range(4)]
    await api.world.execute("UPDATE volume SET missing_since = now() - interval '1 day'")
    storages(api).clear()
    await reconcile(api)
    assert [await has_status(api, volume["id"], "AVAILABLE") for volume in volumes] == [True] * 4


async def test_a_volume_that_is_listed_while_most_are_not_counts_as_present(api: Api):
    volumes = [await available(api, name=f"data-{number}") for number in range(4)]
    await api.world.execute("UPDATE volume SET missing_since = now() - interval '1 day'")
    for each in volumes[1:]:
        storages(api).pop(each["novitaId"])

    await reconcile(api)

    left = await api.world.rows("SELECT name FROM volume WHERE missing_since IS NULL")
    assert [row["name"] for row in left] == ["data-0"]
    assert [(await read(api, each["id"]))["status"] for each in volumes] == ["AVAILABLE"] * 4


async def test_reconcile_deletes_what_should_be_deleted_and_starts_lost_jobs(api: Api):
    volume = await available(api)
    orphan = dict(storages(api)[volume["novitaId"]])
    await send(api, "deleteVolume", id=volume["id"])
    await api.world.work_until(lambda: has_status(api, volume["id"], None))
    storages(api)[orphan["storageId"]] = orphan
    lost = (await create(api, name="lost"))["volume"]["id"]
    await api.world.execute("DELETE FROM job")
    await api.world.execute("UPDATE volume SET updated_at = updated_at - interval '1 hour'")

    await reconcile(api)

    assert orphan["storageId"] not in storages(api)
    assert "volume.orphan_found" in await events(api)
    await api.world.work_until(lambda: has_status(api, lost, "AVAILABLE"))


async def test_an_administrator_adopts_a_volume_that_no_project_has(api: Api):
    admin, _ = await api.world.new_token("default", Role.ADMIN)
    mine = await available(api)
    made = await api.world.novita.create_network_storage(cluster_id="us-ca-6", name="by-hand", size_gb=50)
    document = "{ unlinkedVolumes { nodes { novitaId name region sizeGb pricePerHour { amountMicros } } } }"
    shown = (await api.ask(document, token=admin)).data["unlinkedVolumes"]["nodes"]
    assert shown == [
        {
            "novitaId": made,
            "name": "by-hand",
            "region": "US-CA-06",
            "sizeGb": 50,
            "pricePerHour": {"amountMicros": 3500},
        }
    ]

    adopted = (await send(api, "adoptVolume", token=admin, novitaId=made))["volume"]

    assert (adopted["novitaId"], adopted["name"], adopted["status"]) == (made, "by-hand", "AVAILABLE")
    for novita_id in (made, mine["novitaId"], "nothing"):
        assert await codes(api, "adoptVolume", token=admin, novitaId=novita_id) == [
            ("VOLUME_NOT_FOUND", "input.novitaId")
        ]
    assert (await api.ask('mutation { adoptVolume(input: {novitaId: "x"}) { errors { code } } }')).error["code"]
    assert (await api.ask(document)).error["code"]
    assert (await send(api, "updateVolume", id=adopted["id"], name="mine", sizeGb=60))["errors"] == []
    assert storages(api)[made]["storageName"] == "mine"


async def test_another_project_neither_sees_nor_changes_it(api: Api):
    stranger, _ = await api.world.new_token("strangers", Role.ADMIN)
    volume = await available(api)

    assert await read(api, volume["id"], token=stranger) is None
    assert (await api.ask("{ volumes { totalCount } }", token=stranger)).data["volumes"]["totalCount"] == 0
    for mutation, fields in (("updateVolume", {"sizeGb": 200}), ("deleteVolume", {})):
        assert await codes(api, mutation, token=stranger, id=volume["id"], **fields) == [
            ("VOLUME_NOT_FOUND", "input.id")
        ]
    assert (await read(api, volume["id"]))["sizeGb"] == 100


async def test_validate_only_checks_and_changes_nothing(api: Api):
    volume = await available(api)
    calls = api.world.calls()
    dry: dict[str, Any] = {"validateOnly": True}
    assert (await create(api, name="new", **dry)) == {"volume": None, "errors": [], "replayed": False}
    assert await codes(api, "createVolume", **dry) == [("VOLUME_NAME_TAKEN", "input.name")]
    assert (await send(api, "updateVolume", id=volume["id"], sizeGb=500, **dry)) == {"volume": None, "errors": []}
    assert (await send(api, "deleteVolume", id=volume["id"], **dry)) == {"volume": None, "errors": []}

    assert (await read(api, volume["id"])) == volume
    assert await api.world.value("SELECT count(*) FROM volume") == 1
    assert api.world.calls() == calls


async def test_a_reader_reads_and_changes_nothing(api: Api):
    reader, _ = await api.world.new_token("default", Role.READER)
    volume = await available(api)
    assert (await read(api, volume["id"], token=reader))["status"] == "AVAILABLE"
    document = "mutation ($id: ID!) { deleteVolume(input: {id: $id}) { errors { code } } }"
    assert (await api.ask(document, token=reader, id=volume["id"])).error["code"] == "FORBIDDEN"


async def test_its_events_name_the_volume(api: Api):
    volume = await available(api)

    async def event() -> Any:
        document = """{ projectEvents(filter: {types: ["volume.available"]}) {
            nodes { type volume { id status } data { key value } } } }"""
        return (await api.ask(document)).data["projectEvents"]["nodes"]

    await until(event)
    [shown] = await event()
    assert shown["volume"] == {"id": volume["id"], "status": "AVAILABLE"}
    assert {each["key"]: each["value"] for each in shown["data"]} == {
        "name": "data",
        "region": "AS-SGP-02",
        "sizeGb": "100",
        "status": "AVAILABLE",
    }


async def test_a_request_that_is_repeated_after_a_restored_backup_finds_its_volume(api: Api):
    before = await available(api, idempotencyKey="k")
    for table in ("volume", "idempotency_key", "job"):
        await api.world.execute(f"DELETE FROM {table}")  # they are newer than the backup
    await api.world.execute("UPDATE event_log SET restored_at = now()")

    again = await available(api, idempotencyKey="k")

    assert again["id"] != before["id"]
    assert set(storages(api)) == {before["novitaId"]} == {again["novitaId"]}
    assert api.world.calls(CREATE) == 1


async def test_a_key_that_is_used_again_long_after_creates_a_volume_of_its_own(api: Api):
    before = await available(api, idempotencyKey="k")
    await api.world.execute("DELETE FROM idempotency_key")  # keys end
    await api.world.execute("UPDATE volume SET name = 'first'")
    await api.world.execute("UPDATE event_log SET restored_at = now()")

    again = await available(api, idempotencyKey="k")

    assert again["novitaId"] != before["novitaId"]
    assert len(storages(api)) == 2
