"""Deliveries: committed with their event, signed, in order, retried until delivered or dead."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import orjson
import pytest
from aiohttp import web
from sqlalchemy import text
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import now
from server.db.tables import Delivery, DeliveryStatus
from server.enums import InstanceStatus
from server.errors import NotFound
from server.instances import transitions
from server.instances.drafts import Port
from server.jobs.registry import all_handlers
from server.queue.worker import Worker
from server.webhooks import deliveries
from server.webhooks.payload import BODY_MAX
from server.webhooks.sender import IN_FLIGHT_PER_RECEIVER_MAX, RETRY_AGE_MAX, RETRY_DELAYS
from server.webhooks.signing import format_secret, rotate
from tests.support.receiver import Receiver, hang
from tests.support.waiting import until
from tests.support.world import World

S = InstanceStatus


async def secret_of(world: World, overlap: timedelta = timedelta(days=1)) -> str:
    key = world.sender.key
    assert key is not None
    async with world.database.write() as session:
        return format_secret(await rotate(session, world.caller.project_id, key, overlap=overlap))


async def put_through(world: World, url: str, *statuses: InstanceStatus, **fields: Any) -> UUID:
    """An instance with a webhook that goes through `statuses`."""
    instance = await world.put(S.RUNNING, webhook_url=url, **fields)
    await go(world, instance.id, *statuses)
    return instance.id


async def go(world: World, instance_id: UUID, *statuses: InstanceStatus) -> None:
    for status in statuses:
        async with world.database.write() as session:
            await transitions.transition(session, instance_id, status, cause=transitions.Cause())


async def rows(world: World, instance_id: UUID) -> list[tuple[str, str, int, str | None]]:
    found = await world.rows(
        "SELECT event_type, status, attempts, error_code FROM delivery WHERE instance_id = $1 ORDER BY seq", instance_id
    )
    return [tuple(each) for each in found]


async def is_quiet(world: World) -> bool:
    return not await world.value("SELECT count(*) FROM delivery WHERE status = 'PENDING'")


async def test_every_wanted_event_arrives_in_order_and_verifies(world: World, receiver: Receiver):
    secret = await secret_of(world)
    accepted = await world.create("web", ports=(Port(80, "http"),), webhook_url=receiver.url)
    await world.work_until_over(accepted.operation.id)
    await world.work_until(lambda: is_quiet(world))

    messages = receiver.verify(secret)

    assert [each for each in receiver.types if each != "health.checked"] == [
        "instance.created",
        "instance.starting",
        "instance.running",
        "instance.health_checking",
        "instance.ready",
        "operation.finished",
    ]
    assert "health.checked" in receiver.types
    ready = next(each["data"] for each in messages if each["type"] == "instance.ready")
    assert ready["instanceId"] == ready["instance"]["id"] == f"inst_{accepted.instance.id.hex}"
    assert (ready["previousStatus"], ready["status"], ready["instance"]["status"]) == (
        "HEALTH_CHECKING",
        "READY",
        "READY",
    )
    assert ready["instance"]["pricePerHour"] == {"amountMicros": 195000, "currency": "USD"}
    finished = messages[-1]["data"]
    assert (finished["operation"]["status"], finished["instance"]["status"]) == ("SUCCEEDED", "READY")
    checked = next(each["data"] for each in messages if each["type"] == "health.checked")
    assert checked["health"]["endpoints"][0]["port"] == 80


async def test_the_message_is_the_event_that_subscribers_see(world: World, receiver: Receiver):
    instance_id = await put_through(world, receiver.url, S.READY)
    await world.work_until(lambda: is_quiet(world))

    event = await world.one("SELECT id, type FROM outbox WHERE instance_id = $1", instance_id)
    (got,) = receiver.got
    assert got.message["data"]["id"] == f"evt_{event['id'].hex}"
    assert got.type == event["type"] == "instance.ready"
    assert got.headers["content-type"] == "application/json"


async def test_a_change_that_is_rolled_back_leaves_no_delivery(world: World, receiver: Receiver):
    instance = await world.put(S.RUNNING, webhook_url=receiver.url)

    async def change() -> None:
        async with world.database.write() as session:
            await transitions.transition(session, instance.id, S.READY, cause=transitions.Cause())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await change()

    assert await rows(world, instance.id) == []
    assert await world.value("SELECT count(*) FROM job") == 0


async def test_events_that_are_not_for_receivers_and_instances_without_a_webhook_make_none(
    world: World, receiver: Receiver
):
    instance_id = await put_through(world, receiver.url, S.STOPPING)  # instance.stopping is not among them
    other = await world.put(S.RUNNING)
    await go(world, other.id, S.READY)

    assert await rows(world, instance_id) == []
    assert await rows(world, other.id) == []


async def test_id_and_body_are_the_same_over_retries_and_the_time_is_the_attempts_own(world: World, receiver: Receiver):
    secret = await secret_of(world)
    receiver.answers = [500, 503, 200]
    instance_id = await put_through(world, receiver.url, S.READY)

    await world.work_until(lambda: is_quiet(world))

    assert await rows(world, instance_id) == [("instance.ready", "DELIVERED", 3, None)]
    assert len({each.id for each in receiver.got}) == 1
    assert len({each.body for each in receiver.got}) == 1
    assert len(receiver.verify(secret)) == 3
    attempts = await world.rows("SELECT number, http_status, error_code FROM delivery_attempt ORDER BY number")
    assert [tuple(each) for each in attempts] == [(1, 500, "HTTP_500"), (2, 503, "HTTP_503"), (3, 200, None)]


async def test_a_receiver_that_was_down_for_an_hour_gets_everything_in_order(world: World, receiver: Receiver):
    receiver.always = 502
    instance_id = await put_through(world, receiver.url, S.HEALTH_CHECKING, S.READY)
    for _ in range(4):
        await world.hurry()
        await world.work_once()
    await world.execute("UPDATE delivery SET created_at = created_at - interval '1 hour', asked_at = created_at")
    await world.execute("UPDATE delivery SET next_attempt_at = next_attempt_at - interval '1 hour'")
    await go(world, instance_id, S.EXITED)
    assert {each.type for each in receiver.got} == {"instance.health_checking"}  # the others waited their turn

    receiver.always = 204
    receiver.got.clear()
    await world.work_until(lambda: is_quiet(world))

    assert receiver.types == ["instance.health_checking", "instance.ready", "instance.exited"]


async def test_queued_delivery_waits_as_long_as_the_first_of_its_queue(world: World, receiver: Receiver):
    receiver.always = 503
    receiver.headers = {"retry-after": "600"}
    await put_through(world, receiver.url, S.HEALTH_CHECKING, S.READY)

    await world.work_once()
    await world.hurry()
    await world.work_once()

    later = await world.rows("SELECT extract(epoch FROM run_at - now())::float8 AS seconds FROM job ORDER BY run_at")
    assert [500 < each["seconds"] < 610 for each in later] == [True, True]


async def test_retry_after_is_honoured_up_to_a_day(world: World, receiver: Receiver):
    receiver.always = 429
    for value, least, limit in (("1800", 1790, 1800), ("864000", 86000, 86400), ("nonsense", 4, 6)):
        receiver.headers = {"retry-after": value}
        instance_id = await put_through(world, receiver.url, S.READY)
        await world.work_once()
        pause = await world.value(
            "SELECT extract(epoch FROM next_attempt_at - now())::float8 FROM delivery WHERE instance_id = $1",
            instance_id,
        )
        assert least < round(pause, 2) <= limit, value  # two clocks, which differ by less than a millisecond
        await world.execute("DELETE FROM job")


async def test_refused_delivery_does_not_block_later_ones(world: World, receiver: Receiver):
    receiver.answers = [422]
    instance_id = await put_through(world, receiver.url, S.HEALTH_CHECKING, S.READY)

    async def second_arrived() -> bool:
        return (await rows(world, instance_id))[1][1] == "DELIVERED"

    for _ in range(3):
        await world.work_once()
        await world.execute(
            "UPDATE job SET run_at = now(), due_at = now() WHERE status = 'WAITING' AND run_at < now() + interval '1 s'"
        )

    assert await second_arrived()
    assert (await rows(world, instance_id))[0] == ("instance.health_checking", "PENDING", 1, "HTTP_422")


async def test_dead_receiver_delays_no_other_receiver(world: World, receiver: Receiver):
    """Twice as many deliveries to a hanging receiver as it has slots, and then one to another receiver."""
    await world.configure(webhook_timeout=timedelta(seconds=30))
    hanging: list[str] = []

    async def respond(request: web.Request) -> web.StreamResponse:
        if request.path != "/dead":
            return web.Response(status=204)
        hanging.append(request.path)
        return await hang(request)

    receiver.answers = [respond] * 400
    dead = receiver.url.replace("/hook", "/dead").replace("127.0.0.1", "localhost")
    for _ in range(2 * IN_FLIGHT_PER_RECEIVER_MAX):
        await put_through(world, dead, S.READY)
    worker = Worker(
        world.database,
        world.notifier,
        all_handlers(world.services_with(world.novita)),
        concurrency=64,
        shutdown_timeout=timedelta(0),
    )
    worker.start()
    try:
        await until(lambda: len(hanging) == IN_FLIGHT_PER_RECEIVER_MAX)
        well = await put_through(world, receiver.url, S.READY)

        async def arrived() -> bool:
            return (await rows(world, well))[0][1] == "DELIVERED"

        await until(arrived, within=30)
        assert len(hanging) == IN_FLIGHT_PER_RECEIVER_MAX
    finally:
        await worker.stop()


async def test_delivery_is_dead_after_about_a_day_with_every_attempt_recorded(world: World, receiver: Receiver):
    receiver.always = 500
    instance_id = await put_through(world, receiver.url, S.READY)

    await world.work_until(lambda: is_quiet(world))

    attempts = len(RETRY_DELAYS) + 1
    assert await rows(world, instance_id) == [("instance.ready", "FAILED", attempts, "HTTP_500")]
    assert len(receiver.got) == attempts
    assert await world.value("SELECT count(*) FROM delivery_attempt WHERE finished_at IS NOT NULL") == attempts
    assert timedelta(hours=20) < sum(RETRY_DELAYS, timedelta(0)) < timedelta(hours=28)
    assert await world.value("SELECT count(*) FROM job") == 0


async def test_delivery_queued_behind_a_dead_one_for_a_day_gets_one_attempt(world: World, receiver: Receiver):
    receiver.always = 500
    instance_id = await put_through(world, receiver.url, S.HEALTH_CHECKING, S.READY)
    await world.execute("UPDATE delivery SET asked_at = asked_at - $1::interval", RETRY_AGE_MAX)

    await world.work_until(lambda: is_quiet(world))

    assert [each[1:3] for each in await rows(world, instance_id)] == [("FAILED", 1), ("FAILED", 1)]


async def test_410_disables_the_webhook_and_fails_waiting_deliveries(world: World, receiver: Receiver):
    receiver.always = 410
    instance_id = await put_through(world, receiver.url, S.HEALTH_CHECKING, S.READY)

    await world.work_until(lambda: is_quiet(world))
    await go(world, instance_id, S.EXITED)

    assert await rows(world, instance_id) == [
        ("instance.health_checking", "FAILED", 1, "HTTP_410"),
        ("instance.ready", "FAILED", 0, "WEBHOOK_DISABLED"),
    ]
    assert len(receiver.got) == 1
    row = await world.instance(instance_id)
    assert row["webhook_disabled_at"] is not None
    assert "instance.changed" in await world.event_types(instance_id)


async def test_a_redirect_is_not_followed(world: World, receiver: Receiver):
    receiver.answers = [302]
    receiver.headers = {"location": receiver.url + "/elsewhere"}
    instance_id = await put_through(world, receiver.url, S.READY)

    await world.work_once()

    assert (await rows(world, instance_id))[0][1:] == ("PENDING", 1, "HTTP_302")
    assert len(receiver.got) == 1


@pytest.mark.parametrize(("answer", "code"), [("hang", "TIMEOUT"), ("closed", "NO_CONNECTION")])
async def test_missing_response_is_an_attempt_with_its_reason(world: World, receiver: Receiver, answer: str, code: str):
    await world.configure(webhook_timeout=timedelta(milliseconds=200))
    receiver.answers = [hang]
    url = receiver.url if answer == "hang" else "http://127.0.0.1:1/"
    instance_id = await put_through(world, url, S.READY)

    await world.work_once()

    assert (await rows(world, instance_id))[0] == ("instance.ready", "PENDING", 1, code)


async def test_both_secrets_sign_during_the_overlap_and_only_the_new_one_after_it(world: World, receiver: Receiver):
    old = await secret_of(world)
    new = await secret_of(world, overlap=timedelta(hours=1))
    await put_through(world, receiver.url, S.READY)
    await world.work_until(lambda: is_quiet(world))

    assert len(receiver.verify(old)) == len(receiver.verify(new)) == 1
    assert receiver.got[0].headers["webhook-signature"].count("v1,") == 2

    await world.execute("UPDATE webhook_secret SET retires_at = now() - interval '1 s' WHERE retires_at IS NOT NULL")
    receiver.got.clear()
    await put_through(world, receiver.url, S.READY)
    await world.work_until(lambda: is_quiet(world))
    assert len(receiver.verify(new)) == 1
    with pytest.raises(Exception, match="No matching signature"):
        receiver.verify(old)


async def test_no_secret_and_no_key_is_in_any_table(world: World, receiver: Receiver):
    secret = await secret_of(world)
    await put_through(world, receiver.url, S.READY)
    await world.work_until(lambda: is_quiet(world))

    key = world.sender.key
    assert key is not None
    raw = secret.removeprefix("whsec_")
    names = await world.rows(
        "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace"
    )
    for name in names:
        text = str(await world.rows(f'SELECT t::text FROM "{name[0]}" AS t'))
        assert raw not in text
        assert key.raw.decode() not in text
        assert key.raw.hex() not in text


async def test_without_the_key_nothing_is_sent_and_the_delivery_says_why(world: World, receiver: Receiver):
    instance_id = await put_through(world, receiver.url, S.READY)
    key, world.sender.key = world.sender.key, None

    await world.work_once()

    assert await rows(world, instance_id) == [("instance.ready", "PENDING", 0, "SIGNING_KEY_MISSING")]
    assert receiver.got == []

    world.sender.key = key
    await world.work_until(lambda: is_quiet(world))
    assert (await rows(world, instance_id))[0][1:] == ("DELIVERED", 1, None)


async def test_redelivery_sends_the_same_message_again(world: World, receiver: Receiver):
    instance_id = await put_through(world, receiver.url, S.READY)
    await world.work_until(lambda: is_quiet(world))
    delivery_id = await world.value("SELECT id FROM delivery WHERE instance_id = $1", instance_id)

    async with world.database.write() as session:
        await deliveries.redeliver(session, delivery_id, project_id=world.caller.project_id)
    await world.work_until(lambda: is_quiet(world))

    assert len(receiver.got) == 2
    assert receiver.got[0].id == receiver.got[1].id
    assert receiver.got[0].body == receiver.got[1].body
    assert await rows(world, instance_id) == [("instance.ready", "DELIVERED", 2, None)]


async def test_redelivery_sends_a_waiting_queue_at_once(world: World, receiver: Receiver):
    receiver.answers = [503]
    receiver.headers = {"retry-after": "3600"}
    instance_id = await put_through(world, receiver.url, S.HEALTH_CHECKING, S.READY)

    async def all_wait_for_long() -> bool:
        await world.work_once()
        return not await world.value("SELECT count(*) FROM job WHERE run_at < now() + interval '10 minutes'")

    async def all_arrived() -> bool:
        await world.work_once()  # only redelivery makes the jobs due now
        return await is_quiet(world)

    await until(all_wait_for_long)
    last = await world.value("SELECT id FROM delivery WHERE instance_id = $1 ORDER BY seq DESC LIMIT 1", instance_id)

    async with world.database.write() as session:
        delivery = await deliveries.redeliver(session, last, project_id=world.caller.project_id)

    assert (delivery.status, delivery.attempts, delivery.next_attempt_at) == (DeliveryStatus.PENDING, 0, None)
    await until(all_arrived)
    assert receiver.types == ["instance.health_checking", "instance.health_checking", "instance.ready"]
    assert [each[1] for each in await rows(world, instance_id)] == ["DELIVERED", "DELIVERED"]


async def redeliver_last(world: World, session: AsyncSession, ids: Sequence[UUID]) -> None:
    await deliveries.redeliver(session, ids[-1], project_id=world.caller.project_id)


async def give_up_but_first(_: World, session: AsyncSession, ids: Sequence[UUID]) -> None:
    first = await session.get_one(Delivery, ids[0])
    await deliveries.give_up_others(session, first)
    await deliveries.give_up(session, first.id, "HTTP_410")


@pytest.mark.parametrize("change", [redeliver_last, give_up_but_first])
async def test_deliveries_are_locked_from_the_first_to_the_last(
    world: World,
    receiver: Receiver,
    change: Callable[[World, AsyncSession, Sequence[UUID]], Awaitable[None]],
):
    """Two changes that lock in different orders would wait for each other."""
    instance_id = await put_through(world, receiver.url, S.HEALTH_CHECKING, S.READY)
    in_order = "SELECT id FROM delivery WHERE instance_id = $1 ORDER BY seq"
    ids = [row["id"] for row in await world.rows(in_order, instance_id)]
    lock = "SELECT FROM delivery WHERE id = '{}' FOR NO KEY UPDATE NOWAIT"

    async def change_all() -> None:
        async with world.database.write() as session:
            await change(world, session, ids)

    async with world.database.write() as session:
        await session.execute(text(lock.format(ids[0])))
        changing = asyncio.create_task(change_all())
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        await until(lambda: world.value(waiting))
        await session.execute(text(lock.format(ids[1])))  # the change holds none while it waits for the first
    await changing


async def test_another_projects_delivery_cannot_be_sent_again(world: World, receiver: Receiver):
    instance_id = await put_through(world, receiver.url, S.READY)
    await world.work_until(lambda: is_quiet(world))
    delivery_id = await world.value("SELECT id FROM delivery WHERE instance_id = $1", instance_id)
    other = await world.new_project("other")

    async with world.database.write() as session:
        with pytest.raises(NotFound):
            await deliveries.redeliver(session, delivery_id, project_id=other)


async def test_a_test_message_is_tried_once(world: World, receiver: Receiver):
    receiver.always = 500
    async with world.database.write() as session:
        delivery = await deliveries.insert_test_delivery(session, world.caller.project_id, receiver.url)

    await world.work_until(lambda: is_quiet(world))

    row = await world.one("SELECT status, attempts FROM delivery WHERE id = $1", delivery.id)
    assert tuple(row) == (DeliveryStatus.FAILED, 1)
    assert receiver.types == ["webhook.test"]


async def test_a_message_has_at_most_64_kib(world: World, receiver: Receiver):
    labels = {f"{number:0>60}": "\U0001f525" * 255 for number in range(64)}
    await put_through(world, receiver.url, S.READY, labels=labels)
    await world.work_until(lambda: is_quiet(world))

    (got,) = receiver.got
    assert len(got.body) <= BODY_MAX
    data = orjson.loads(got.body)["data"]
    assert (data["truncated"], data["instance"]["labels"], data["instance"]["status"]) == (True, None, "READY")


async def test_old_finished_deliveries_are_deleted_with_their_attempts(world: World, receiver: Receiver):
    await put_through(world, receiver.url, S.READY)
    await world.work_until(lambda: is_quiet(world))
    async with world.database.write() as session:
        assert await deliveries.delete_old(session, older_than=timedelta(days=1), limit=10) == 0
    await world.execute("UPDATE delivery SET finished_at = $1", now() - timedelta(days=2))

    async with world.database.write() as session:
        assert await deliveries.delete_old(session, older_than=timedelta(days=1), limit=10) == 1

    assert await world.value("SELECT count(*) FROM delivery_attempt") == 0


async def test_no_stored_or_published_data_contains_the_webhook_url(world: World, receiver: Receiver):
    instance_id = await put_through(world, receiver.url, S.READY)
    events = await world.events(instance_id)
    assert receiver.url not in str([each.data for each in events])


async def test_queued_delivery_finds_the_first_of_its_queue_by_an_index(world: World, receiver: Receiver):
    """Finished deliveries are kept for weeks; the query must not scan them."""
    instance_id = await put_through(world, receiver.url, S.READY)
    await world.execute(
        "INSERT INTO delivery (id, project_id, instance_id, event_type, url, body, status, keeps_order, finished_at)"
        " SELECT gen_random_uuid(), project_id, instance_id, 'instance.ready', url, '{}', 'DELIVERED', true, now()"
        " FROM delivery, generate_series(1, 5000)"
    )
    await world.execute("ANALYZE delivery")

    last = Delivery(instance_id=instance_id, seq=10**6)
    query = deliveries.select_predecessor(last).compile(
        dialect=postgresql.dialect(), compile_kwargs={"literal_binds": True}
    )
    plan = "\n".join(row[0] for row in await world.rows(f"EXPLAIN {query}"))

    assert "delivery_waiting_by_instance" in plan, plan
