"""Plans of stock and price with the simulator's own record of them, and machines that are lost or not started again."""

from typing import Any

import pytest

from tests.server.simulator.account import Account

PLACE = {"productId": "26", "clusterId": "as-sgp-2"}


async def product(account: Account) -> tuple[bool, str, str, str]:
    _, answer = await account.get("/products", clusterId=PLACE["clusterId"])
    shown = next(each for each in answer["data"] if each["id"] == PLACE["productId"])
    return shown["availableDeploy"], shown["inventoryState"], shown["price"], shown["spotPrice"]


async def record(account: Account) -> list[tuple[int, int, str]]:
    shown = await account.control("GET", "/plan")
    return [(each["free"], each["spotPrice"], each["inventoryState"]) for each in shown["record"]]


async def test_planned_stock_and_price_come_at_their_times_and_are_recorded_once(account: Account):
    _, _, price, spot = await product(account)
    steps = [
        {"at": 60, **PLACE, "free": 1, "price": 15_000},
        {"at": 0, **PLACE, "free": 0},
        {"at": 120, **PLACE, "free": 1, "price": 15_000},  # as before: no change
    ]
    answer = await account.control("POST", "/plan", plan=steps)

    assert [(each["free"], each["price"]) for each in answer["plan"][-2:]] == [(1, 15_000), (1, 15_000)]
    assert await product(account) == (False, "none", price, spot)
    account.time.passed += 59
    assert await product(account) == (False, "none", price, spot)
    account.time.passed += 2
    assert await product(account) == (True, "low", "15000", "15000")
    account.time.passed += 60
    assert await product(account) == (True, "low", "15000", "15000")
    assert (await account.control("GET", "/plan"))["plan"] == []
    assert (await record(account))[-2:] == [(0, int(spot), "none"), (1, 15_000, "low")]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"at": -1}, "at"),
        ({"at": True}, "at"),
        ({"productId": "none"}, "productId"),
        ({"clusterId": "eu-gb-1"}, "productId"),
        ({"free": -1}, "free"),
        ({"price": -1}, "price"),
    ],
)
async def test_a_bad_step_adds_none_of_the_plan(account: Account, change: dict[str, Any], field: str):
    good = {"at": 10, **PLACE, "free": 0}

    answer = await account.control("POST", "/plan", plan=[good, good | change])

    assert (answer["code"], answer["metadata"]) == (400, {"field": field})
    assert (await account.control("GET", "/plan"))["plan"] == []


async def test_a_lost_machine_is_gone_without_notice(account: Account):
    instance_id = await account.running()

    assert await account.control("POST", "/lose", instanceId=instance_id) == {"lost": instance_id}

    status, _ = await account.get("/gpu/instance", instanceId=instance_id)
    assert status == 404
    _, answer = await account.get("/gpu/instances")
    assert answer["instances"] == []


@pytest.mark.parametrize("is_started", [True, False])
async def test_a_reclaimed_machine_is_started_again_or_not(account: Account, is_started: bool):
    await account.control("POST", "/dialect", starts_reclaimed=is_started)
    instance_id = await account.running(billingMode="spot")
    await account.control("POST", "/reclaim", instanceId=instance_id, noticeSeconds=1)
    await account.statuses_until(instance_id, "exited")

    status, answer = await account.post("/gpu/instance/start", instanceId=instance_id)

    assert (status, answer.get("reason")) == ((200, None) if is_started else (400, "SPOT_INSTANCE_RECLAIMED"))
