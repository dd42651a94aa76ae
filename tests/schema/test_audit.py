"""The audit log: each mutation with its caller and outcome, written with what it did, and without its values."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs

from schema.audit import Audited
from schema.root import Mutation
from server.audit.queries import AuditFilter, export_audit
from server.enums import InstanceStatus, Role
from server.queue.kinds import CleanUp
from tests.support.api import Api

EVENTS = """query ($filter: AuditFilter, $after: String) { auditEvents(filter: $filter, first: 2, after: $after) {
  totalCount pageInfo { endCursor hasNextPage }
  nodes { mutation outcome errorCode target projectId tokenId token { name } inputDigest requestId } } }"""
STOP = """mutation ($input: StopInstanceInput!) {
  stopInstance(input: $input) { operation { id } errors { code } } }"""


async def recorded(api: Api) -> list[tuple[Any, ...]]:
    rows = await api.world.rows("SELECT mutation, outcome, error_code, target FROM audit_event ORDER BY created_at, id")
    return [tuple(row) for row in rows]


async def admin_of(api: Api, project: str) -> str:
    return (await api.world.new_token(project, Role.ADMIN))[0]


def test_every_mutation_is_audited_around_all_else():
    fields = Mutation.__strawberry_definition__.fields
    assert [field.name for field in fields if not isinstance(field.extensions[-1], Audited)] == []


async def test_a_create_and_its_record_are_one_transaction(api: Api):
    made = await api.create()

    row = await api.world.one("SELECT *, xmin::text FROM audit_event")
    assert row["xmin"] == await api.world.value("SELECT xmin::text FROM instance")
    assert (row["mutation"], row["outcome"], row["error_code"]) == ("createInstance", "ACCEPTED", None)
    assert (row["target"], row["project_id"]) == (made["instance"]["id"], api.caller.project_id)
    assert (row["token_id"], len(row["input_digest"])) == (api.caller.token_id, 16)


async def test_a_stop_by_name_names_the_instance_in_its_own_transaction(api: Api):
    instance = await api.world.put(InstanceStatus.READY, name="web", novita_id="n-1")

    await api.ask(STOP, input={"name": "web"})

    row = await api.world.one("SELECT *, xmin::text FROM audit_event")
    assert row["xmin"] == await api.world.value("SELECT xmin::text FROM operation")
    assert (row["mutation"], row["outcome"], row["target"]) == ("stopInstance", "ACCEPTED", f"inst_{instance.id.hex}")


async def test_a_mutation_whose_record_cannot_be_written_does_nothing(api: Api):
    await api.world.put(InstanceStatus.READY, name="web", novita_id="n-1")

    async with constraint(api, "audit_event", "mutation = ''"):
        answer = await api.ask(STOP, input={"name": "web"})

    assert answer.error["code"] == "INTERNAL"
    assert await recorded(api) == []
    assert await api.world.value("SELECT status FROM instance") == "READY"
    assert await api.world.value("SELECT count(*) FROM operation") == 0


@asynccontextmanager
async def constraint(api: Api, table: str, condition: str) -> AsyncIterator[None]:
    """Lets PostgreSQL refuse some rows for a while. Logs are not rendered: tracebacks take seconds."""
    await api.world.execute(f"ALTER TABLE {table} ADD CONSTRAINT for_a_test CHECK ({condition}) NOT VALID")
    try:
        with capture_logs():
            yield
    finally:
        await api.world.execute(f"ALTER TABLE {table} DROP CONSTRAINT for_a_test")


async def test_refused_and_dry_requests_are_recorded_with_their_outcome(api: Api):
    reader, _ = await api.world.new_token("default", Role.READER)
    made = await api.create()
    await api.create()
    await api.create(name="dry", validateOnly=True)
    await api.create(name="", validateOnly=True)
    await api.ask(STOP, token=reader, input={"id": made["instance"]["id"]})
    await api.ask(STOP, input={"id": "pl_a-secret-in-the-wrong-field"})

    id = made["instance"]["id"]
    assert await recorded(api) == [
        ("createInstance", "ACCEPTED", None, id),
        ("createInstance", "REFUSED", "INSTANCE_NAME_TAKEN", None),
        ("createInstance", "VALIDATED", None, None),
        ("createInstance", "REFUSED", "INVALID_INSTANCE_NAME", None),
        ("stopInstance", "REFUSED", "FORBIDDEN", id),
        ("stopInstance", "REFUSED", "INSTANCE_NOT_FOUND", None),
    ]


async def test_a_failed_mutation_is_recorded_as_failed(api: Api):
    admin = await admin_of(api, "default")
    document = "mutation ($name: String!) { createProject(input: {name: $name}) { errors { code } } }"

    async with constraint(api, "project", "name <> 'broken'"):
        answer = await api.ask(document, token=admin, name="broken")

    assert answer.error["code"] == "INTERNAL"
    assert await recorded(api) == [("createProject", "FAILED", "INTERNAL", None)]


async def test_a_repeated_create_is_recorded_again(api: Api):
    await api.create(idempotencyKey="once")
    await api.create(idempotencyKey="once")

    assert [row[:2] for row in await recorded(api)] == [("createInstance", "ACCEPTED")] * 2
    digests = await api.world.rows("SELECT DISTINCT input_digest FROM audit_event")
    assert len(digests) == 1


async def test_a_bulk_request_has_one_record(api: Api):
    ids = [
        f"inst_{(await api.world.put(InstanceStatus.READY, name=name, novita_id=name)).id.hex}"
        for name in ("a", "b", "c")
    ]
    document = "mutation ($ids: [ID!]) { stopInstances(input: {ids: $ids}) { results { errors { code } } } }"

    await api.ask(document, ids=ids)
    await api.ask(document, ids=ids)

    assert await recorded(api) == [
        ("stopInstances", "ACCEPTED", None, None),
        ("stopInstances", "REFUSED", "OPERATION_IN_PROGRESS", None),
    ]


async def test_accepted_heartbeats_are_left_out_and_refused_ones_are_not(api: Api):
    instance = await api.world.put(InstanceStatus.READY)
    document = "mutation ($id: ID!) { heartbeat(input: {id: $id}) { errors { code } } }"

    assert (await api.ask(document, id=f"inst_{instance.id.hex}")).data["heartbeat"]["errors"] == []
    await api.ask(document, id=f"inst_{0:032x}")

    assert await recorded(api) == [("heartbeat", "REFUSED", "INSTANCE_NOT_FOUND", f"inst_{0:032x}")]


async def test_no_value_of_the_input_is_stored(api: Api):
    await api.create(name="mellow-otter", env=[{"key": "PASSWORD", "value": "correct-horse"}], image="quay.io/me/img")
    await api.create(name="mellow-otter", env=[{"key": "PASSWORD", "value": "correct-horse"}], image="quay.io/me/img")
    await api.create(name="mellow-otter", env=[{"key": "PASSWORD", "value": "correct-mule"}], image="quay.io/me/img")

    rows = await api.world.rows("SELECT *, audit_event::text AS whole FROM audit_event ORDER BY created_at, id")
    assert len(rows) == 3
    for row in rows:
        assert not any(word in row["whole"] for word in ("mellow", "horse", "mule", "PASSWORD", "quay", "RTX"))
    assert rows[0]["input_digest"] == rows[1]["input_digest"] != rows[2]["input_digest"]


async def test_an_admin_sees_the_own_project_and_the_servers_admin_all(api: Api):
    theirs, _ = await api.world.new_token("theirs", Role.OPERATOR)
    await api.create(name="ours")
    created = "mutation ($input: CreateInstanceInput!) { createInstance(input: $input) { errors { code } } }"
    await api.ask(created, token=theirs, input={"name": "", "productName": "RTX 4090 24GB", "image": "nginx"})
    their_admin, our_admin = await admin_of(api, "theirs"), await admin_of(api, "default")

    seen = (await api.ask(EVENTS, token=their_admin)).data["auditEvents"]
    assert [(node["outcome"], node["errorCode"]) for node in seen["nodes"]] == [("REFUSED", "INVALID_INSTANCE_NAME")]
    assert (seen["totalCount"], seen["nodes"][0]["token"]) == (1, {"name": "test"})
    ours = {"projectId": f"prj_{api.caller.project_id.hex}"}
    assert (await api.ask(EVENTS, token=their_admin, filter=ours)).data["auditEvents"]["totalCount"] == 0

    assert (await api.ask(EVENTS, token=our_admin)).data["auditEvents"]["totalCount"] == 2
    (node,) = (await api.ask(EVENTS, token=our_admin, filter=ours)).data["auditEvents"]["nodes"]
    assert (node["mutation"], node["tokenId"]) == ("createInstance", f"tok_{api.caller.token_id.hex}")
    reader = (await api.ask(EVENTS)).error["code"]
    assert reader == "FORBIDDEN"


@pytest.mark.parametrize(
    ("filter", "count"),
    [
        ({"outcomes": ["REFUSED"]}, 1),
        ({"mutations": ["createInstance"]}, 2),
        ({"mutations": ["deleteInstance"], "outcomes": ["ACCEPTED"]}, 1),
        ({"tokenId": f"tok_{0:032x}"}, 0),
        ({"since": "2100-01-01T00:00:00Z"}, 0),
        ({"until": "2100-01-01T00:00:00Z"}, 3),
    ],
)
async def test_filters_narrow_the_log(api: Api, filter: dict[str, Any], count: int):
    made = await api.create()
    await api.create()
    await api.delete(made["instance"]["id"])

    answer = await api.ask(EVENTS, token=await admin_of(api, "default"), filter=filter)
    assert answer.data["auditEvents"]["totalCount"] == count


async def test_pages_have_every_record_once(api: Api):
    for name in "abcde":
        await api.create(name=name)
    admin = await admin_of(api, "default")

    seen, after = [], None
    for _ in range(3):
        page = (await api.ask(EVENTS, token=admin, after=after)).data["auditEvents"]
        seen += [node["target"] for node in page["nodes"]]
        after = page["pageInfo"]["endCursor"]
    assert page["pageInfo"]["hasNextPage"] is False
    assert seen == [row[3] for row in reversed(await recorded(api))]


async def test_the_export_has_a_line_for_each_record_oldest_first(api: Api):
    made = await api.create()
    await api.create()

    lines = [orjson.loads(orjson.dumps(line)) async for line in export_audit(api.world.database, AuditFilter())]

    assert [(line["outcome"], line["target"]) for line in lines] == [
        ("ACCEPTED", made["instance"]["id"]),
        ("REFUSED", None),
    ]
    assert lines[0]["tokenId"] == f"tok_{api.caller.token_id.hex}"
    names = "id createdAt projectId tokenId requestId mutation inputDigest target outcome errorCode"
    assert list(lines[0]) == names.split()


async def test_old_records_are_deleted_after_their_retention(api: Api):
    await api.world.configure(audit_retention=timedelta(days=7))
    await api.create(name="old")
    await api.create(name="new")
    await api.world.execute("DELETE FROM job")
    oldest = "SELECT id FROM audit_event ORDER BY created_at, id LIMIT 1"
    await api.world.execute(f"UPDATE audit_event SET created_at = now() - interval '8 days' WHERE id = ({oldest})")

    await api.world.enqueue(CleanUp())
    await api.world.work_once()

    (row,) = await recorded(api)
    left = await api.world.value("SELECT id FROM instance WHERE name = 'new'")
    assert row[3] == f"inst_{left.hex}"
