"""What machines cost by the simulator's own record, the bills of it, and a balance that is used up."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from server.novita.client import NovitaClient
from server.simulator.options import SimulatorOptions
from tests.server.novita.parts import client_of
from tests.server.simulator.account import START, Account, HandTime, creation, open_account

HOUR = 3600
# 1760000000 is 53 minutes and 20 seconds after an hour.
TO_NEXT_HOUR = 400


async def bills(account: Account, path: str = "bill/list", **query: str | int) -> Any:
    if path == "bill/list":
        query = {"cycleType": "Hour", "productCategory": "gpu", **query}
    async with account.session.get(f"{account.simulator.url}/openapi/v1/billing/{path}", params=query) as answer:
        return await answer.json()


async def balance(account: Account) -> int:
    return int((await bills(account, "balance/detail"))["availableBalance"])


async def billed(account: Account, instance_id: str) -> list[tuple[float, float, int]]:
    return list(account.simulator.world.instances[instance_id].billed)


async def test_a_machine_is_billed_from_the_pull_until_it_has_stopped(account: Account):
    instance_id = await account.running(gpuNum=2)
    account.time.passed += 100
    await account.post("/gpu/instance/stop", instanceId=instance_id)
    account.time.passed += 100
    assert await account.status(instance_id) == "exited"

    [(began, ended, price)] = await billed(account, instance_id)
    assert price == 2 * 35_000
    # 112 s after the create was sent, less what precedes the pull; the stop takes about 1.5 s.
    assert START + 1.3 < began < START + 2.7
    assert 112.9 < ended - START < 114.1
    [line] = (await bills(account))["bills"]
    amount = round((ended - began) * price / HOUR / 10)
    assert line == {
        "userId": "9141320498493177",
        "startTime": str(int(START) - int(START) % HOUR),
        "endTime": str(int(START) - int(START) % HOUR + HOUR),
        "billingMethod": "1",
        "productName": "RTX 4090 24GB",
        "category": "gpu",
        "ownerID": instance_id,
        "billNum0": str(round((ended - began) * 2)),
        "billNum1": "0",
        "basePrice0": "35000",
        "basePrice1": "0",
        "discountPrice0": "35000",
        "discountPrice1": "0",
        "amount": str(amount),
        "voucherAmount": "0",
        "payAmount": str(amount),
        "payAmountDisplay": f"{amount / 10_000:.4f}",
        "pricePrecision": "100000",
        "productId": "4090.16c62g",
    }


async def test_lines_are_per_cycle_and_windows_cut_them_exactly(account: Account):
    instance_id = await account.running()
    account.time.passed += TO_NEXT_HOUR - 12 + 2 * HOUR
    now = int(START + account.time.passed)

    hours = (await bills(account))["bills"]
    day = (await bills(account, cycleType="Day"))["bills"]
    last = (await bills(account, startTime=now - HOUR, endTime=now))["bills"]
    half = (await bills(account, startTime=now - HOUR // 2, endTime=now + HOUR))["bills"]

    assert [int(line["endTime"]) - int(line["startTime"]) for line in hours] == [HOUR] * 3
    assert [line["amount"] for line in hours[1:]] == ["3500", "3500"]
    assert abs(sum(int(line["amount"]) for line in hours) - int(day[0]["amount"])) <= 1
    assert [line["amount"] for line in last] == ["3500"]
    assert [line["amount"] for line in half] == ["1750"]
    assert (await bills(account, ownerId="another"))["bills"] == []
    assert (await bills(account, ownerId=instance_id, productName="4090"))["bills"] == hours
    assert (await bills(account, productCategory="llm"))["bills"] == []


async def test_a_bill_outlives_its_machine_and_a_restart(tmp_path: Path):
    options, time = SimulatorOptions(price_drift=0, state_file=tmp_path / "state"), HandTime()
    async with open_account(options, time) as account:
        await account.control("POST", "/balance", available=500_000)
        deleted, kept = await account.running(), await account.running(name="kept")
        time.passed += 1000
        await account.post("/gpu/instance/delete", instanceId=deleted)
        time.passed += 100
        assert (await account.get("/gpu/instance", instanceId=deleted))[0] == 404
        before, left = (await bills(account))["bills"], await balance(account)

    async with open_account(options, time) as account:
        assert (await bills(account))["bills"] == before
        assert {line["ownerID"] for line in before} == {deleted, kept}
        assert await balance(account) == left
        assert 500_000 - left == pytest.approx(sum(int(line["amount"]) for line in before), abs=2)


async def test_a_used_up_balance_freezes_machines_until_it_is_topped_up(account: Account):
    instance_id = await account.running()
    assert await balance(account) == 1_000_000  # tops itself up until a balance is set
    await account.control("POST", "/balance", available=3500)  # an hour
    account.time.passed += HOUR - 10
    assert await account.status(instance_id) == "running"

    account.time.passed += 11
    assert await account.status(instance_id) == "freezing"
    account.time.passed += 5
    assert await account.status(instance_id) == "exited"
    left = await balance(account)
    refused = await account.post("/gpu/instance/start", instanceId=instance_id)
    account.time.passed += HOUR

    assert (refused[0], refused[1]["reason"]) == (400, "BALANCE_NOT_ENOUGH")
    assert -10 < left <= 0
    assert await balance(account) == left  # a frozen machine costs nothing
    await account.control("POST", "/balance", available=3500)
    assert (await account.post("/gpu/instance/start", instanceId=instance_id))[0] == 200


async def test_a_balance_of_zero_freezes_at_once_unless_nothing_is_charged(account: Account):
    instance_id = await account.running()
    await account.control("POST", "/balance", available=0, charged=False)
    assert await account.status(instance_id) == "running"
    assert (await account.post("/gpu/instance/create", **creation()))[1]["reason"] == "BALANCE_NOT_ENOUGH"

    await account.control("POST", "/balance", available=0)

    assert await account.status(instance_id) == "freezing"


async def test_a_subscription_is_paid_in_advance_and_has_lines_of_its_own(account: Account):
    await account.control("POST", "/balance", available=10_000_000)
    instance_id = await account.running(billingMode="monthly", month=2)
    await account.post("/gpu/instance/renewInstance", instanceId=instance_id, month=1)
    changed = await account.running(name="changed")
    await account.post("/gpu/instance/transToMonthlyInstance", instanceId=changed, month=1)
    account.time.passed += HOUR

    lines = (await bills(account, "bill/monthly/list"))["bills"]

    month = 23_000_000 // 10
    assert [(line["ownerID"], line["tradeType"], line["payAmount"]) for line in lines] == [
        (instance_id, "monthly_new_buy", str(2 * month)),
        (instance_id, "monthly_re_buy", str(month)),
        (changed, "monthly_new_buy", str(month)),
    ]
    assert {line["cycle"] for line in lines} == {"2025-10"}
    [by_second] = (await bills(account))["bills"]
    assert by_second["ownerID"] == changed
    assert int(by_second["billNum0"]) in (9, 10, 11)
    assert 10_000_000 - await balance(account) - 4 * month in range(int(by_second["amount"]) + 2)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"cycleType": "Year"}, "cycleType"),
        ({"productCategory": ""}, "productCategory"),
        ({"startTime": 5, "endTime": 4}, "startTime"),
        ({"startTime": 1, "endTime": 1 + 31 * 86400 + 1}, "startTime"),
        ({"startTime": "yesterday"}, "startTime"),
    ],
)
async def test_a_wrong_window_or_cycle_is_refused(account: Account, query: dict[str, Any], field: str):
    refusal = await bills(account, **query)
    assert (refusal["code"], refusal["metadata"]["field"]) == (400, field)


async def test_the_client_reads_bills_of_both_kinds(account: Account):
    paid_ahead = await account.running(billingMode="monthly")
    by_second = await account.running(name="by-second")
    account.time.passed += TO_NEXT_HOUR + 2 * HOUR
    since, until = datetime.fromtimestamp(START, UTC), datetime.fromtimestamp(START + account.time.passed, UTC)

    async with client_of(account.simulator.url) as client:
        assert isinstance(client, NovitaClient)
        lines = await client.bills(since=since, until=until)
        [subscription] = await client.subscription_bills(since=since, until=until)

    assert [(line.instance_id, line.product_name) for line in lines] == [(by_second, "RTX 4090 24GB")] * 4
    assert lines[1].amount_e4 == 3500
    assert lines[1].since == datetime.fromtimestamp(START + TO_NEXT_HOUR, UTC)
    assert (subscription.instance_id, subscription.amount_e4) == (paid_ahead, 2_300_000)
