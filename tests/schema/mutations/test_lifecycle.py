"""startInstance, stopInstance and the other lifecycle mutations over the API."""

import asyncio
from typing import Any
from uuid import UUID

from schema import ids
from server.clock import now
from server.enums import InstanceStatus
from tests.support.api import Api

ERRORS = """
    errors {
      __typename code message path
      ... on InvalidTransition { current allowed }
      ... on OperationInProgress { operation { id } }
      ... on VersionConflict { currentVersion }
      ... on NotCancellable { operation { id status } }
    }
"""
PAYLOAD = (
    f"{{ replayed instance {{ id name status estimatedReadyAt }} operation {{ id kind status progress }} {ERRORS} }}"
)


async def mutate(api: Api, mutation: str, **fields: Any) -> dict[str, Any]:
    kind = mutation[0].upper() + mutation[1:]
    document = f"mutation ($input: {kind}Input!) {{ {mutation}(input: $input) {PAYLOAD} }}"
    return (await api.ask(document, input=fields)).data[mutation]


async def put(api: Api, status: InstanceStatus, **fields: Any) -> str:
    given: dict[str, Any] = {"project_id": api.caller.project_id, "novita_id": None, **fields}
    if given["novita_id"] is None and status is not InstanceStatus.FAILED:
        given["novita_id"] = f"n-{UUID(int=len(fields)).hex[:4]}-{fields.get('name', status)}"
    row = await api.world.put(status, **given)
    return ids.format_id(ids.INSTANCE, row.id)


async def test_each_mutation_returns_the_instance_and_its_operation(api: Api):
    starting = await mutate(api, "startInstance", name=(await _named(api, InstanceStatus.EXITED)))
    assert (starting["instance"]["status"], starting["operation"]["kind"]) == ("STARTING", "START")
    assert starting["instance"]["estimatedReadyAt"] is not None
    for name, status, kind in [
        ("stopInstance", "STOPPING", "STOP"),
        ("restartInstance", "RESTARTING", "RESTART"),
        ("migrateInstance", "MIGRATING", "MIGRATE"),
        ("deleteInstance", "DELETING", "DELETE"),
    ]:
        payload = await mutate(api, name, id=await put(api, InstanceStatus.READY, name=name))
        assert (payload["instance"]["status"], payload["operation"]["kind"]) == (status, kind)
        assert (payload["operation"]["status"], payload["operation"]["progress"]) == ("QUEUED", 0)
        assert (payload["replayed"], payload["errors"]) == (False, [])


async def _named(api: Api, status: InstanceStatus) -> str:
    await put(api, status, name="the-name")
    return "the-name"


async def test_refusals_say_what_is_in_the_way(api: Api):
    id = await put(api, InstanceStatus.READY)

    (error,) = (await mutate(api, "startInstance", id=id))["errors"]
    assert (error["__typename"], error["code"], error["current"]) == (
        "InvalidTransition",
        "INSTANCE_NOT_STARTABLE",
        "READY",
    )
    assert "STOPPING" in error["allowed"]

    stopping = await mutate(api, "stopInstance", id=id)
    (error,) = (await mutate(api, "restartInstance", id=id))["errors"]
    assert (error["code"], error["operation"]["id"]) == ("OPERATION_IN_PROGRESS", stopping["operation"]["id"])

    (error,) = (await mutate(api, "startInstance"))["errors"]
    assert (error["code"], error["path"]) == ("INVALID_TARGET", ["input", "id"])
    (error,) = (await mutate(api, "startInstance", id=id, name="both"))["errors"]
    assert error["code"] == "INVALID_TARGET"
    (error,) = (await mutate(api, "stopInstance", id="inst_nobody"))["errors"]
    assert (error["code"], error["path"]) == ("INSTANCE_NOT_FOUND", ["input", "id"])


async def test_an_update_of_the_name_is_over_at_once_and_knows_versions(api: Api):
    id = await put(api, InstanceStatus.READY, version=3)

    (error,) = (await mutate(api, "updateInstance", id=id, name="new", expectedVersion=2))["errors"]
    assert (error["__typename"], error["code"], error["currentVersion"]) == ("VersionConflict", "VERSION_CONFLICT", 3)

    payload = await mutate(api, "updateInstance", id=id, name="new", expectedVersion=3)
    assert (payload["instance"]["name"], payload["operation"]["status"], payload["operation"]["progress"]) == (
        "new",
        "SUCCEEDED",
        100,
    )


async def test_an_operation_is_cancelled_and_a_cancelled_create_is_gone(api: Api):
    created = await api.create(name="cancelled")
    document = f"""mutation ($id: ID!) {{ cancelOperation(input: {{id: $id}})
        {{ operation {{ status }} instance {{ status }} cleanUp {{ kind }} {ERRORS} }} }}"""

    payload = (await api.ask(document, id=created["operation"]["id"])).data["cancelOperation"]
    assert (payload["operation"]["status"], payload["instance"]["status"]) == ("CANCELLED", "DELETED")
    assert payload["cleanUp"] is None

    deleting = await mutate(api, "deleteInstance", id=await put(api, InstanceStatus.READY))
    payload = (await api.ask(document, id=deleting["operation"]["id"])).data["cancelOperation"]
    (error,) = payload["errors"]
    assert (error["__typename"], error["code"], error["operation"]["status"]) == (
        "NotCancellable",
        "NOT_CANCELLABLE",
        "QUEUED",
    )


BULK = f"""mutation ($ids: [ID!]!, $key: String) {{ %s(input: {{ids: $ids, idempotencyKey: $key}}) {{
    results {{ instanceId replayed instance {{ id status }} operation {{ id }} {ERRORS} }} {ERRORS} }} }}"""


async def test_many_are_stopped_each_with_its_own_result(api: Api):
    good = await put(api, InstanceStatus.READY, name="good")
    down = await put(api, InstanceStatus.EXITED, name="down")
    given = [good, down, "inst_nobody", good]

    payload = (await api.ask(BULK % "stopInstances", ids=given)).data["stopInstances"]

    assert payload["errors"] == []
    results = payload["results"]
    assert [result["instanceId"] for result in results] == given
    assert [[error["code"] for error in result["errors"]] for result in results] == [
        [],
        ["INSTANCE_NOT_STOPPABLE"],
        ["INSTANCE_NOT_FOUND"],
        [],
    ]
    assert results[0]["instance"]["status"] == "STOPPING"
    assert results[3]["operation"]["id"] == results[0]["operation"]["id"]
    assert results[2]["errors"][0]["path"] == ["input", "ids", "2"]


async def test_many_are_deleted_once_with_one_key(api: Api):
    given = [await put(api, InstanceStatus.READY, name=f"many-{number}") for number in range(20)]

    answers = await asyncio.gather(*(api.ask(BULK % "deleteInstances", ids=given, key="bulk") for _ in range(4)))

    operations = [
        [result["operation"]["id"] for result in answer.data["deleteInstances"]["results"]] for answer in answers
    ]
    assert all(each == operations[0] for each in operations)
    assert len(set(operations[0])) == 20
    other = (await api.ask(BULK % "deleteInstances", ids=given[:1], key="bulk")).data["deleteInstances"]
    assert ([error["code"] for error in other["errors"]], other["results"]) == (["IDEMPOTENCY_KEY_REUSED"], [])


async def test_no_ids_or_too_many_are_refused(api: Api):
    for given in ([], ["inst_x"] * 101):
        payload = (await api.ask(BULK % "deleteInstances", ids=given)).data["deleteInstances"]
        assert ([error["code"] for error in payload["errors"]], payload["results"]) == (["INVALID_IDS"], [])


async def test_what_has_failed_says_what_can_be_done(api: Api):
    document = "query ($id: ID!) { instance(id: $id) { actions failure { code actions } } }"

    bare = (await api.ask(document, id=await put(api, InstanceStatus.FAILED))).data["instance"]
    machine = (await api.ask(document, id=await put(api, InstanceStatus.FAILED, novita_id="n9"))).data["instance"]

    gone = await put(api, InstanceStatus.FAILED, novita_id="n8", novita_status="removed")
    offered = (await api.ask(document, id=gone)).data["instance"]["actions"]
    stop = "mutation ($id: ID!) { stopInstance(input: {id: $id}) { operation { id } errors { code } } }"
    refused = (await api.ask(stop, id=gone)).data["stopInstance"]

    assert offered == ["UPDATE", "DELETE"]
    assert refused == {"operation": None, "errors": [{"code": "INSTANCE_NOT_STOPPABLE"}]}
    assert bare["failure"] == {"code": "BROKEN", "actions": ["UPDATE", "DELETE"]}
    assert machine["actions"] == ["STOP", "RESTART", "MIGRATE", "UPDATE", "DELETE"]


async def test_the_ports_of_a_machine_that_is_gone_can_not_be_changed(api: Api):
    gone = await put(api, InstanceStatus.FAILED, novita_id="n8", novita_status="removed")
    document = """mutation ($input: UpdateInstanceInput!) {
      updateInstance(input: $input) { operation { status } errors { code } } }"""

    ports = (await api.ask(document, input={"id": gone, "ports": [{"port": 80}]})).data["updateInstance"]
    name = (await api.ask(document, input={"id": gone, "name": "was-gone"})).data["updateInstance"]

    assert ports == {"operation": None, "errors": [{"code": "INSTANCE_NOT_UPDATABLE"}]}
    assert name == {"operation": {"status": "SUCCEEDED"}, "errors": []}
    assert await api.world.value("SELECT count(*) FROM job") == 0


async def test_await_operation_has_bounds_and_returns_null_for_an_unknown_id(api: Api):
    document = "query ($id: ID!, $for: Duration!) { awaitOperation(id: $id, timeout: $for) { status } }"
    created = await api.create(name="awaited")

    found = await api.ask(document, id=created["operation"]["id"], **{"for": 0.05})
    assert found.data["awaitOperation"] == {"status": "QUEUED"}
    assert (await api.ask(document, id="op_nobody", **{"for": 1})).data["awaitOperation"] is None
    too_long = await api.ask(document, id=created["operation"]["id"], **{"for": 61})
    assert too_long.error["code"] == "INVALID_TIMEOUT"


async def test_a_reader_may_read_and_wait_but_not_mutate(api: Api):
    id = await put(api, InstanceStatus.READY)
    secret, _ = await api.world.new_token(role=api.caller.role.__class__.READER)

    answer = await api.ask("mutation ($id: ID!) { stopInstance(input: {id: $id}) { replayed } }", token=secret, id=id)

    assert answer.error["code"] == "FORBIDDEN"


async def test_every_mutation_refuses_an_instance_that_has_changed(api: Api):
    for mutation, status in (
        ("startInstance", InstanceStatus.EXITED),
        ("stopInstance", InstanceStatus.READY),
        ("restartInstance", InstanceStatus.READY),
        ("migrateInstance", InstanceStatus.READY),
        ("deleteInstance", InstanceStatus.READY),
    ):
        row = await api.world.put(status, novita_id=f"v-{mutation}", version=7)
        document = f"""mutation ($id: ID!, $version: Int!) {{
            {mutation}(input: {{id: $id, expectedVersion: $version}}) {{
                instance {{ version }}
                errors {{ __typename code path ... on VersionConflict {{ currentVersion }} }} }} }}"""
        id = f"inst_{row.id.hex}"
        refused = (await api.ask(document, id=id, version=6)).data[mutation]
        assert refused["errors"] == [
            {
                "__typename": "VersionConflict",
                "code": "VERSION_CONFLICT",
                "path": ["input", "expectedVersion"],
                "currentVersion": 7,
            }
        ]
        assert (await api.world.instance(row.id))["version"] == 7
        assert await api.world.event_types(row.id) == []
        assert (await api.ask(document, id=id, version=7)).data[mutation]["errors"] == []


async def test_an_instance_to_start_is_meant_in_exactly_one_way(api: Api):
    row = await api.world.put(InstanceStatus.EXITED, name="sleeper", novita_id="s1")
    id = f"inst_{row.id.hex}"
    document = """mutation ($input: StartInstanceInput!) { startInstance(input: $input) {
        instance { id } errors { code path } } }"""

    async def start(**input: Any) -> Any:
        return await api.ask(document, input={**input, "validateOnly": True})

    for unclear in ({}, {"id": id, "name": "sleeper"}, {"id": id, "instance": {"name": "sleeper"}}):
        (error,) = (await start(**unclear)).data["startInstance"]["errors"]
        assert error == {"code": "INVALID_TARGET", "path": ["input", "id"]}
    assert (await start(instance={"id": id, "name": "sleeper"})).error["code"] == "BAD_REQUEST"
    assert (await start(instance={})).error["code"] == "BAD_REQUEST"
    for clear in ({"id": id}, {"name": "sleeper"}, {"instance": {"id": id}}, {"instance": {"name": "sleeper"}}):
        assert (await start(**clear)).data["startInstance"]["errors"] == []
    (error,) = (await start(instance={"name": "nobody"})).data["startInstance"]["errors"]
    assert error == {"code": "INSTANCE_NOT_FOUND", "path": ["input", "instance", "name"]}


async def test_the_receiver_of_events_is_changed_and_removed(api: Api):
    row = await api.world.put(novita_id="w1", webhook_url="http://127.0.0.1:9/old", webhook_disabled_at=now())
    document = """mutation ($id: ID!, $webhook: WebhookChange!) {
        updateInstance(input: {id: $id, webhook: $webhook}) {
            instance { webhook { url disabledAt } } operation { status } errors { code path } } }"""

    async def change(**webhook: Any) -> Any:
        return (await api.ask(document, id=f"inst_{row.id.hex}", webhook=webhook)).data["updateInstance"]

    changed = await change(url="http://127.0.0.1:9/new")
    assert changed["instance"]["webhook"] == {"url": "http://127.0.0.1:9/new", "disabledAt": None}
    assert changed["operation"]["status"] == "SUCCEEDED"
    for wrong in ({"url": "ftp://x"}, {"url": ""}, {"url": "http://10.0.0.1/"}):
        assert (await change(**wrong))["errors"] == [
            {"code": "INVALID_WEBHOOK_URL", "path": ["input", "webhook", "url"]}
        ]
    assert (await change(remove=False))["errors"][0]["code"] == "INVALID_WEBHOOK"
    assert (await api.world.instance(row.id))["webhook_url"] == "http://127.0.0.1:9/new"
    assert (await change(remove=True))["instance"]["webhook"] is None
    assert (await api.world.instance(row.id))["webhook_url"] is None


async def test_the_requested_time_to_run_is_checked_stored_shown_and_replaced_by_a_start(api: Api):
    create = """mutation ($input: CreateInstanceInput!) {
        createInstance(input: $input) { instance { id readyTimeout } errors { code } } }"""
    wanted = {"name": "slow", "productName": "RTX 4090 24GB", "image": "nginx", "readyTimeout": 5400}
    created = (await api.ask(create, input=wanted)).data["createInstance"]
    assert (created["instance"]["readyTimeout"], created["errors"]) == (5400.0, [])
    quote = "query ($input: QuoteInput!) { quote(input: $input) { errors { code } } }"
    assert (await api.ask(quote, input=wanted)).data["quote"]["errors"] == []

    id = await put(api, InstanceStatus.EXITED, name="stopped")
    refused = await mutate(api, "startInstance", id=id, readyTimeout=59.5)
    assert [(error["code"], error["path"]) for error in refused["errors"]] == [
        ("INVALID_READY_TIMEOUT", ["input", "readyTimeout"])
    ]
    read = "query ($id: ID!) { instance(id: $id) { readyTimeout } }"
    assert (await api.ask(read, id=id)).data["instance"] == {"readyTimeout": None}
    assert (await mutate(api, "startInstance", id=id, readyTimeout=60))["errors"] == []
    assert (await api.ask(read, id=id)).data["instance"] == {"readyTimeout": 60.0}


async def test_a_failed_create_is_tried_again_with_one_mutation(api: Api):
    id = await put(api, InstanceStatus.FAILED, name="broken")
    operation_id = await api.world.value(
        """INSERT INTO operation (id, project_id, instance_id, kind, status, phase, error_code, finished_at)
           VALUES (gen_random_uuid(), $1, $2, 'CREATE', 'FAILED', 'OVER', 'BROKEN', now()) RETURNING id""",
        api.caller.project_id,
        ids.parse(ids.INSTANCE, id, ("id",)),
    )
    failed = ids.format_id(ids.OPERATION, operation_id)

    first = await mutate(api, "retryOperation", id=failed, idempotencyKey="again")
    second = await mutate(api, "retryOperation", id=failed, idempotencyKey="again")
    assert (first["instance"]["id"], first["instance"]["status"], first["errors"]) == (id, "CREATING", [])
    assert (second["operation"]["id"], second["replayed"]) == (first["operation"]["id"], True)
    third = await mutate(api, "retryOperation", id=failed)
    assert [error["code"] for error in third["errors"]] == ["OPERATION_IN_PROGRESS"]
