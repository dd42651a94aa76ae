"""Which instances a mutation is about: by id, by name, or by a filter with the number that the caller expects."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from server.enums import InstanceStatus, Role
from tests.support.api import Api

S = InstanceStatus
ERRORS = "errors { __typename code path ... on CountDiffers { expected actual } }"
# Each verb with a status that allows it, and further fields of its input.
VERBS: dict[str, tuple[InstanceStatus, dict[str, Any]]] = {
    "startInstance": (S.EXITED, {}),
    "stopInstance": (S.READY, {}),
    "restartInstance": (S.READY, {}),
    "migrateInstance": (S.READY, {}),
    "deleteInstance": (S.READY, {}),
    "saveImage": (S.EXITED, {"image": "r.example.test/saved:1"}),
    "upgradeInstance": (S.READY, {"image": "nginx:1.28"}),
    "updateInstance": (S.READY, {"labels": []}),
    "extendLifetime": (S.READY, {"by": 60}),
    "heartbeat": (S.READY, {}),
    "checkHealth": (S.READY, {"wait": 0}),
}
WITH_KEY = sorted(VERBS.keys() - {"extendLifetime", "heartbeat", "checkHealth"})
LIVE = {
    "ports": [{"port": 80, "type": "http"}],
    "endpoints": [{"port": 80, "type": "http", "address": "http://127.0.0.1:9"}],
    "lifetime": {"deadline": "2100-01-01T00:00:00+00:00", "heartbeat": "PT1H"},
}


async def put(api: Api, status: InstanceStatus, name: str, **fields: Any) -> str:
    row = await api.world.put(status, name=name, novita_id=f"m-{name}", **fields)
    return f"inst_{row.id.hex}"


async def run(api: Api, mutation: str, **input: Any) -> dict[str, Any]:
    kind = f"{mutation[0].upper()}{mutation[1:]}Input"
    has_operation = mutation in WITH_KEY
    fields = f"{'replayed operation { id instance { id } }' if has_operation else ''} {ERRORS}"
    document = f"mutation ($input: {kind}!) {{ {mutation}(input: $input) {{ {fields} }} }}"
    return (await api.ask(document, input=input)).data[mutation]


def instance_field(mutation: str) -> str:
    return "instanceId" if mutation == "checkHealth" else "id"


@pytest.mark.parametrize("mutation", sorted(VERBS))
async def test_every_verb_takes_an_id_or_a_name(api: Api, mutation: str):
    status, fields = VERBS[mutation]
    id = await put(api, status, "web", **LIVE)
    ways: list[dict[str, Any]] = [
        {"instance": {"name": "web"}},
        {"instance": {"id": id}},
        {instance_field(mutation): id},
    ]
    if mutation not in ("updateInstance", "checkHealth"):
        ways.append({"name": "web"})
    for way in ways:
        tried = await run(api, mutation, **way, **fields, validateOnly=True)
        assert tried["errors"] == [], way
    for unclear in ({}, {instance_field(mutation): id, "instance": {"name": "web"}}):
        (error,) = (await run(api, mutation, **unclear, **fields))["errors"]
        assert (error["code"], error["path"]) == ("INVALID_TARGET", ["input", instance_field(mutation)])
    for missing in ("nobody", "no\x00body"):
        (error,) = (await run(api, mutation, instance={"name": missing}, **fields))["errors"]
        assert (error["code"], error["path"]) == ("INSTANCE_NOT_FOUND", ["input", "instance", "name"])

    done = await run(api, mutation, instance={"name": "web"}, **fields)

    assert done["errors"] == []
    if mutation in WITH_KEY:
        assert done["operation"]["instance"]["id"] == id


@pytest.mark.parametrize("mutation", WITH_KEY)
async def test_a_name_with_a_key_means_the_same_instance_when_it_is_repeated(api: Api, mutation: str):
    """Also if the name has another instance by then, or none."""
    status, fields = VERBS[mutation]
    id = await put(api, status, "web", **LIVE)
    given = {"instance": {"name": "web"}, **fields, "idempotencyKey": "once"}
    first = await run(api, mutation, **given)
    assert (first["replayed"], first["operation"]["instance"]["id"]) == (False, id)
    await api.world.execute("UPDATE instance SET name = 'other' WHERE id = $1", UUID(id.partition("_")[2]))
    await put(api, status, "web2")

    again = await run(api, mutation, **given)
    other = await run(api, mutation, **(given | {"instance": {"name": "web2"}}))

    assert again == {**first, "replayed": True}
    assert [each["code"] for each in other["errors"]] == ["IDEMPOTENCY_KEY_REUSED"]


async def test_a_name_of_another_project_is_not_found(api: Api):
    await put(api, S.READY, "web")
    stranger, _ = await api.world.new_token("strangers", Role.OPERATOR)
    document = f'mutation {{ deleteInstance(input: {{name: "web"}}) {{ {ERRORS} }} }}'
    (error,) = (await api.ask(document, token=stranger)).data["deleteInstance"]["errors"]
    assert error["code"] == "INSTANCE_NOT_FOUND"
    assert await api.world.value("SELECT count(*) FROM operation") == 0


BULK = f"""mutation ($input: InstancesInput!) {{ %s(input: $input) {{
    results {{ instanceId replayed instance {{ status }} operation {{ id }} {ERRORS} }} {ERRORS} }} }}"""


async def bulk(api: Api, mutation: str, token: str | None = None, **input: Any) -> dict[str, Any]:
    return (await api.ask(BULK % mutation, token=token, input=input)).data[mutation]


TEAM = {"labels": [{"key": "team", "value": "a"}]}


async def teams(api: Api) -> list[str]:
    """Three of team a, of which one has exited, one of team b and one of team a of another project."""
    made = [await put(api, S.READY, f"a{number}", labels={"team": "a"}) for number in range(2)]
    made.append(await put(api, S.EXITED, "a2", labels={"team": "a"}))
    await put(api, S.READY, "b0", labels={"team": "b"})
    other = await api.world.new_project("other")
    await put(api, S.READY, "a9", labels={"team": "a"}, project_id=other)
    return made


async def test_a_filter_needs_the_number_that_it_matches(api: Api):
    made = await teams(api)

    refused = await bulk(api, "stopInstances", filter=TEAM, expectedCount=2)
    assert refused["results"] == []
    assert refused["errors"] == [
        {
            "__typename": "CountDiffers",
            "code": "COUNT_DIFFERS",
            "path": ["input", "expectedCount"],
            "expected": 2,
            "actual": 3,
        }
    ]
    assert await api.world.value("SELECT count(*) FROM operation") == 0

    stopped = await bulk(api, "stopInstances", filter=TEAM, expectedCount=3)
    assert stopped["errors"] == []
    assert [(each["instanceId"], [error["code"] for error in each["errors"]]) for each in stopped["results"]] == [
        (made[0], []),
        (made[1], []),
        (made[2], ["INSTANCE_NOT_STOPPABLE"]),
    ]
    assert await api.world.value("SELECT count(*) FROM operation") == 2
    none = await bulk(api, "stopInstances", filter={"statuses": ["FAILED"]}, expectedCount=0)
    assert (none["errors"], none["results"]) == ([], [])


async def test_a_filter_with_a_key_is_about_the_same_instances_when_it_is_repeated(api: Api):
    """After the first request none of them matches any more, and others do."""
    await teams(api)
    given = {"filter": {**TEAM, "statuses": ["READY"]}, "expectedCount": 2, "idempotencyKey": "once"}
    answers = await asyncio.gather(*(bulk(api, "deleteInstances", **given) for _ in range(4)))
    operations = [[each["operation"]["id"] for each in answer["results"]] for answer in answers]
    assert all(each == operations[0] for each in operations)
    assert len(set(operations[0])) == 2
    await put(api, S.READY, "a3", labels={"team": "a"})

    again = await bulk(api, "deleteInstances", **given)
    other = await bulk(api, "deleteInstances", **(given | {"expectedCount": 1}))

    assert [(each["operation"]["id"], each["replayed"]) for each in again["results"]] == [
        (each, True) for each in operations[0]
    ]
    assert [each["code"] for each in other["errors"]] == ["IDEMPOTENCY_KEY_REUSED"]
    assert await api.world.value("SELECT count(*) FROM operation") == 2


async def test_a_request_that_ended_half_way_is_completed_by_its_key(api: Api):
    """As after a crash between the set's transaction and those of its instances."""
    await teams(api)
    given = {"filter": {**TEAM, "statuses": ["READY"]}, "expectedCount": 2, "idempotencyKey": "once"}
    first = await bulk(api, "stopInstances", **given)
    lost = first["results"][1]
    lost_id = UUID(lost["instanceId"].partition("_")[2])
    await api.world.execute("DELETE FROM idempotency_key WHERE key = $1", f"once {lost['instanceId']}")
    await api.world.execute("DELETE FROM operation WHERE instance_id = $1", lost_id)
    await api.world.execute("UPDATE instance SET status = 'READY' WHERE id = $1", lost_id)

    again = await bulk(api, "stopInstances", **given)

    assert [(each["instanceId"], each["replayed"], each["errors"]) for each in again["results"]] == [
        (first["results"][0]["instanceId"], True, []),
        (lost["instanceId"], False, []),
    ]


async def test_a_refused_filter_keeps_no_key(api: Api):
    await teams(api)
    refused = await bulk(api, "stopInstances", filter=TEAM, expectedCount=9, idempotencyKey="again")
    assert [each["code"] for each in refused["errors"]] == ["COUNT_DIFFERS"]
    accepted = await bulk(api, "stopInstances", filter=TEAM, expectedCount=3, idempotencyKey="again")
    assert accepted["errors"] == []


async def test_more_than_100_are_refused_with_their_number(api: Api):
    for number in range(103):
        await api.world.put(S.EXITED, name=f"n{number}")
    refused = await bulk(api, "deleteInstances", filter={}, expectedCount=100)
    assert [(each["code"], each["actual"]) for each in refused["errors"]] == [("COUNT_DIFFERS", 103)]
    refused = await bulk(api, "deleteInstances", filter={}, expectedCount=103)
    assert [(each["code"], each["path"]) for each in refused["errors"]] == [
        ("INVALID_EXPECTED_COUNT", ["input", "expectedCount"])
    ]
    assert await api.world.value("SELECT count(*) FROM operation") == 0


@pytest.mark.parametrize(
    ("fields", "code", "path"),
    [
        ({}, "INVALID_TARGET", ["input", "ids"]),
        ({"ids": ["inst_x"], "filter": {}, "expectedCount": 1}, "INVALID_TARGET", ["input", "ids"]),
        ({"filter": {}}, "INVALID_EXPECTED_COUNT", ["input", "expectedCount"]),
        ({"filter": {}, "expectedCount": -1}, "INVALID_EXPECTED_COUNT", ["input", "expectedCount"]),
        ({"ids": ["inst_x"], "expectedCount": 1}, "INVALID_EXPECTED_COUNT", ["input", "expectedCount"]),
        ({"filter": {"regions": ["x"] * 101}, "expectedCount": 1}, "INVALID_FILTER", ["input", "filter"]),
    ],
)
async def test_unclear_sets_are_refused(api: Api, fields: dict[str, Any], code: str, path: list[str]):
    payload = await bulk(api, "stopInstances", **fields)
    assert ([(each["code"], each["path"]) for each in payload["errors"]], payload["results"]) == ([(code, path)], [])
