"""Where an event, a job or a webhook comes from: the operation, the attempt, the token and the caller's request."""

import orjson

from schema import ids
from server.enums import Role
from server.queue.kinds import CleanUp
from tests.support.api import Api
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
    assert all(each["attempt"] is None for each in nodes if each["type"] != "attempt.finished")


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
    job = ids.format_number(ids.JOB, await api.world.enqueue(CleanUp()))
    admin, _ = await api.world.new_token("default", Role.ADMIN)
    reader, _ = await api.world.new_token("default", Role.OPERATOR)
    other, _ = await api.world.new_token("another", Role.ADMIN)
    document = "query ($id: ID!) { jobs { nodes { id kind } } job(id: $id) { kind } }"

    found = (await api.ask(document, token=admin, id=job)).data
    assert found == {"jobs": {"nodes": [{"id": job, "kind": "CLEANUP"}]}, "job": {"kind": "CLEANUP"}}
    for token in (reader, other):
        assert (await api.ask(document, token=token, id=job)).data == {"jobs": {"nodes": []}, "job": None}
