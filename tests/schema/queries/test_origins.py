"""Where an event, a job or a webhook comes from: the operation, the attempt, the token and the caller's request."""

import orjson
import pytest

from schema import ids
from server.enums import Role
from server.queue.kinds import CleanUp
from server.simulator.faults import Fault, FaultKind
from tests.support.api import Api
from tests.support.api_server import Socket
from tests.support.receiver import Receiver

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CREATE = """mutation ($input: CreateInstanceInput!) {
  createInstance(input: $input) { instance { id } operation { id } errors { code } }
}"""
EVENTS = """query ($id: ID!) { events(filter: {ids: [$id]}, first: 100) { nodes {
  type operationId causedBy { id } attempt { number region billingMode status reasonCode reasonMessage } } } }"""


async def is_ready(api: Api) -> bool:
    open_jobs = await api.world.value("SELECT count(*) FROM job")
    return not open_jobs and not await api.world.value("SELECT count(*) FROM outbox")


async def test_every_event_of_a_create_names_its_operation_and_token(api: Api):
    payload = await api.create()
    await api.world.work_until(lambda: is_ready(api))

    nodes = (await api.ask(EVENTS, id=payload["instance"]["id"])).data["events"]["nodes"]

    assert {each["operationId"] for each in nodes} == {payload["operation"]["id"]}
    assert {each["causedBy"]["id"] for each in nodes} == {ids.format_id(ids.TOKEN, api.caller.token_id)}
    (attempt,) = [each["attempt"] for each in nodes if each["type"] == "attempt.finished"]
    assert (attempt["number"], attempt["status"], attempt["billingMode"]) == (1, "CREATED", "SPOT")
    assert attempt["region"] == (await api.world.one("SELECT region FROM instance"))["region"]
    ended = {"attempt.finished", "operation.finished"}
    assert all((each["attempt"] is None) == (each["type"] not in ended) for each in nodes)


async def test_request_id_and_trace_of_the_caller_reach_response_job_and_webhook(api: Api, receiver: Receiver):
    given = {"name": "web", "productName": "RTX 4090 24GB", "image": "nginx", "webhookUrl": receiver.url}
    headers = {
        "authorization": f"Bearer {api.token}",
        "content-type": "application/json",
        "x-request-id": "deploy-42.a",
        "traceparent": TRACE,
    }
    body = orjson.dumps({"query": CREATE, "variables": {"input": given}})
    url = f"http://{api.server.address}/graphql"
    async with api.server.http.post(url, data=body, headers=headers) as response:
        assert response.headers["x-request-id"] == "deploy-42.a"
        assert (await response.json())["data"]["createInstance"]["errors"] == []
    origin: str = await api.world.value("SELECT origin FROM job WHERE kind = 'CREATE_INSTANCE'")
    assert (origin.split()[0], origin.split()[-1]) == ("rid:deploy-42.a", TRACE)

    await api.world.work_until(lambda: is_ready(api))

    assert len(receiver.got) > 3
    assert {each.headers.get("x-request-id") for each in receiver.got} == {"deploy-42.a"}
    assert {each.headers.get("traceparent") for each in receiver.got} == {TRACE}
    operation: str = receiver.got[0].message["data"]["operationId"]
    assert {each.message["data"]["operationId"] for each in receiver.got} == {operation}


async def test_request_id_of_another_form_is_replaced(api: Api):
    headers = {"content-type": "application/json", "x-request-id": "a b"}
    url = f"http://{api.server.address}/graphql"
    async with api.server.http.post(url, data=b'{"query": "{ viewer { role } }"}', headers=headers) as response:
        assert response.headers["x-request-id"].startswith("req_")


async def test_jobs_of_the_server_are_listed_for_its_admin_alone(api: Api):
    job = ids.format_job(api.server.runtime.seals, await api.world.enqueue(CleanUp()))
    admin, _ = await api.world.new_token("default", Role.ADMIN)
    reader, _ = await api.world.new_token("default", Role.OPERATOR)
    other, _ = await api.world.new_token("another", Role.ADMIN)
    document = "query ($id: ID!) { jobs { nodes { id kind } } job(id: $id) { kind } }"

    found = (await api.ask(document, token=admin, id=job)).data
    assert found == {"jobs": {"nodes": [{"id": job, "kind": "CLEANUP"}]}, "job": {"kind": "CLEANUP"}}
    for token in (reader, other):
        assert (await api.ask(document, token=token, id=job)).data == {"jobs": {"nodes": []}, "job": None}


async def create_over_socket(api: Api, socket: Socket, id: str, name: str, extensions: object = None) -> str:
    """The origin of the job of a create over a WebSocket."""
    given = {"name": name, "productName": "RTX 4090 24GB", "image": "nginx"}
    payload: dict[str, object] = {"query": CREATE, "variables": {"input": given}}
    if extensions is not None:
        payload["extensions"] = extensions
    await socket.send({"id": id, "type": "subscribe", "payload": payload})
    answer = await socket.receive()
    assert answer["payload"]["data"]["createInstance"]["errors"] == []
    assert (await socket.receive())["type"] == "complete"
    return await api.world.value(
        "SELECT origin FROM job JOIN instance ON instance.id = job.instance_id"
        " WHERE kind = 'CREATE_INSTANCE' AND name = $1",
        name,
    )


async def test_operations_of_a_socket_carry_the_ids_of_their_caller(api: Api):
    async with api.server.socket(api.token, init={"x-request-id": "tab-7", "traceparent": TRACE}) as socket:
        assert (await socket.receive())["type"] == "connection_ack"
        own = TRACE.replace("b7ad", "c7ad")

        first = await create_over_socket(api, socket, "1", "one", {"x-request-id": "click-1", "traceparent": own})
        second = await create_over_socket(api, socket, "2", "two")

    assert (first.split()[0], first.split()[-1]) == ("rid:click-1", own)
    assert (second.split()[0], second.split()[-1]) == ("rid:tab-7", TRACE)


@pytest.mark.parametrize("given", ["a b", "x" * 65, 7, None, {"a": 1}])
async def test_operations_of_a_socket_have_ids_of_their_own_otherwise(api: Api, given: object):
    async with api.server.socket(api.token) as socket:
        assert (await socket.receive())["type"] == "connection_ack"
        extensions = {"x-request-id": given, "traceparent": given}
        origins = [await create_over_socket(api, socket, name, name, extensions) for name in ("one", "two")]

    assert all(origin.startswith("req_") and TRACE not in origin for origin in origins)
    assert origins[0].split()[0] != origins[1].split()[0]


async def test_errors_over_a_socket_have_the_request_id_of_their_caller(api: Api):
    async with api.server.socket(api.token) as socket:
        assert (await socket.receive())["type"] == "connection_ack"
        extensions = {"x-request-id": "click-2"}
        for id, query in (("1", "{ nothing }"), ("2", "query { instances(first: 0) { nodes { id } } }")):
            payload = {"query": query, "extensions": extensions}
            await socket.send({"id": id, "type": "subscribe", "payload": payload})
            assert (await socket.error())["requestId"] == "click-2"


async def test_events_of_a_create_whose_answer_was_lost_name_its_operation_and_token(api: Api):
    payload = await api.create()
    api.world.faults(Fault(FaultKind.LOST_ANSWER, ("POST /gpu/instance/create",), times=1))

    await api.world.work_until(lambda: is_ready(api))

    nodes = (await api.ask(EVENTS, id=payload["instance"]["id"])).data["events"]["nodes"]
    assert [each["attempt"]["status"] for each in nodes if each["type"] == "attempt.finished"] == ["CREATED"]
    assert "instance.changed" in {each["type"] for each in nodes}  # a machine may exist
    assert {each["operationId"] for each in nodes} == {payload["operation"]["id"]}
    assert all(each["causedBy"] is not None for each in nodes)


async def test_the_end_of_a_create_names_its_last_attempt_and_reason(api: Api, receiver: Receiver):
    payload = await api.create(regions=["AS-SGP-02"], billing="SPOT", webhookUrl=receiver.url)
    api.world.faults(Fault(FaultKind.ERROR, ("POST /gpu/instance/create",), status=400, reason="IMAGE_NOT_FOUND"))

    await api.world.work_until(lambda: is_ready(api))

    nodes = (await api.ask(EVENTS, id=payload["instance"]["id"])).data["events"]["nodes"]
    by_type = {each["type"]: each for each in nodes}
    attempt = by_type["attempt.finished"]["attempt"]
    assert (attempt["number"], attempt["region"], attempt["reasonCode"]) == (1, "AS-SGP-02", "IMAGE_NOT_FOUND")
    assert by_type["operation.finished"]["attempt"] == attempt
    assert {each["operationId"] for each in nodes} == {payload["operation"]["id"]}
    assert {each["causedBy"]["id"] for each in nodes} == {ids.format_id(ids.TOKEN, api.caller.token_id)}
    (sent,) = [each.message["data"] for each in receiver.got if each.type == "operation.finished"]
    assert sent["attempt"] == {**attempt, "billingMode": "spot"}
    assert sent["operation"]["error"]["code"] == "IMAGE_NOT_FOUND"


@pytest.mark.parametrize("verb", ["stop", "restart", "migrate", "delete"])
async def test_every_event_of_an_operation_names_it_and_its_token(api: Api, verb: str):
    created = await api.create()
    await api.world.work_until(lambda: is_ready(api))
    token, caller = await api.world.new_token()
    document = f"""mutation ($id: ID!) {{
      {verb}Instance(input: {{id: $id}}) {{ operation {{ id }} errors {{ code }} }}
    }}"""
    accepted = (await api.ask(document, token=token, id=created["instance"]["id"])).data[f"{verb}Instance"]
    assert accepted["errors"] == []
    await api.world.work_until(lambda: is_ready(api))

    nodes = (await api.ask(EVENTS, id=created["instance"]["id"])).data["events"]["nodes"]

    own = [each for each in nodes if each["operationId"] != created["operation"]["id"]]
    assert {"operation.started", "operation.finished"} < {each["type"] for each in own}
    assert any(each["type"].startswith("instance.") for each in own)
    assert {each["operationId"] for each in own} == {accepted["operation"]["id"]}
    assert {each["causedBy"]["id"] for each in own} == {ids.format_id(ids.TOKEN, caller.token_id)}
