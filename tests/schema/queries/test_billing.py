"""Prices and burn rate in the API: only what the provider bills now."""

from typing import Any

from schema import ids
from server.enums import InstanceStatus
from tests.support.api import Api

S = InstanceStatus
PRICES = "name isBilled pricePerHour { amountMicros } runningPricePerHour { amountMicros }"
STATS = "total billed unpriced: billedAtUnknownRate pricePerHour { amountMicros currency } byStatus { status count }"


async def put(api: Api, name: str, status: InstanceStatus, word: str | None, **fields: Any) -> str:
    project = api.caller.project_id
    row = await api.world.put(status, project_id=project, name=name, novita_status=word, novita_id=name, **fields)
    return ids.format_id(ids.INSTANCE, row.id)


async def test_price_per_hour_is_null_while_an_instance_is_not_billed(api: Api):
    for name, status, word in (
        ("running", S.READY, "running"),
        ("pulling", S.STARTING, "pulling"),
        ("broken", S.FAILED, "running"),
        ("stopped", S.EXITED, "exited"),
        ("gone", S.FAILED, "removed"),
        ("deleted", S.DELETED, "removed"),
    ):
        await put(api, name, status, word, price_per_hour_e5=35_000)
    everything = [each.value for each in S]
    document = f"query ($s: [InstanceStatus!]) {{ instances(filter: {{statuses: $s}}) {{ nodes {{ {PRICES} }} }} }}"

    nodes = (await api.ask(document, s=everything)).data["instances"]["nodes"]

    price = {"amountMicros": 350_000}
    assert {each["name"] for each in nodes if each["isBilled"]} == {"running", "pulling", "broken"}
    assert {each["name"] for each in nodes if each["pricePerHour"] == price} == {"running", "pulling", "broken"}
    assert {each["name"] for each in nodes if each["pricePerHour"] is None} == {"stopped", "gone", "deleted"}
    assert all(each["runningPricePerHour"] == price for each in nodes)


async def test_single_instance_and_page_show_the_same_prices(api: Api):
    id = await put(api, "stopped", S.EXITED, "exited", price_per_hour_e5=35_000)
    document = f"query ($id: ID!) {{ instance(id: $id) {{ {PRICES} }} }}"

    assert (await api.ask(document, id=id)).data["instance"] == {
        "name": "stopped",
        "isBilled": False,
        "pricePerHour": None,
        "runningPricePerHour": {"amountMicros": 350_000},
    }


async def test_fleet_stats_is_a_query_and_follows_a_filter(api: Api):
    await put(api, "a1", S.READY, "running", labels={"team": "a"}, price_per_hour_e5=35_000)
    await put(api, "a2", S.EXITED, "exited", labels={"team": "a"}, price_per_hour_e5=35_000)
    await put(api, "b1", S.STARTING, "pulling", labels={"team": "b"}, price_per_hour_e5=70_000)
    document = f"query ($filter: InstanceFilter) {{ fleetStats(filter: $filter) {{ cursor {STATS} }} }}"

    every = (await api.ask(document)).data["fleetStats"]
    team = (await api.ask(document, filter={"labels": [{"key": "team", "value": "a"}]})).data["fleetStats"]

    assert every.pop("cursor") != ""
    assert every == {
        "total": 3,
        "billed": 2,
        "unpriced": 0,
        "pricePerHour": {"amountMicros": 1_050_000, "currency": "USD"},
        "byStatus": [
            {"status": "EXITED", "count": 1},
            {"status": "READY", "count": 1},
            {"status": "STARTING", "count": 1},
        ],
    }
    assert (team["total"], team["billed"], team["pricePerHour"]["amountMicros"]) == (2, 1, 350_000)


async def test_subscription_of_fleet_stats_follows_a_filter(api: Api):
    await put(api, "a1", S.READY, "running", labels={"team": "a"}, price_per_hour_e5=35_000)
    await put(api, "b1", S.READY, "running", labels={"team": "b"}, price_per_hour_e5=70_000)
    document = f'subscription {{ fleetStats(filter: {{labels: [{{key: "team", value: "b"}}]}}) {{ {STATS} }} }}'

    async with api.server.watching(document, token=api.token) as socket:
        first = await socket.next("fleetStats")
        assert (first["total"], first["pricePerHour"]["amountMicros"]) == (1, 700_000)
        await api.world.execute("UPDATE instance SET novita_status = 'exited', status = 'EXITED' WHERE name = 'b1'")
        then = await socket.next("fleetStats")
        assert (then["total"], then["billed"], then["pricePerHour"]["amountMicros"]) == (1, 0, 0)
