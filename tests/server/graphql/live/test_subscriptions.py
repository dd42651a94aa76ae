"""Subscription fields: filters, statistics, and pages of the log that fit the live events."""

import asyncio
import time
from typing import Any
from uuid import UUID

import pytest

from schema import ids
from schema.event_sources import READS_AT_ONCE, READS_PER_SECOND
from server.clock import new_id
from server.enums import InstanceStatus, Role
from server.events.event import Cursor
from server.queue.kinds import CleanUp
from tests.server.auth.test_tokens import counted
from tests.server.graphql.conftest import EVENTS, picture, shown, write_events
from tests.support.api import Api
from tests.support.api_server import until_tailed
from tests.support.statements import listening
from tests.support.waiting import until

FLEET = "subscription { fleetStats { cursor total byStatus { status count } pricePerHour { amountMicros } } }"
FILTERED = "subscription ($filter: InstanceFilter) { fleetStats(filter: $filter) { total } }"
JOBS = "subscription { jobStats { cursor workers kinds { kind waiting } } }"
PAGE = """
    query ($after: String, $filter: InstanceEventFilter, $first: Int! = 50) {
      events(after: $after, filter: $filter, first: $first) {
        nodes { id cursor } edges { cursor } pageInfo { hasNextPage endCursor }
      }
    }
"""


async def test_events_are_filtered_by_labels(api: Api):
    row = await api.world.put(labels={"team": "vision", "tier": "a"})
    data = {"instance": await picture(api, row.id)}
    start = api.server.head_cursor()
    await write_events(api.world.database, api.caller.project_id, data={"instance": {**data["instance"], "labels": {}}})
    (wanted,) = await write_events(api.world.database, api.caller.project_id, data=data)
    await write_events(api.world.database, api.caller.project_id)
    given = {"after": start, "filter": {"labels": [{"key": "team", "value": "vision"}]}}
    async with api.server.watching(EVENTS, token=api.token, variables=given) as socket:
        assert (await socket.next("instanceEvents"))["id"] == shown([wanted])[0]
        assert await socket.is_silent()
    page = (await api.ask(PAGE, **given)).data["events"]
    assert [node["id"] for node in page["nodes"]] == shown([wanted])


async def test_a_filter_has_so_much_of_everything_and_no_more(api: Api):
    for filter in ({"types": ["x"] * 101}, {"ids": ["inst_" + "0" * 32] * 101}, {"types": ["a\x00b"]}):
        async with api.server.watching(EVENTS, token=api.token, variables={"filter": filter}) as socket:
            assert (await socket.error())["code"] == "INVALID_FILTER"


async def test_pages_and_live_events_are_one_log(api: Api):
    start = api.server.head_cursor()
    instance_id = new_id()
    written = await write_events(api.world.database, api.caller.project_id, 7, instance_id=instance_id)
    await write_events(api.world.database, await api.world.new_project("other"), 2)
    await until_in_log(api, written[-1])
    seen: list[dict[str, Any]] = []
    after, sizes = start, []
    while True:
        page = (await api.ask(PAGE, after=after, first=3)).data["events"]
        seen += page["nodes"]
        sizes.append(len(page["nodes"]))
        assert [edge["cursor"] for edge in page["edges"]] == [node["cursor"] for node in page["nodes"]]
        after = page["pageInfo"]["endCursor"]
        if not page["pageInfo"]["hasNextPage"]:
            break
    assert sizes == [3, 3, 1]
    assert [node["id"] for node in seen] == shown(written)
    (later,) = await write_events(api.world.database, api.caller.project_id)
    async with api.server.watching(EVENTS, token=api.token, variables={"after": after}) as socket:
        assert (await socket.next("instanceEvents"))["id"] == shown([later])[0]
        assert await socket.is_silent()
    mine = (await api.ask(PAGE, after=start, filter={"ids": [f"inst_{instance_id.hex}"]})).data["events"]
    assert [node["id"] for node in mine["nodes"]] == shown(written)


async def test_an_expired_early_or_foreign_cursor_is_refused_by_pages_too(api: Api):
    head, cursors = api.server.runtime.tail.head(), api.server.runtime.cursors
    for after, code in (
        (cursors.of_event(Cursor(head.epoch + 1, 0)), "CURSOR_EXPIRED"),
        (cursors.of_state(Cursor(head.epoch, head.position + 1000)), "RESUME"),
        ("nonsense", "INVALID_CURSOR"),
    ):
        assert (await api.ask(PAGE, after=after)).error["code"] == code
    assert (await api.ask(PAGE, first=101)).error["code"] == "INVALID_PAGE_SIZE"


async def test_events_that_are_no_longer_kept_make_a_cursor_expire(api: Api):
    """As retention would, the oldest events are taken away from under an old cursor."""
    start = api.server.head_cursor()
    written = await write_events(api.world.database, api.caller.project_id, 3)
    await until_in_log(api, written[-1])
    await api.world.execute("DELETE FROM event")
    assert (await api.ask(PAGE, after=start)).error["code"] == "CURSOR_EXPIRED"


async def test_the_fleets_numbers_come_first_as_they_are_and_then_when_they_change(api: Api):
    await api.world.put(InstanceStatus.READY, price_per_hour_e5=35_000)
    await api.world.put(InstanceStatus.EXITED, price_per_hour_e5=99_000)
    await api.world.put(InstanceStatus.DELETED)
    async with api.server.watching(FLEET, token=api.token) as socket:
        first = await socket.next("fleetStats")
        assert first["total"] == 2
        assert first["byStatus"] == [{"status": "EXITED", "count": 1}, {"status": "READY", "count": 1}]
        assert first["pricePerHour"] == {"amountMicros": 350_000}
        began = time.monotonic()
        for _ in range(3):
            await api.world.put(InstanceStatus.READY)
        # However many changes: one message a second at most, and the last word is right.
        messages = 0
        while (stats := await socket.next("fleetStats"))["total"] != 5:
            messages += 1
        assert messages <= time.monotonic() - began + 1
        assert stats["byStatus"][-1] == {"status": "READY", "count": 4}
        async with api.server.watching(FLEET, token=api.token) as late:
            assert (await late.next("fleetStats"))["total"] == 5  # who comes late need not wait for a change


async def test_nothing_is_sent_while_nothing_changes(api: Api):
    async with api.server.watching(FLEET, token=api.token) as socket:
        await socket.next("fleetStats")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.5):
                await socket.receive()


async def test_what_the_subscriptions_of_a_project_read_has_a_pace_and_delays_no_other_project(api: Api):
    """A token may have thousands of subscriptions, each of which would read once a second."""
    other, _ = await api.world.new_token("other")
    async with api.server.socket(api.token) as socket:
        assert (await socket.receive())["type"] == "connection_ack"
        began = time.monotonic()
        with counted(api.server.runtime.database) as statements:
            for number in range(400):
                variables = {"filter": {"ids": [f"inst_{number:032x}"]}}
                payload = {"query": FILTERED, "variables": variables}
                await socket.send({"id": str(number), "type": "subscribe", "payload": payload})
            for _ in range(READS_AT_ONCE + READS_PER_SECOND):
                assert (await socket.next("fleetStats"))["total"] == 0
            mine = sum("GROUP BY instance.status" in each for each in statements)
            assert mine <= READS_AT_ONCE + READS_PER_SECOND * (time.monotonic() - began) + 1
            async with api.server.watching(FLEET, token=other) as theirs:
                assert (await theirs.next("fleetStats"))["total"] == 0  # does not wait behind the 340 that still do


async def test_the_queues_numbers_are_of_the_project_or_for_an_admin_of_all(api: Api):
    admin, _ = await api.world.new_token(role=Role.ADMIN)
    async with (
        api.server.watching(JOBS, token=api.token) as mine,
        api.server.watching(JOBS, token=admin) as everything,
    ):
        for socket in (mine, everything):
            first = await socket.next("jobStats")
            assert (first["workers"], first["kinds"]) == (0, [])
            assert api.server.runtime.cursors.parse(first["cursor"]).epoch == api.server.runtime.tail.head().epoch
        await api.world.enqueue(CleanUp())  # of no project
        stats = await everything.next("jobStats")
        assert [kind["waiting"] for kind in stats["kinds"]] == [1]
        assert await mine.is_silent()


async def until_in_log(api: Api, event_id: UUID) -> None:
    async def is_there() -> bool:
        return (await api.world.one("SELECT count(*) AS found FROM event WHERE id = $1", event_id))["found"] == 1

    await until(is_there)


SNAPSHOTS = """
    subscription ($after: String) { instanceEvents(after: $after) {
      type instanceSnapshot { instanceId name status version } operationSnapshot { operationId kind status version }
    } }
"""
BOTH = """
    query ($ids: [ID!]) { events(filter: {ids: $ids}, first: 100) { nodes {
      type operationId
      instanceSnapshot { instanceId status version } instance { id status version }
      operationSnapshot { operationId status version } operation { id status version }
    } } }
"""


async def test_events_show_the_past_in_snapshots_and_the_present_by_id(api: Api):
    made = await api.create()
    instance_id = ids.parse(ids.INSTANCE, made["instance"]["id"])
    await api.world.work_until_status(instance_id, InstanceStatus.READY)
    await until(lambda: _is_sequenced(api))

    with listening(api.server) as statements:
        nodes = (await api.ask(BOTH, ids=[made["instance"]["id"]])).data["events"]["nodes"]

    past = [each["instanceSnapshot"] for each in nodes if each["instanceSnapshot"]]
    assert [each["version"] for each in past] == list(range(1, len(past) + 1))
    assert [past[0]["status"], past[-1]["status"]] == ["CREATING", "READY"]
    assert {each["instanceId"] for each in past} == {made["instance"]["id"]}
    now = {"id": made["instance"]["id"], "status": "READY", "version": past[-1]["version"]}
    assert [each["instance"] for each in nodes] == [now] * len(nodes)
    progress = [each["operationSnapshot"] for each in nodes if each["operationSnapshot"]]
    assert [progress[0]["status"], progress[-1]["status"]] == ["QUEUED", "SUCCEEDED"]
    done = {"id": made["operation"]["id"], "status": "SUCCEEDED", "version": progress[-1]["version"]}
    assert [each["operation"] for each in nodes] == [done if each["operationId"] else None for each in nodes]
    # One statement for all instances of the page, and one for all operations.
    assert sum("FROM instance" in text for text, _ in statements) == 1
    assert sum("FROM operation" in text for text, _ in statements) == 1


async def test_events_of_pruned_rows_keep_their_snapshots(api: Api):
    row = await api.world.put(InstanceStatus.EXITED)
    data = {"instance": await picture(api, row.id)}
    await write_events(api.world.database, api.caller.project_id, data=data, instance_id=row.id)
    await until(lambda: _is_sequenced(api))
    await api.world.execute("UPDATE event SET operation_id = gen_random_uuid() WHERE instance_id = $1", row.id)
    await api.world.execute("DELETE FROM instance WHERE id = $1", row.id)

    (event,) = (await api.ask(BOTH, ids=[f"inst_{row.id.hex}"])).data["events"]["nodes"]

    assert event["instanceSnapshot"] == {"instanceId": f"inst_{row.id.hex}", "status": "EXITED", "version": row.version}
    assert (event["instance"], event["operation"]) == (None, None)


async def test_snapshots_of_live_events_cost_no_query(api: Api):
    start = api.server.head_cursor()
    made = await api.create()
    await until(lambda: _is_sequenced(api))
    head = await api.world.value("SELECT head FROM event_log")
    await until_tailed(api.server, head)
    with listening(api.server) as statements:
        async with api.server.watching(SNAPSHOTS, token=api.token, variables={"after": start}) as socket:
            seen = [await socket.next("instanceEvents") for _ in range(2)]

    assert {each["type"] for each in seen} == {"instance.created", "operation.started"}
    (created,) = [each["instanceSnapshot"] for each in seen if each["type"] == "instance.created"]
    assert (created["instanceId"], created["version"]) == (made["instance"]["id"], 1)
    assert [text for text, _ in statements if "instance" in text or "operation" in text] == []


async def _is_sequenced(api: Api) -> bool:
    return not await api.world.value("SELECT count(*) FROM outbox")
