"""Another project's rows are not found, not changed, not subscribed to and not counted."""

from uuid import UUID

import pytest

from server.db.tables import Operation
from server.enums import OperationKind
from server.instances import operations
from tests.support.api import Api


class Other:
    """Another project with one instance and one open operation, and its token."""

    def __init__(self, api: Api, token: str, instance_id: UUID, operation_id: UUID) -> None:
        self.api = api
        self.token = token
        self.instance_id = instance_id
        self.instance = f"inst_{instance_id.hex}"
        self.operation = f"op_{operation_id.hex}"


@pytest.fixture
async def other(api: Api) -> Other:
    token, caller = await api.world.new_token("another")
    instance = await api.world.put(name="theirs", project_id=caller.project_id)
    async with api.world.database.write() as session:
        operation: Operation = await operations.begin(session, instance, OperationKind.STOP, by=caller.token_id)
    return Other(api, token, instance.id, operation.id)


async def test_queries_find_it_only_for_its_owner(api: Api, other: Other):
    document = """
        query ($instance: ID!, $operation: ID!) {
          instance(id: $instance) { name }
          operation(id: $operation) { kind }
          instanceByName(name: "theirs") { id }
          instances { totalCount nodes { id } }
        }
    """
    variables = {"instance": other.instance, "operation": other.operation}
    nothing = {"instance": None, "operation": None, "instanceByName": None, "instances": {"totalCount": 0, "nodes": []}}
    assert (await api.ask(document, **variables)).data == nothing

    theirs = (await api.ask(document, token=other.token, **variables)).data
    assert theirs == {
        "instance": {"name": "theirs"},
        "operation": {"kind": "STOP"},
        "instanceByName": {"id": other.instance},
        "instances": {"totalCount": 1, "nodes": [{"id": other.instance}]},
    }


async def test_a_mutation_cannot_tell_it_from_one_that_does_not_exist(api: Api, other: Other):
    unknown = "inst_" + "0" * 32
    assert await api.delete(other.instance) == await api.delete(unknown)
    (error,) = (await api.delete(other.instance))["errors"]
    assert (error["__typename"], error["code"]) == ("NotFoundError", "INSTANCE_NOT_FOUND")

    row = await api.world.instance(other.instance_id)
    assert (row["status"], row["version"]) == ("READY", 1)
    assert await api.world.value("SELECT count(*) FROM job") == 0
    assert await api.world.event_types(other.instance_id) == ["operation.started"]  # its own, from before


async def test_watching_it_is_not_found(api: Api, other: Other):
    for field, id, code in (
        ("instanceUpdated", other.instance, "INSTANCE_NOT_FOUND"),
        ("operationUpdated", other.operation, "OPERATION_NOT_FOUND"),
    ):
        document = f"subscription ($id: ID!) {{ {field}(id: $id) {{ cursor }} }}"
        async with api.server.watching(document, token=api.token, variables={"id": id}) as socket:
            assert (await socket.error())["code"] == code


async def test_its_events_come_to_its_owner_alone_even_when_asked_for_by_id(api: Api, other: Other):
    document = "subscription ($ids: [ID!]) { instanceEvents(filter: {ids: $ids}) { type instanceId } }"
    variables = {"ids": [other.instance]}
    async with (
        api.server.watching(document, token=api.token, variables=variables) as mine,
        api.server.watching(document, token=other.token, variables=variables) as theirs,
    ):
        await theirs.is_silent()  # both are subscribed by now
        assert (await api.delete(other.instance, token=other.token))["errors"] == []
        assert (await theirs.next("instanceEvents"))["instanceId"] == other.instance
        assert await mine.is_silent()
