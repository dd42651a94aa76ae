"""With LOG_FORMAT=json every line is JSON, ids connect the lines, and no line has a secret."""

from tests.flows.deployment import lines_of
from tests.support.processes import Up
from tests.support.waiting import until
from tests.support.watcher import GraphQLClient


async def test_request_operation_instance_and_jobs_are_tied_together(shared_up: Up):
    caller = GraphQLClient(shared_up.graphql_url, shared_up.token)
    async with caller.subscribed() as events:
        id = await caller.create("logged")
        await events.until("READY", id)

    [accepted] = lines_of(shared_up, event="operation.accepted", instance_id=id)
    assert accepted["request_id"].startswith("req_")
    assert accepted["operation_id"].startswith("op_")
    await until(lambda: lines_of(shared_up, event="request.answered", request_id=accepted["request_id"], status=200))
    await until(lambda: len(lines_of(shared_up, event="job.done", instance_id=id)) == 3)
    done = lines_of(shared_up, event="job.done", instance_id=id)
    assert [line["kind"] for line in done] == ["CREATE_INSTANCE", "MONITOR_INSTANCE", "HEALTH_CHECK"]
    assert {line["operation_id"] for line in done} == {accepted["operation_id"]}
    assert len({line["job_id"] for line in done}) == 3
    calls = lines_of(shared_up, event="novita call", instance_id=id, route="POST /gpu/instance/create")
    assert [call["job_id"] for call in calls] == [done[0]["job_id"]]
    # The job's id in the log is the one of the API; its number is in no line.
    document = "query ($id: ID!) { job(id: $id) { id kind status instanceId } }"
    shown = (await caller.ask(document, id=done[0]["job_id"]))["job"]
    assert shown == {"id": done[0]["job_id"], "kind": "CREATE_INSTANCE", "status": "SUCCEEDED", "instanceId": id}
    assert [line for line in lines_of(shared_up) if isinstance(line.get("job_id", "job_"), int)] == []


async def test_no_secret_is_in_the_log(shared_up: Up):
    await GraphQLClient(shared_up.graphql_url, shared_up.token).create("secretive")

    password = str(shared_up.ready["databaseUrl"]).split(":")[2].split("@")[0]
    said = shared_up.said + shared_up.printed
    assert lines_of(shared_up, event="up.ready")
    for secret in (shared_up.token, password, "sk_simulator"):
        assert secret not in said
