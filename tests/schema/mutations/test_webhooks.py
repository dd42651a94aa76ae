"""Health checks and webhooks through the API."""

import asyncio
from typing import Any
from uuid import UUID

import pytest
from standardwebhooks import Webhook

from server.db.tables import Instance
from server.enums import InstanceStatus, Role
from tests.support.api import Api
from tests.support.receiver import Receiver
from tests.support.waiting import until

DELIVERIES = """
    query ($filter: WebhookDeliveryFilter, $first: Int! = 50, $after: String) {
      webhookDeliveries(filter: $filter, first: $first, after: $after) {
        totalCount pageInfo { hasNextPage endCursor }
        nodes { id webhookId eventType status attemptCount url errorCode body
                attempts { number httpStatus errorCode finishedAt } }
      }
    }
"""
HEALTH = "health { status checkedAt endpoints { port type healthy httpStatus attempts error { kind severity } } }"


async def quiet(api: Api) -> bool:
    return not await api.world.value("SELECT count(*) FROM delivery WHERE status = 'PENDING'")


async def ready(api: Api, **fields: Any) -> str:
    """The id of an instance that has come up."""
    payload = await api.create(**fields)
    assert payload["errors"] == []
    await api.world.work_until_over(_uuid(payload["operation"]["id"]))
    return payload["instance"]["id"]


def _uuid(id: str) -> UUID:
    return UUID(id.partition("_")[2])


async def test_a_create_sets_the_webhook_and_the_health_check(api: Api, receiver: Receiver):
    check = {"timeout": 5, "retries": 1, "delay": 0.1, "path": "/", "targetPort": 80}
    id = await ready(api, ports=[{"port": 80}, {"port": 8080}], webhookUrl=receiver.url, healthCheck=check)
    await api.world.work_until(lambda: quiet(api))

    document = f"query ($id: ID!) {{ instance(id: $id) {{ webhook {{ url disabledAt }} {HEALTH} }} }}"
    instance = (await api.ask(document, id=id)).data["instance"]
    assert instance["webhook"] == {"url": receiver.url, "disabledAt": None}
    assert instance["health"]["status"] == "HEALTHY"
    assert [(each["port"], each["httpStatus"], each["error"]) for each in instance["health"]["endpoints"]] == [
        (80, 200, None)
    ]
    page = (await api.ask(DELIVERIES, filter={"instanceId": id, "statuses": ["DELIVERED"]})).data["webhookDeliveries"]
    assert page["totalCount"] == len(receiver.got)
    assert [each["webhookId"] for each in reversed(page["nodes"])] == [each.id for each in receiver.got]
    assert page["nodes"][0]["attempts"] == [
        {"number": 1, "httpStatus": 204, "errorCode": None, "finishedAt": page["nodes"][0]["attempts"][0]["finishedAt"]}
    ]
    first = (await api.ask(DELIVERIES, first=2)).data["webhookDeliveries"]
    rest = (await api.ask(DELIVERIES, after=first["pageInfo"]["endCursor"])).data["webhookDeliveries"]
    assert first["nodes"] + rest["nodes"] == page["nodes"]


@pytest.mark.parametrize(
    ("fields", "code", "path"),
    [
        ({"webhookUrl": "ftp://example.com/"}, "INVALID_WEBHOOK_URL", ["input", "webhookUrl"]),
        ({"webhookUrl": "http://169.254.169.254/latest"}, "INVALID_WEBHOOK_URL", ["input", "webhookUrl"]),
        ({"webhookUrl": "http://u:p@example.com/"}, "INVALID_WEBHOOK_URL", ["input", "webhookUrl"]),
        ({"healthCheck": {"timeout": 301}}, "INVALID_HEALTH_CHECK", ["input", "healthCheck", "timeout"]),
        ({"healthCheck": {"retries": 11}}, "INVALID_HEALTH_CHECK", ["input", "healthCheck", "retries"]),
        ({"healthCheck": {"delay": 0.05}}, "INVALID_HEALTH_CHECK", ["input", "healthCheck", "delay"]),
        ({"healthCheck": {"maxWait": 29}}, "INVALID_HEALTH_CHECK", ["input", "healthCheck", "maxWait"]),
        ({"healthCheck": {"interval": 9}}, "INVALID_HEALTH_CHECK", ["input", "healthCheck", "interval"]),
        ({"healthCheck": {"interval": 3601}}, "INVALID_HEALTH_CHECK", ["input", "healthCheck", "interval"]),
        (
            {"healthCheck": {"failureThreshold": 0}},
            "INVALID_HEALTH_CHECK",
            ["input", "healthCheck", "failureThreshold"],
        ),
        (
            {"healthCheck": {"successThreshold": 11}},
            "INVALID_HEALTH_CHECK",
            ["input", "healthCheck", "successThreshold"],
        ),
        ({"readyTimeout": 59}, "INVALID_READY_TIMEOUT", ["input", "readyTimeout"]),
        ({"readyTimeout": 86_401}, "INVALID_READY_TIMEOUT", ["input", "readyTimeout"]),
        ({"healthCheck": {"path": "health"}}, "INVALID_HEALTH_PATH", ["input", "healthCheck", "path"]),
        ({"healthCheck": {"path": "//10.0.0.1/x"}}, "INVALID_HEALTH_PATH", ["input", "healthCheck", "path"]),
        ({"healthCheck": {"path": "/\\\\10.0.0.1/x"}}, "INVALID_HEALTH_PATH", ["input", "healthCheck", "path"]),
        ({"healthCheck": {"path": "http://10.0.0.1/x"}}, "INVALID_HEALTH_PATH", ["input", "healthCheck", "path"]),
        (
            {"healthCheck": {"expectedStatuses": []}},
            "INVALID_HEALTH_CHECK",
            ["input", "healthCheck", "expectedStatuses"],
        ),
        (
            {"ports": [{"port": 80}], "healthCheck": {"targetPort": 81}},
            "TARGET_PORT_NOT_EXPOSED",
            ["input", "healthCheck", "targetPort"],
        ),
    ],
)
async def test_what_is_out_of_range_is_refused_and_leaves_nothing(
    api: Api, fields: dict[str, Any], code: str, path: list[str]
):
    before = await api.world.counts()
    payload = await api.create(**fields)
    assert [(error["code"], error["path"]) for error in payload["errors"]] == [(code, path)]
    assert await api.world.counts() == before


async def test_a_start_can_replace_the_health_check_and_the_webhook(api: Api, receiver: Receiver):
    id = await ready(api, ports=[{"port": 80}, {"port": 8080}])
    stop = "mutation ($id: ID!) { stopInstance(input: {id: $id}) { operation { id } errors { code } } }"
    stopped = (await api.ask(stop, id=id)).data["stopInstance"]
    await api.world.work_until_over(_uuid(stopped["operation"]["id"]))
    start = """
        mutation ($input: StartInstanceInput!) {
          startInstance(input: $input) { operation { id } errors { code path } }
        }
    """
    refused = (await api.ask(start, input={"id": id, "targetPort": 9999})).data["startInstance"]
    assert refused["errors"] == [{"code": "TARGET_PORT_NOT_EXPOSED", "path": ["input", "targetPort"]}]
    wrong = (await api.ask(start, input={"id": id, "webhookUrl": "gopher://x"})).data["startInstance"]
    assert wrong["errors"] == [{"code": "INVALID_WEBHOOK_URL", "path": ["input", "webhookUrl"]}]

    given = {"id": id, "targetPort": 8080, "webhookUrl": receiver.url, "healthCheck": {"delay": 0.1}}
    accepted = (await api.ask(start, input=given)).data["startInstance"]
    assert accepted["errors"] == []
    await api.world.work_until_over(_uuid(accepted["operation"]["id"]))
    await api.world.work_until(lambda: quiet(api))

    row = await api.world.instance(_uuid(id))
    assert row["health_check"] == '{"delay": 0.1, "target_port": 8080}'
    assert [each for each in receiver.types if each != "health.checked"] == [
        "instance.starting",
        "instance.running",
        "instance.health_checking",
        "instance.ready",
        "operation.finished",
    ]
    ports = await api.world.rows("SELECT port FROM probe_result")
    assert [each[0] for each in ports] == [8080]


async def test_a_rotated_secret_is_shown_once_and_verifies(api: Api, receiver: Receiver):
    token, _ = await api.world.new_token(role=Role.ADMIN)
    rotate = "mutation { rotateWebhookSecret { secret oldSecretValidUntil errors { code } } }"
    refused = await api.ask(rotate)
    assert refused.error["code"] == "FORBIDDEN"
    secret = (await api.ask(rotate, token=token)).data["rotateWebhookSecret"]["secret"]

    test = (
        "mutation ($url: String!) { testWebhook(input: {url: $url}) { delivery { id status } errors { code path } } }"
    )
    sent = (await api.ask(test, url=receiver.url)).data["testWebhook"]["delivery"]
    assert sent["status"] == "PENDING"
    await api.world.work_until(lambda: quiet(api))

    (got,) = receiver.got
    assert Webhook(secret).verify(got.body, got.headers)["type"] == "webhook.test"
    again = "mutation ($id: ID!) { redeliverWebhook(input: {id: $id}) { delivery { status } errors { code } } }"
    assert (await api.ask(again, id=sent["id"])).data["redeliverWebhook"] == {
        "delivery": {"status": "PENDING"},
        "errors": [],
    }
    await api.world.work_until(lambda: quiet(api))
    assert [each.id for each in receiver.got] == [got.id, got.id]
    assert secret not in str((await api.ask(DELIVERIES)).body)


async def test_a_test_to_an_address_inside_is_refused(api: Api):
    test = "mutation ($url: String!) { testWebhook(input: {url: $url}) { delivery { id } errors { code path } } }"
    answer = (await api.ask(test, url="http://10.0.0.1/")).data["testWebhook"]
    assert answer == {"delivery": None, "errors": [{"code": "INVALID_WEBHOOK_URL", "path": ["input", "url"]}]}
    assert await api.world.value("SELECT count(*) FROM delivery") == 0


async def test_another_projects_deliveries_are_not_there(api: Api, receiver: Receiver):
    test = "mutation ($url: String!) { testWebhook(input: {url: $url}) { delivery { id } } }"
    sent = (await api.ask(test, url=receiver.url)).data["testWebhook"]["delivery"]
    stranger, _ = await api.world.new_token(project="another")

    page = (await api.ask(DELIVERIES, token=stranger)).data["webhookDeliveries"]
    assert (page["nodes"], page["totalCount"]) == ([], 0)
    one = "query ($id: ID!) { webhookDelivery(id: $id) { id } }"
    assert (await api.ask(one, token=stranger, id=sent["id"])).data == {"webhookDelivery": None}
    again = "mutation ($id: ID!) { redeliverWebhook(input: {id: $id}) { errors { code } } }"
    answer = (await api.ask(again, token=stranger, id=sent["id"])).data["redeliverWebhook"]
    assert answer["errors"] == [{"code": "DELIVERY_NOT_FOUND"}]
    assert (await api.ask(one, id=sent["id"])).data["webhookDelivery"] == {"id": sent["id"]}


CHECK = f"""
    mutation ($input: CheckHealthInput!) {{
      checkHealth(input: $input) {{ finished instance {{ status version {HEALTH} }} errors {{ code message }} }}
    }}
"""


async def test_a_check_on_demand_finds_what_is_wrong_and_keeps_the_status(api: Api):
    id = await ready(api, ports=[{"port": 80}, {"port": 8080}], healthCheck={"retries": 1, "delay": 0.1})
    api.world.simulator.world.endpoint_modes[await novita_id(api, id), 8080] = "503"

    asked = asyncio.create_task(api.ask(CHECK, input={"instanceId": id, "wait": 20}))
    while not asked.done():
        await api.world.hurry()
        await api.world.work_once()
    answer = (await asked).data["checkHealth"]

    assert (answer["finished"], answer["errors"]) == (True, [])
    assert (answer["instance"]["status"], answer["instance"]["health"]["status"]) == ("READY", "PARTIAL")
    well, ill = answer["instance"]["health"]["endpoints"]
    assert (well["healthy"], well["httpStatus"], well["error"]) == (True, 200, None)
    assert (ill["healthy"], ill["httpStatus"], ill["attempts"]) == (False, 503, 2)
    assert ill["error"] == {"kind": "SERVICE_UNAVAILABLE", "severity": "LOW"}
    types = await api.world.event_types(_uuid(id))
    assert types[-1] == "health.checked"

    document = """
        query ($filter: InstanceEventFilter) {
          events(filter: $filter) { nodes { health { status endpoints { port error { kind } } } } }
        }
    """
    found: list[Any] = []

    async def is_logged() -> bool:
        answer = await api.ask(document, filter={"ids": [id], "types": ["health.checked"]})
        found[:] = answer.data["events"]["nodes"]
        return bool(found) and found[-1]["health"]["status"] == "PARTIAL"

    await until(is_logged)
    assert found[-1]["health"]["endpoints"] == [
        {"port": 80, "error": None},
        {"port": 8080, "error": {"kind": "SERVICE_UNAVAILABLE"}},
    ]

    again = asyncio.create_task(api.ask(CHECK, input={"instanceId": id, "wait": 20}))
    while not again.done():
        await api.world.hurry()
        await api.world.work_once()
    assert (await again).data["checkHealth"]["finished"]
    assert await api.world.event_types(_uuid(id)) == types  # the same verdict is no news


async def novita_id(api: Api, id: str) -> str:
    return (await api.world.instance(_uuid(id)))["novita_id"]


@pytest.mark.parametrize(
    ("status", "fields", "code"),
    [
        (InstanceStatus.EXITED, {}, "INSTANCE_NOT_RUNNING"),
        (InstanceStatus.READY, {"ports": [{"port": 22, "type": "tcp"}]}, "NOTHING_TO_CHECK"),
        (
            InstanceStatus.READY,
            {"ports": [{"port": 80, "type": "http"}], "health_check": {"target_port": 81}},
            "TARGET_PORT_NOT_EXPOSED",
        ),
    ],
)
async def test_what_cannot_be_checked_is_refused(api: Api, status: InstanceStatus, fields: dict[str, Any], code: str):
    instance: Instance = await api.world.put(status, novita_id="n1", **fields)
    answer = (await api.ask(CHECK, input={"instanceId": f"inst_{instance.id.hex}"})).data["checkHealth"]
    assert [error["code"] for error in answer["errors"]] == [code]
    assert await api.world.value("SELECT count(*) FROM job") == 0
