"""Subscriptions over WebSocket: authentication, initial state and changes, and resuming without gaps."""

from typing import Any
from uuid import UUID

import pytest
from gql import Client, gql
from gql.transport.websockets import WebsocketsTransport
from websockets.exceptions import InvalidStatus

from server.enums import InstanceStatus
from server.events.event import Cursor
from tests.support.api import Api
from tests.support.waiting import until

ORDER = ["CREATING", "STARTING", "RUNNING", "HEALTH_CHECKING", "READY"]
EVENTS = """
    subscription ($after: String, $filter: InstanceEventFilter) {
      instanceEvents(after: $after, filter: $filter) {
        id cursor type instanceId previousStatus status instanceSnapshot { version } operation { id }
      }
    }
"""
UPDATES = "subscription ($id: ID!) { instanceUpdated(id: $id) { cursor instance { id status version } } }"


async def test_a_client_watches_an_instance_become_ready(api: Api):
    transport = WebsocketsTransport(
        url=f"ws://{api.server.address}/graphql",
        init_payload={"Authorization": f"Bearer {api.token}"},
        subprotocols=[WebsocketsTransport.GRAPHQLWS_SUBPROTOCOL],
    )
    created = (await api.create(ports=[{"port": 80}]))["instance"]
    document = gql("subscription ($id: ID!) { instanceUpdated(id: $id) { instance { status version } } }")
    document.variable_values = {"id": created["id"]}
    seen: list[dict[str, Any]] = []
    async with Client(transport=transport) as session:
        async for update in session.subscribe(document):
            seen.append(update["instanceUpdated"]["instance"])
            if len(seen) == 1:
                await api.world.work_until_status(_row_id(created["id"]), InstanceStatus.READY)
            if seen[-1]["status"] == "READY":
                break

    statuses = [each["status"] for each in seen]
    assert list(dict.fromkeys(statuses)) == ORDER
    assert [each["version"] for each in seen] == list(range(1, len(seen) + 1))


async def test_watching_an_instance_ends_when_it_is_deleted(api: Api):
    created = (await api.create())["instance"]
    async with api.server.watching(UPDATES, token=api.token, variables={"id": created["id"]}) as socket:
        assert (await socket.next("instanceUpdated"))["instance"]["status"] == "CREATING"
        await api.delete(created["id"])
        await api.world.work_until_status(_row_id(created["id"]), InstanceStatus.DELETED)
        statuses: list[str] = []
        while (message := await socket.receive())["type"] == "next":
            statuses.append(message["payload"]["data"]["instanceUpdated"]["instance"]["status"])
        assert (message["type"], statuses[-1]) == ("complete", "DELETED")

    async with api.server.watching(UPDATES, token=api.token, variables={"id": created["id"]}) as socket:
        assert (await socket.next("instanceUpdated"))["instance"]["status"] == "DELETED"
        assert (await socket.receive())["type"] == "complete"


async def test_the_token_may_come_in_a_header_or_with_the_first_message(api: Api):
    for by_header in (True, False):
        async with api.server.socket(api.token, by_header=by_header) as socket:
            assert (await socket.receive())["type"] == "connection_ack"


@pytest.mark.parametrize("token", [None, "pl_wrong"])
@pytest.mark.parametrize("by_header", [True, False])
async def test_without_a_good_token_a_socket_is_closed_as_forbidden(api: Api, token: str | None, by_header: bool):
    async with api.server.socket(token, by_header=by_header) as socket:
        assert await socket.close_code() == 4403


async def test_a_page_of_another_origin_gets_no_socket(api: Api):
    with pytest.raises(InvalidStatus) as refused:
        async with api.server.socket(api.token, origin="https://evil.example"):
            pass
    assert refused.value.response.status_code == 403


async def test_a_page_of_our_own_origin_gets_one(api: Api):
    async with api.server.socket(api.token, origin=f"http://{api.server.address}") as socket:
        assert (await socket.receive())["type"] == "connection_ack"


async def test_a_late_subscriber_gets_the_current_state_first(api: Api):
    created = (await api.create())["instance"]
    await api.world.work_until_status(_row_id(created["id"]), InstanceStatus.READY)
    version = (await api.world.instance(_row_id(created["id"])))["version"]

    async with api.server.watching(UPDATES, token=api.token, variables={"id": created["id"]}) as socket:
        first = await socket.next("instanceUpdated")
        assert first["instance"] == {"id": created["id"], "status": "READY", "version": version}
        await api.delete(created["id"])
        second = await socket.next("instanceUpdated")
        assert second["instance"] == {"id": created["id"], "status": "DELETING", "version": version + 1}


async def test_an_operation_is_followed_to_its_end_and_then_the_subscription_ends(api: Api):
    payload = await api.create(ports=[{"port": 80}])
    document = "subscription ($id: ID!) { operationUpdated(id: $id) { operation { status phase version } } }"
    variables = {"id": payload["operation"]["id"]}
    async with api.server.watching(document, token=api.token, variables=variables) as socket:
        seen = [(await socket.next("operationUpdated"))["operation"]]
        await api.world.work_until_status(_row_id(payload["instance"]["id"]), InstanceStatus.READY)
        while seen[-1]["status"] in ("QUEUED", "RUNNING"):
            seen.append((await socket.next("operationUpdated"))["operation"])
        assert (await socket.receive())["type"] == "complete"

    assert [(each["status"], each["phase"]) for each in seen] == [
        ("QUEUED", "WAITING"),
        ("RUNNING", "PLACING"),
        ("RUNNING", "PROVISIONING"),
        ("RUNNING", "CHECKING_HEALTH"),
        ("SUCCEEDED", "OVER"),
    ]
    assert [each["version"] for each in seen] == [1, 2, 3, 4, 5]


async def test_an_operation_that_has_ended_is_sent_once(api: Api):
    payload = await api.create()
    await api.world.work_until_status(_row_id(payload["instance"]["id"]), InstanceStatus.READY)
    document = "subscription ($id: ID!) { operationUpdated(id: $id) { operation { status } } }"
    async with api.server.watching(document, token=api.token, variables={"id": payload["operation"]["id"]}) as socket:
        assert (await socket.next("operationUpdated"))["operation"]["status"] == "SUCCEEDED"
        assert (await socket.receive())["type"] == "complete"


async def test_resuming_at_any_event_gives_exactly_the_rest(api: Api):
    start = api.server.head_cursor()
    created = (await api.create(ports=[{"port": 80}]))["instance"]
    await api.world.work_until_status(_row_id(created["id"]), InstanceStatus.READY)

    async def read(after: str) -> list[dict[str, Any]]:
        async with api.server.watching(EVENTS, token=api.token, variables={"after": after}) as socket:
            events = [await socket.next("instanceEvents")]
            while events[-1]["type"] != "operation.finished":
                events.append(await socket.next("instanceEvents"))
            return events

    whole = await read(start)
    assert [each["status"] for each in whole if each["status"]] == ORDER
    assert [each["previousStatus"] for each in whole if each["status"]] == [None, *ORDER[:-1]]
    versions = [each["instanceSnapshot"]["version"] for each in whole if each["instanceSnapshot"]]
    assert versions == list(range(1, len(versions) + 1))
    for place in (0, len(whole) // 2, len(whole) - 2):
        assert await read(whole[place]["cursor"]) == whole[place + 1 :]


async def test_events_are_filtered_by_instance_type_and_status(api: Api):
    start = api.server.head_cursor()
    first = (await api.create(name="first"))["instance"]
    second = (await api.create(name="second"))["instance"]
    for each in (first, second):
        await api.world.work_until_status(_row_id(each["id"]), InstanceStatus.READY)

    async def one(wanted: dict[str, Any]) -> dict[str, Any]:
        variables = {"after": start, "filter": wanted}
        async with api.server.watching(EVENTS, token=api.token, variables=variables) as socket:
            return await socket.next("instanceEvents")

    assert (await one({"ids": [second["id"]]}))["instanceId"] == second["id"]
    assert (await one({"types": ["operation.finished"]}))["type"] == "operation.finished"
    assert (await one({"ids": [second["id"]], "statuses": ["READY"]}))["status"] == "READY"


@pytest.mark.parametrize("after", ["", "nonsense", "A" * 23, "ü" * 23])
async def test_a_cursor_that_was_never_handed_out_is_refused_as_such(api: Api, after: str):
    async with api.server.watching(EVENTS, token=api.token, variables={"after": after}) as socket:
        error = await socket.error()
    assert (error["code"], error["retryable"]) == ("INVALID_CURSOR", False)


async def test_a_cursor_that_this_server_has_not_reached_is_to_be_resumed(api: Api):
    """Its issuer reads the new primary, this one still the former: the client must keep its cursor."""
    head = api.server.runtime.tail.head()
    after = api.server.runtime.cursors.of_event(Cursor(head.epoch, head.position + 1_000_000))
    async with api.server.watching(EVENTS, token=api.token, variables={"after": after}) as socket:
        error = await socket.error()
    assert (error["code"], error["retryable"]) == ("RESUME", True)


async def test_a_cursor_of_another_log_or_of_dropped_events_has_expired(api: Api):
    head = api.server.runtime.tail.head()
    other_log = api.server.runtime.cursors.of_event(Cursor(head.epoch + 1, head.position))
    async with api.server.watching(EVENTS, token=api.token, variables={"after": other_log}) as socket:
        error = await socket.error()
    assert (error["code"], error["retryable"]) == ("CURSOR_EXPIRED", False)


async def test_watching_what_does_not_exist_is_not_found(api: Api):
    async with api.server.watching(UPDATES, token=api.token, variables={"id": "inst_" + "0" * 32}) as socket:
        assert (await socket.error())["code"] == "INSTANCE_NOT_FOUND"


async def test_a_disconnected_client_leaves_no_subscription_behind(api: Api):
    tail = api.server.runtime.tail
    created = (await api.create())["instance"]
    before = tail.subscribers
    async with api.server.watching(UPDATES, token=api.token, variables={"id": created["id"]}) as socket:
        await socket.next("instanceUpdated")
        assert tail.subscribers == before + 1
    await until(lambda: tail.subscribers == before)


def _row_id(shown: str) -> UUID:
    return UUID(shown.removeprefix("inst_"))
