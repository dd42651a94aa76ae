"""onNoCapacity, Operation.wait and updateWait in the API."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from schema.ids import INSTANCE, format_id
from server.enums import InstanceStatus
from server.market import tape
from server.market.regions import record_regions
from server.market.segments import Segment
from tests.support.api import Api

REGION, CLUSTER, NAME = "AS-SGP-02", "as-sgp-2", "RTX 4090 24GB"
SPOT = Segment(REGION, "spot", 1, CLUSTER)
CREATE = """mutation ($input: CreateInstanceInput!) { createInstance(input: $input) {
    operation { id } errors { code path ... on QueuedBehind { ahead } } } }"""
WAIT = """query ($id: ID!) { operation(id: $id) { phase instance { status statusReason stale } wait {
    since until priority position ahead tries blockedBy lastPolledAt
    offers { region billingMode pricePerHour { amountMicros } lastAvailableAt } } } }"""
UPDATE = """mutation ($input: UpdateWaitInput!) { updateWait(input: $input) {
    operation { wait { until priority position } } errors { code path } } }"""


@pytest.fixture
async def empty(api: Api) -> AsyncIterator[Api]:
    """Nothing of the one product is free, and the tape knows it; its simulator serves other tests, too."""
    await set_stock(api, 0)
    api.world.catalog = api.world.new_catalog()
    yield api
    api.world.simulator.world.set_stock("26", CLUSTER, 16)


async def set_stock(api: Api, free: int) -> None:
    world = api.world
    world.simulator.world.set_stock("26", CLUSTER, free)
    products = await world.novita.products(cluster_id=CLUSTER, billing="spot", gpu_count=1)
    async with world.database.write() as session:
        at = await world.value("SELECT clock_timestamp()")
        await record_regions(session, await world.novita.clusters(), at=at)
        await tape.record_poll(session, SPOT, products, at=at)
    # The API reads the tape again when a notification tells it to, which may be later than the next request.
    await api.server.runtime.catalog.forget_products()


async def create(api: Api, name: str, *, token: str | None = None, **fields: Any) -> dict[str, Any]:
    request = {"name": name, "productName": NAME, "image": "nginx", "regions": [REGION], "billing": "SPOT"}
    return (await api.ask(CREATE, token=token, input={**request, **fields})).data["createInstance"]


async def waiting(api: Api, name: str, *, token: str | None = None, **fields: Any) -> str:
    """The id of an operation that waits."""
    accepted = await create(api, name, token=token, onNoCapacity={"wait": {"for": 3600}, **fields})
    assert accepted["errors"] == []
    while await api.world.work_once():
        pass
    return accepted["operation"]["id"]


async def test_waiting_operation_shows_its_place_and_what_it_waits_for(empty: Api):
    first = await waiting(empty, "first")
    second = await waiting(empty, "second", priority=90)

    found = (await empty.ask(WAIT, id=first)).data["operation"]
    assert (found["phase"], found["instance"]) == (
        "PLACING",
        {"status": "CREATING", "statusReason": "WAITING_FOR_CAPACITY", "stale": False},
    )
    wait = found["wait"]
    assert (wait["priority"], wait["position"], wait["ahead"], wait["tries"], wait["blockedBy"]) == (
        50,
        2,
        1,
        0,
        "CAPACITY",
    )
    assert wait["lastPolledAt"] is not None
    offers = [{**each, "lastAvailableAt": None} for each in wait["offers"]]
    assert offers == [
        {
            "region": REGION,
            "billingMode": "SPOT",
            "pricePerHour": {"amountMicros": 195_000},
            "lastAvailableAt": None,
        }
    ]
    assert (await empty.ask(WAIT, id=second)).data["operation"]["wait"]["position"] == 1


async def test_places_count_only_operations_of_the_callers_project(empty: Api):
    await waiting(empty, "mine")
    token, _ = await empty.world.new_token("other")
    theirs = await waiting(empty, "theirs", token=token)

    assert (await empty.ask(WAIT, id=theirs, token=token)).data["operation"]["wait"]["position"] == 1
    assert (await empty.ask(WAIT, id=theirs)).data["operation"] is None


async def test_wait_is_changed_and_bad_changes_are_refused(empty: Api):
    id = await waiting(empty, "one")
    await waiting(empty, "two", priority=60)

    changed = (await empty.ask(UPDATE, input={"operationId": id, "priority": 70})).data["updateWait"]
    assert changed["errors"] == []
    assert (changed["operation"]["wait"]["priority"], changed["operation"]["wait"]["position"]) == (70, 1)
    before = await empty.world.value("SELECT max(until) FROM capacity_wait WHERE priority = 70")
    await empty.ask(UPDATE, input={"operationId": id, "wait": {"for": 7200}})
    after = await empty.world.value("SELECT max(until) FROM capacity_wait WHERE priority = 70")
    assert timedelta(minutes=59) < after - before < timedelta(minutes=61)
    at = await empty.world.value("SELECT run_at FROM job WHERE kind = 'EXPIRE_WAIT' ORDER BY run_at DESC LIMIT 1")
    assert at == after

    for fields, code, path in (
        ({}, "INVALID_WAIT", ["input"]),
        ({"wait": {"for": 1}}, "INVALID_WAIT", ["input", "wait"]),
        ({"priority": 101}, "INVALID_PRIORITY", ["input", "priority"]),
    ):
        refused = (await empty.ask(UPDATE, input={"operationId": id, **fields})).data["updateWait"]
        assert refused == {"operation": None, "errors": [{"code": code, "path": path}]}
    assert await empty.world.value("SELECT count(*) FROM capacity_wait WHERE until = $1", after) == 1


START = """mutation ($input: StartInstanceInput!) { startInstance(input: $input) {
    operation { id } errors { code path } } }"""
STOP = "mutation ($id: ID!) { stopInstance(input: {id: $id}) { errors { code } } }"
CANCEL = "mutation ($id: ID!) { cancelOperation(input: {id: $id}) { operation { status } errors { code } } }"


async def test_start_waits_until_it_is_cancelled(empty: Api):
    await set_stock(empty, 1)
    empty.world.catalog = empty.world.new_catalog()
    await create(empty, "stopped")
    instance_id = await empty.world.value("SELECT id FROM instance WHERE name = 'stopped'")
    await empty.world.work_until_status(instance_id, InstanceStatus.READY)
    id = format_id(INSTANCE, instance_id)
    assert (await empty.ask(STOP, id=id)).data["stopInstance"]["errors"] == []
    await empty.world.work_until_status(instance_id, InstanceStatus.EXITED)
    await set_stock(empty, 0)

    for wait, code, path in (
        ({"wait": {"for": 59}}, "INVALID_WAIT", ["input", "onNoCapacity", "wait"]),
        ({"wait": {"for": 60}, "priority": -1}, "INVALID_PRIORITY", ["input", "onNoCapacity", "priority"]),
    ):
        refused = (await empty.ask(START, input={"id": id, "onNoCapacity": wait})).data["startInstance"]
        assert refused == {"operation": None, "errors": [{"code": code, "path": path}]}
    started = (await empty.ask(START, input={"id": id, "onNoCapacity": {"wait": {"for": 3600}}})).data["startInstance"]
    assert started["errors"] == []
    operation = started["operation"]["id"]
    while await empty.world.work_once():
        pass

    found = (await empty.ask(WAIT, id=operation)).data["operation"]
    assert (found["phase"], found["wait"]["position"], found["wait"]["blockedBy"]) == ("STARTING", 1, "CAPACITY")
    shown = {"status": "STARTING", "statusReason": "WAITING_FOR_CAPACITY", "stale": False}
    assert found["instance"] == shown
    changed = (await empty.ask(UPDATE, input={"operationId": operation, "priority": 9})).data["updateWait"]
    assert changed["operation"]["wait"]["priority"] == 9
    cancelled = (await empty.ask(CANCEL, id=operation)).data["cancelOperation"]
    assert cancelled == {"operation": {"status": "CANCELLED"}, "errors": []}
    found = (await empty.ask(WAIT, id=operation)).data["operation"]
    assert (found["wait"], found["instance"]["status"]) == (None, "EXITED")
    refused = (await empty.ask(UPDATE, input={"operationId": operation, "priority": 1})).data["updateWait"]
    assert refused["errors"] == [{"code": "INVALID_WAIT", "path": ["input", "operationId"]}]


async def test_metrics_say_how_many_wait_and_since_when(empty: Api):
    async def gauges() -> tuple[float, float]:
        url = f"http://{empty.server.address}/metrics"
        headers = {"authorization": f"Bearer {empty.token}"}
        async with empty.server.http.get(url, headers=headers) as response:
            body = await response.text()
        families = {each.name: each.samples[0].value for each in text_string_to_metric_families(body) if each.samples}
        return families["pilotlight_waits"], families["pilotlight_wait_oldest_seconds"]

    assert await gauges() == (0, 0)
    await waiting(empty, "first")
    await waiting(empty, "second")
    await empty.world.execute("UPDATE capacity_wait SET since = since - interval '1 hour' WHERE priority = 50")
    many, oldest = await gauges()
    assert (many, 3600 <= oldest < 3700) == (2, True)


async def test_wait_of_another_project_is_not_changed(empty: Api):
    id = await waiting(empty, "mine")
    token, _ = await empty.world.new_token("other")

    refused = (await empty.ask(UPDATE, token=token, input={"operationId": id, "priority": 1})).data["updateWait"]

    assert [each["code"] for each in refused["errors"]] == ["OPERATION_NOT_FOUND"]
    assert await empty.world.value("SELECT priority FROM capacity_wait") == 50


async def test_operation_that_may_not_wait_has_no_wait_to_change(api: Api):
    accepted = await create(api, "plain", regions=None)

    refused = (await api.ask(UPDATE, input={"operationId": accepted["operation"]["id"], "priority": 1})).data
    assert refused["updateWait"]["errors"] == [{"code": "INVALID_WAIT", "path": ["input", "operationId"]}]
    assert (await api.ask(WAIT, id=accepted["operation"]["id"])).data["operation"]["wait"] is None


async def test_request_behind_older_ones_is_refused_with_their_number(empty: Api):
    await waiting(empty, "first")
    await waiting(empty, "second")
    await set_stock(empty, 1)
    empty.world.catalog = empty.world.new_catalog()

    refused = await create(empty, "third")

    assert refused["errors"] == [{"code": "QUEUED_BEHIND", "path": ["input", "onNoCapacity"], "ahead": 2}]
    assert await empty.world.value("SELECT count(*) FROM instance WHERE name = 'third'") == 0


async def test_same_key_returns_the_same_wait(empty: Api):
    """`for` counts from the first request; the fingerprint has what was given."""
    wait = {"wait": {"for": 3600}, "priority": 70}
    first = await create(empty, "keyed", onNoCapacity=wait, idempotencyKey="key-of-a-wait")
    second = await create(empty, "keyed", onNoCapacity=wait, idempotencyKey="key-of-a-wait")
    other = await create(empty, "keyed", onNoCapacity={**wait, "priority": 71}, idempotencyKey="key-of-a-wait")

    assert (first["operation"], first["errors"]) == (second["operation"], [])
    assert [error["code"] for error in other["errors"]] == ["IDEMPOTENCY_KEY_REUSED"]
