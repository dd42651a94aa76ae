"""Webhooks of projects: every event of their types, signed, in order, once in the log and once on record."""

import asyncio
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest

from server.db.database import Database
from server.db.outages import DATABASE_ERRORS
from server.db.tables import Delivery
from server.enums import InstanceStatus, Role
from server.events.event import EventType
from server.events.outbox import append_project_event
from server.instances import transitions
from server.webhooks import deliveries
from server.webhooks.feed import WebhookFeed
from server.webhooks.project_webhooks import WEBHOOKS_MAX
from tests.support.api import Api
from tests.support.receiver import Receiver
from tests.support.waiting import until

S = InstanceStatus
CREATE = """
    mutation ($input: CreateWebhookInput!) {
      createWebhook(input: $input) {
        replayed webhook { id url types disabledAt createdAt } errors { __typename code path }
      }
    }
"""
LIST = "{ webhooks { totalCount nodes { id url types disabledAt } } }"
DELETE = "mutation ($id: ID!) { deleteWebhook(input: {id: $id}) { deletedId errors { code path } } }"
DELIVERIES = """
    query ($filter: WebhookDeliveryFilter) {
      webhookDeliveries(filter: $filter) { nodes { id eventType status errorCode instanceId projectWebhookId } } }
"""


@dataclass
class Hooks:
    """The API with an ADMIN's token, and a feed and workers that run when a test says so."""

    api: Api
    admin: str

    async def create(self, url: str, *types: str, **fields: Any) -> dict[str, Any]:
        given = {"url": url, "types": list(types), **fields}
        return (await self.api.ask(CREATE, token=self.admin, input=given)).data["createWebhook"]

    async def listed(self, token: str | None = None) -> list[dict[str, Any]]:
        return (await self.api.ask(LIST, token=token or self.admin)).data["webhooks"]["nodes"]

    async def deliveries(self, **filter: Any) -> list[dict[str, Any]]:
        answer = await self.api.ask(DELIVERIES, token=self.admin, filter=filter)
        return answer.data["webhookDeliveries"]["nodes"]

    async def go(self, instance_id: UUID, *statuses: InstanceStatus) -> None:
        for status in statuses:
            async with self.api.world.database.write() as session:
                await transitions.transition(session, instance_id, status, cause=transitions.Cause())

    async def announce(self, number: int, project_id: UUID | None = None) -> None:
        async with self.api.world.database.write() as session:
            await append_project_event(
                session,
                EventType.BALANCE_LOW,
                project_id=project_id or self.api.caller.project_id,
                values={"number": number},
                objects={"thing": f"thing_{number}"},
                caused_by=self.api.caller.token_id,
            )

    def feed_of(self, database: Database | None = None, **options: Any) -> WebhookFeed:
        world = self.api.world
        return WebhookFeed(database or world.database, world.notifier, **options)

    async def feed(self, **options: Any) -> None:
        """Everything that was written so far is compared with the webhooks."""

        async def is_sequenced() -> bool:
            return not await self.api.world.value("SELECT count(*) FROM outbox")

        await until(is_sequenced)
        feed = self.feed_of(**options)
        while await feed.feed():
            pass

    async def send(self) -> None:
        """Until nothing is pending."""
        await self.feed()

        async def is_quiet() -> bool:
            return not await self.api.world.value("SELECT count(*) FROM delivery WHERE status = 'PENDING'")

        await self.api.world.work_until(is_quiet)


@pytest.fixture
async def hooks(api: Api) -> Hooks:
    admin, _ = await api.world.new_token(role=Role.ADMIN)
    return Hooks(api, admin)


async def test_a_webhook_gets_events_of_its_types_about_instances_and_about_none(hooks: Hooks, receiver: Receiver):
    rotate = "mutation { rotateWebhookSecret { secret } }"
    secret = (await hooks.api.ask(rotate, token=hooks.admin)).data["rotateWebhookSecret"]["secret"]
    made = await hooks.create(receiver.url, "instance.exited", "balance.low", "instance.exited")
    assert (made["errors"], made["replayed"]) == ([], False)
    assert made["webhook"]["types"] == ["balance.low", "instance.exited"]
    instance = await hooks.api.world.put(S.RUNNING)
    await hooks.go(instance.id, S.HEALTH_CHECKING, S.READY, S.EXITED)
    await hooks.announce(7)

    await hooks.send()

    messages = {each["type"]: each["data"] for each in receiver.verify(secret)}
    assert sorted(receiver.types) == ["balance.low", "instance.exited"]
    exited = messages["instance.exited"]
    assert (exited["instanceId"], exited["instance"]["status"], exited["previousStatus"]) == (
        f"inst_{instance.id.hex}",
        "EXITED",
        "READY",
    )
    low = messages["balance.low"]
    assert (low["instanceId"], low["instance"], low["data"], low["thingId"]) == (None, None, {"number": 7}, "thing_7")
    assert low["causedBy"] == f"tok_{hooks.api.caller.token_id.hex}"
    event = (await hooks.api.ask("{ projectEvents { nodes { id type data { key value } } } }")).data["projectEvents"]
    assert event["nodes"] == [{"id": low["id"], "type": "balance.low", "data": [{"key": "number", "value": "7"}]}]
    assert [(each["eventType"], each["status"]) for each in await hooks.deliveries()] == [
        ("balance.low", "DELIVERED"),
        ("instance.exited", "DELIVERED"),
    ]
    of_instance = await hooks.deliveries(instanceId=exited["instanceId"])
    assert [(each["instanceId"], each["projectWebhookId"]) for each in of_instance] == [
        (exited["instanceId"], made["webhook"]["id"])
    ]
    assert len(await hooks.deliveries(projectWebhookId=made["webhook"]["id"])) == 2
    assert await hooks.deliveries(projectWebhookId="hook_nothing") == []


async def test_events_before_the_webhook_and_of_other_projects_are_not_sent(hooks: Hooks, receiver: Receiver):
    await hooks.announce(1)
    await hooks.feed()
    await hooks.create(receiver.url, "balance.low")
    other = await hooks.api.world.new_project("other")
    await hooks.announce(2, other)
    await hooks.announce(3)

    await hooks.send()

    assert [each.message["data"]["data"]["number"] for each in receiver.got] == [3]


async def test_an_operations_event_has_the_instance_as_it_was(hooks: Hooks, receiver: Receiver):
    """Such an event has no snapshot of the instance: it is that of the event before."""
    await hooks.create(receiver.url, "operation.started")
    secret = {"env": {"SECRET": "hidden-value"}, "webhook_url": "http://127.0.0.1:9/own"}
    instance = await hooks.api.world.put(S.HEALTH_CHECKING, novita_id="m1", **secret)
    await hooks.go(instance.id, S.READY)
    stop = "mutation ($id: ID!) { stopInstance(input: {id: $id}) { errors { code } } }"
    assert (await hooks.api.ask(stop, id=f"inst_{instance.id.hex}")).data["stopInstance"]["errors"] == []
    await hooks.api.world.execute("DELETE FROM delivery")  # of its own webhook, which does not exist
    # Without an earlier snapshot, as after the end of the retention: the row as it is.
    await hooks.api.world.execute(
        "INSERT INTO outbox (id, type, project_id, instance_id, data)"
        " VALUES (gen_random_uuid(), 'operation.started', $1, $2, '{}')",
        hooks.api.caller.project_id,
        (await hooks.api.world.put(S.EXITED, name="alone", **secret)).id,
    )

    await hooks.send()

    shown = [each.message["data"]["instance"] for each in receiver.got]  # of two instances: in either order
    assert sorted((each["name"], each["status"]) for each in shown) == [("alone", "EXITED"), (instance.name, "READY")]
    bodies = b"".join(each.body for each in receiver.got)
    assert b"hidden-value" not in bodies
    assert b"/own" not in bodies


async def test_messages_about_one_instance_keep_their_order_and_wait_only_for_each_other(
    hooks: Hooks, receiver: Receiver
):
    await hooks.create(receiver.url, "instance.ready", "instance.exited", "balance.low")
    one, other = await hooks.api.world.put(S.HEALTH_CHECKING), await hooks.api.world.put(S.HEALTH_CHECKING)
    await hooks.go(one.id, S.READY, S.EXITED)
    await hooks.feed()
    receiver.answers = [503]
    await hooks.api.world.work_once()  # the first fails, and the second waits for it
    assert receiver.types == ["instance.ready"]
    await hooks.go(other.id, S.READY)
    await hooks.announce(1)
    await hooks.feed()
    await hooks.api.world.work_once()
    assert sorted(receiver.types[1:]) == ["balance.low", "instance.ready"]

    (failed,) = [each for each in await hooks.deliveries() if each["errorCode"] == "HTTP_503"]
    redeliver = "mutation ($id: ID!) { redeliverWebhook(input: {id: $id}) { delivery { status } errors { code } } }"
    again = (await hooks.api.ask(redeliver, id=failed["id"])).data["redeliverWebhook"]
    assert again == {"delivery": {"status": "PENDING"}, "errors": []}
    await hooks.api.world.work_once()  # due now, without waiting for the retry
    await hooks.send()

    assert [each.type for each in receiver.got if each.message["data"]["instanceId"] == f"inst_{one.id.hex}"] == [
        "instance.ready",
        "instance.ready",
        "instance.exited",
    ]


async def test_a_delivered_message_can_be_sent_again(hooks: Hooks, receiver: Receiver):
    await hooks.create(receiver.url, "balance.low")
    await hooks.announce(1)
    await hooks.send()
    (delivered,) = await hooks.deliveries()

    redeliver = "mutation ($id: ID!) { redeliverWebhook(input: {id: $id}) { delivery { status } } }"
    await hooks.api.ask(redeliver, id=delivered["id"])
    await hooks.send()

    first, second = receiver.got
    assert (first.id, first.body) == (second.id, second.body)
    assert await hooks.api.world.value("SELECT count(*) FROM job WHERE status = 'WAITING'") == 0


async def test_410_disables_the_webhook_and_ends_what_is_pending(hooks: Hooks, receiver: Receiver):
    made = await hooks.create(receiver.url, "balance.low")
    await hooks.announce(1)
    await hooks.announce(2)
    receiver.answers = [410]

    await hooks.send()
    await hooks.announce(3)
    await hooks.send()

    assert len(receiver.got) == 1
    assert [(each["status"], each["errorCode"]) for each in await hooks.deliveries()] == [
        ("FAILED", "WEBHOOK_DISABLED"),
        ("FAILED", "HTTP_410"),
    ]
    (webhook,) = await hooks.listed()
    assert (webhook["id"], webhook["disabledAt"] is not None) == (made["webhook"]["id"], True)


async def test_a_deleted_webhook_is_sent_nothing_more(hooks: Hooks, receiver: Receiver):
    made = await hooks.create(receiver.url, "balance.low")
    await hooks.announce(1)
    await hooks.feed()
    await hooks.announce(2)

    gone = (await hooks.api.ask(DELETE, token=hooks.admin, id=made["webhook"]["id"])).data["deleteWebhook"]
    assert gone == {"deletedId": made["webhook"]["id"], "errors": []}
    await hooks.send()

    assert receiver.got == []
    assert [(each["status"], each["errorCode"]) for each in await hooks.deliveries()] == [("FAILED", "WEBHOOK_DELETED")]
    assert await hooks.listed() == []
    again = (await hooks.api.ask(DELETE, token=hooks.admin, id=made["webhook"]["id"])).data["deleteWebhook"]
    assert again["errors"] == [{"code": "WEBHOOK_NOT_FOUND", "path": ["input", "id"]}]


async def test_a_key_makes_one_webhook(hooks: Hooks, receiver: Receiver):
    made = await asyncio.gather(*(hooks.create(receiver.url, "balance.low", idempotencyKey="once") for _ in range(4)))
    assert sorted(each["replayed"] for each in made) == [False, True, True, True]
    assert len({each["webhook"]["id"] for each in made}) == 1

    other = await hooks.create(receiver.url, "instance.ready", idempotencyKey="once")
    assert [each["code"] for each in other["errors"]] == ["IDEMPOTENCY_KEY_REUSED"]
    await hooks.api.ask(DELETE, token=hooks.admin, id=made[0]["webhook"]["id"])
    gone = await hooks.create(receiver.url, "balance.low", idempotencyKey="once")
    assert (gone["webhook"], gone["replayed"], gone["errors"]) == (None, True, [])
    assert await hooks.listed() == []


async def test_a_project_has_at_most_20(hooks: Hooks, receiver: Receiver):
    async def create(number: int) -> list[str]:
        return [each["code"] for each in (await hooks.create(f"{receiver.url}/{number}", "balance.low"))["errors"]]

    for number in range(WEBHOOKS_MAX - 1):
        assert await create(number) == []

    assert sorted(await asyncio.gather(*(create(number) for number in range(4)))) == [[]] + [["TOO_MANY_WEBHOOKS"]] * 3
    assert len(await hooks.listed()) == WEBHOOKS_MAX
    stranger, _ = await hooks.api.world.new_token("strangers", Role.ADMIN)
    assert await hooks.listed(stranger) == []
    theirs = await hooks.api.ask(CREATE, token=stranger, input={"url": receiver.url, "types": ["balance.low"]})
    assert theirs.data["createWebhook"]["errors"] == []


@pytest.mark.parametrize(
    ("fields", "code", "path"),
    [
        ({"url": "ftp://example.com/"}, "INVALID_WEBHOOK_URL", ["input", "url"]),
        ({"url": "http://169.254.169.254/latest"}, "INVALID_WEBHOOK_URL", ["input", "url"]),
        ({"types": []}, "INVALID_EVENT_TYPE", ["input", "types"]),
        ({"types": ["instance.ready", "instance.redy"]}, "INVALID_EVENT_TYPE", ["input", "types", "1"]),
        ({"types": ["*"]}, "INVALID_EVENT_TYPE", ["input", "types", "0"]),
        ({"idempotencyKey": ""}, "INVALID_IDEMPOTENCY_KEY", ["input", "idempotencyKey"]),
    ],
)
async def test_bad_input_is_refused_and_leaves_nothing(
    hooks: Hooks, receiver: Receiver, fields: dict[str, Any], code: str, path: list[str]
):
    given = {"url": receiver.url, "types": ["instance.ready"], **fields}
    payload = (await hooks.api.ask(CREATE, token=hooks.admin, input=given)).data["createWebhook"]
    assert [(each["__typename"], each["code"], each["path"]) for each in payload["errors"]] == [
        ("ValidationError", code, path)
    ]
    assert await hooks.listed() == []


async def test_feeds_of_several_processes_write_each_delivery_once(hooks: Hooks, receiver: Receiver):
    await hooks.create(receiver.url, "balance.low")
    for number in range(12):
        await hooks.announce(number)
    await hooks.feed(batch=5)
    for number in range(12, 24):
        await hooks.announce(number)

    await asyncio.gather(*(hooks.feed(batch=1) for _ in range(4)))

    rows = await hooks.api.world.rows("SELECT body::json #>> '{data,data,number}' AS n FROM delivery ORDER BY seq")
    assert [int(row["n"]) for row in rows] == list(range(24))
    assert await hooks.api.world.value("SELECT count(*) FROM job WHERE kind = 'SEND_PROJECT_WEBHOOK'") == 24


async def test_a_feed_that_is_killed_before_its_commit_loses_and_repeats_nothing(hooks: Hooks, receiver: Receiver):
    world = hooks.api.world
    await hooks.create(receiver.url, "balance.low")
    await hooks.announce(1)
    blocker = await world.database.connect()
    try:
        async with blocker.transaction():
            # It has written the delivery, and waits to write its job.
            await blocker.execute("LOCK TABLE job IN SHARE ROW EXCLUSIVE MODE")
            feeding = asyncio.create_task(hooks.feed())
            await until(lambda: _is_killed(hooks))
            with pytest.raises(DATABASE_ERRORS):
                await feeding
    finally:
        await blocker.close()
    assert await world.value("SELECT count(*) FROM delivery") == 0

    await hooks.send()

    assert [each.message["data"]["data"]["number"] for each in receiver.got] == [1]


async def _is_killed(hooks: Hooks) -> bool:
    """Ends the session that waits to write a job."""
    return bool(
        await hooks.api.world.value(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE wait_event_type = 'Lock' AND query LIKE '%INSERT INTO job%' AND datname = current_database()"
            "   AND pid <> pg_backend_pid()"
        )
    )


async def test_a_slow_project_webhook_delays_no_message_of_an_instances_own(hooks: Hooks, receiver: Receiver):
    """Also not in processes of the release before, which order by `instance_id` alone."""
    await hooks.create(f"{receiver.url}/project", "instance.ready")
    instance = await hooks.api.world.put(S.HEALTH_CHECKING, webhook_url=f"{receiver.url}/own")
    await hooks.go(instance.id, S.READY)
    await hooks.feed()
    await hooks.go(instance.id, S.EXITED)

    own = await hooks.api.world.rows("SELECT id FROM delivery WHERE project_webhook_id IS NULL ORDER BY seq")
    await hooks.api.world.execute(
        "UPDATE delivery SET status = 'DELIVERED', finished_at = now() WHERE id = $1", own[0][0]
    )
    async with hooks.api.world.database.read() as session:
        last = await session.get_one(Delivery, own[1][0])
        assert await deliveries.time_until_turn(session, last) is None
    assert await hooks.api.world.value("SELECT count(*) FROM delivery WHERE instance_id = $1", instance.id) == 2


async def test_a_running_feed_follows_the_log(hooks: Hooks, receiver: Receiver):
    await hooks.create(receiver.url, "balance.low")
    feed = hooks.feed_of()
    feed.start()
    try:
        await hooks.announce(1)
        await until(lambda: _has_rows(hooks, 1))
        await hooks.announce(2)
        await until(lambda: _has_rows(hooks, 2))
    finally:
        await feed.stop()


async def _has_rows(hooks: Hooks, many: int) -> bool:
    return await hooks.api.world.value("SELECT count(*) FROM delivery") == many


async def test_its_statements_use_their_indexes(hooks: Hooks, receiver: Receiver):
    made = await hooks.create(receiver.url, "balance.low")
    await hooks.announce(1)
    await hooks.feed()
    await hooks.api.world.execute(
        "INSERT INTO delivery (id, project_id, project_webhook_id, subject_id, event_type, url, body, status,"
        "                      keeps_order, finished_at)"
        " SELECT gen_random_uuid(), project_id, project_webhook_id, gen_random_uuid(), 'x', url, '{}', 'DELIVERED',"
        "        true, now() FROM delivery, generate_series(1, 500)"
    )
    await hooks.api.world.execute(  # and of instances and other webhooks, which are down
        "INSERT INTO delivery (id, project_id, project_webhook_id, event_type, url, body, status, keeps_order)"
        " SELECT gen_random_uuid(), project_id, CASE WHEN n % 2 = 0 THEN gen_random_uuid() END, 'x', url, '{}',"
        "        'PENDING', true FROM (SELECT * FROM delivery LIMIT 1) AS one, generate_series(1, 5000) AS n"
    )
    await hooks.api.world.execute("ANALYZE delivery")
    webhook_id = UUID(made["webhook"]["id"].partition("_")[2])
    for statement, index in (
        (
            f"SELECT FROM delivery WHERE project_webhook_id = '{webhook_id}' AND subject_id IS NULL"
            " AND status = 'PENDING' AND keeps_order AND seq < 1000000 ORDER BY seq LIMIT 1",
            "delivery_waiting_by_webhook",
        ),
        (
            f"UPDATE delivery SET url = url WHERE project_webhook_id = '{webhook_id}' AND status = 'PENDING'",
            "delivery_waiting_by_webhook",
        ),
        (
            f"SELECT FROM delivery WHERE project_webhook_id IS NOT NULL AND subject_id = '{webhook_id}'",
            "delivery_by_subject",
        ),
    ):
        plan = "\n".join(row[0] for row in await hooks.api.world.rows(f"EXPLAIN {statement}"))
        assert index in plan, plan
