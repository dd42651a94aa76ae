"""The account's balance, how long it lasts, and one warning before it is used up."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from server.account.balance import warn_if_low
from server.enums import InstanceStatus, Role
from server.queue.kinds import Reconcile
from server.simulator.faults import Fault, FaultKind
from tests.support.api import Api
from tests.support.waiting import until

ACCOUNT = "{ account { balance { amountMicros } pricePerHour { amountMicros } runway observedAt } }"
EVENTS = """query ($after: String) { projectEvents(after: $after) {
    nodes { id cursor type data { key value } } pageInfo { endCursor hasNextPage } } }"""
BALANCE = "GET /openapi/v1/billing/balance/detail"


@pytest.fixture
async def rich(api: Api) -> AsyncIterator[Api]:
    """The simulated account has 100 USD before and after each test."""
    set_balance(api, 1_000_000)
    yield api
    set_balance(api, 1_000_000)


def set_balance(api: Api, e4: int) -> None:
    api.world.simulator.world.put("account", "balance", {"available": e4})


async def reconcile(api: Api) -> None:
    await api.world.enqueue(Reconcile())
    await api.world.work_once()


async def look(api: Api) -> None:
    """As reconcile does; it would also notice that the machines of these rows do not exist."""
    await warn_if_low(api.server.runtime.account, runway_min=timedelta(hours=24))


async def low_events(api: Api, token: str) -> list[dict[str, Any]]:
    async def is_sequenced() -> bool:
        return not await api.world.value("SELECT count(*) FROM outbox")

    await until(is_sequenced)
    return (await api.ask(EVENTS, token=token)).data["projectEvents"]["nodes"]


async def bill(api: Api) -> None:
    """Two instances of 0.5 and 1.5 USD an hour, one of them of another project, and one that costs nothing."""
    other = await api.world.new_project("other")
    await api.world.put(InstanceStatus.READY, novita_id="m1", price_per_hour_e5=50_000)
    await api.world.put(InstanceStatus.READY, novita_id="m2", price_per_hour_e5=150_000, project_id=other)
    await api.world.put(InstanceStatus.EXITED, novita_id="m3", price_per_hour_e5=900_000)


async def test_the_servers_admin_sees_balance_price_and_runway(rich: Api):
    admin, _ = await rich.world.new_token("default", Role.ADMIN)
    idle = (await rich.ask(ACCOUNT, token=admin)).data["account"]
    assert (idle["balance"], idle["runway"]) == ({"amountMicros": 100_000_000}, None)
    await bill(rich)

    account = (await rich.ask(ACCOUNT, token=admin)).data["account"]

    assert (account["pricePerHour"], account["runway"]) == ({"amountMicros": 2_000_000}, 50 * 3600)


async def test_one_event_says_that_the_balance_is_low_and_another_one_after_it_was_not(rich: Api):
    admin, _ = await rich.world.new_token("default", Role.ADMIN)
    await bill(rich)
    await look(rich)
    assert await low_events(rich, admin) == []

    set_balance(rich, 400_000)  # 20 hours
    await look(rich)
    await look(rich)
    (event,) = await low_events(rich, admin)
    assert event["type"] == "balance.low"
    assert {each["key"]: each["value"] for each in event["data"]} == {
        "balanceMicros": "40000000",
        "pricePerHourMicros": "2000000",
        "runwaySeconds": "72000",
    }
    document = "query ($id: ID!) { node(id: $id) { ... on ProjectEvent { type cursor } } }"
    node = (await rich.ask(document, token=admin, id=event["id"])).data["node"]
    assert node == {"type": "balance.low", "cursor": event["cursor"]}

    set_balance(rich, 1_000_000)
    await look(rich)
    set_balance(rich, 0)
    await look(rich)
    assert len(await low_events(rich, admin)) == 2
    page = (await rich.ask(EVENTS, token=admin, after=event["cursor"])).data["projectEvents"]
    assert len(page["nodes"]) == 1


async def test_it_is_an_event_of_the_servers_project_and_of_no_instance(rich: Api):
    stranger, _ = await rich.world.new_token("strangers", Role.ADMIN)
    admin, _ = await rich.world.new_token("default", Role.ADMIN)
    set_balance(rich, 0)
    await reconcile(rich)

    assert len(await low_events(rich, admin)) == 1
    assert await low_events(rich, stranger) == []
    assert (await rich.ask("{ events { nodes { id } } }", token=admin)).data["events"]["nodes"] == []


async def test_it_is_sent_to_subscribers(rich: Api):
    admin, _ = await rich.world.new_token("default", Role.ADMIN)
    document = 'subscription { projectEvents(filter: {types: ["balance.low"]}) { type data { key value } } }'
    async with rich.server.watching(document, token=admin) as socket:
        assert await socket.is_silent()
        set_balance(rich, 0)
        await reconcile(rich)
        assert (await socket.next("projectEvents"))["type"] == "balance.low"


async def test_a_key_without_the_right_to_read_the_balance_is_not_a_refused_key(rich: Api):
    rich.world.faults(Fault(FaultKind.ERROR, routes=(BALANCE,), status=403, reason="FORBIDDEN", message="no"))
    admin, _ = await rich.world.new_token("default", Role.ADMIN)

    await reconcile(rich)
    refused = await rich.ask(ACCOUNT, token=admin)

    assert refused.error["code"] == "PROVIDER_AUTH_FAILED"
    admitted = await rich.ask("{ prewarmQuota { limit } }", token=admin)  # a call of its own
    assert admitted.data["prewarmQuota"] == {"limit": 100}
