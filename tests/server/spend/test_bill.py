"""The provider's bill beside the ledger: what is compared, what is announced, and what an outage leaves."""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from server.clock import now
from server.enums import Role
from server.queue.kinds import CheckBill
from server.simulator.faults import Fault, FaultKind
from server.spend.bill import find_windows
from server.spend.report import midnight
from tests.server.spend.test_report import PRICE, entry, instance
from tests.support.api import Api
from tests.support.world import World

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
BILL = """query ($filter: SpendFilter) { spend(filter: $filter) {
    billed { amountMicros } difference { amountMicros } billedUntil
    billedDays { day billed { amountMicros } ledger { amountMicros } } } }"""
SYNC = "mutation { syncSpend { lines errors { code } } }"
HOURLY = PRICE * 10  # of an hour, in millionths


def days_ago(number: int) -> datetime:
    return midnight(now()) - number * DAY


def bill(world: World, machine: str, began: datetime, hours: float, price_e5: int = PRICE) -> None:
    """What the provider billed for a machine that it has forgotten."""
    times = (began.timestamp(), began.timestamp() + hours * 3600, price_e5)
    record: dict[str, Any] = {"ownerID": machine, "productId": "p", "productName": "RTX", "category": "gpu", "gpus": 1}
    known = world.simulator.world.table("bill").get(machine, {})
    world.simulator.world.put("bill", machine, {**record, "billed": [*known.get("billed", []), times]})  # type: ignore[misc]


async def machine(api: Api, name: str, began: datetime, hours: float) -> UUID:
    """An instance whose ledger has these hours."""
    row = await instance(api, name=name)
    await entry(api, row, began, hours)
    await api.world.execute(
        "INSERT INTO machine (instance_id, number, novita_id, began_at) SELECT id, 1, novita_id, $2 FROM instance"
        " WHERE id = $1",
        row,
        began,
    )
    return row


@pytest.fixture(autouse=True)
def no_bills(api: Api) -> None:
    api.world.simulator.world.table("bill").clear()


async def sync(api: Api, token: str | None = None) -> int:
    token = token or (await api.world.new_token(role=Role.ADMIN))[0]
    answer = (await api.ask(SYNC, token=token)).data["syncSpend"]
    assert answer["errors"] == []
    return answer["lines"]


async def shown(api: Api, **filter: Any) -> dict[str, Any]:
    given = {"since": days_ago(20).isoformat(), **filter}
    return (await api.ask(BILL, filter=given)).data["spend"]


async def announced(api: Api) -> list[dict[str, str]]:
    nodes = (
        await api.ask('{ projectEvents(filter: {types: ["spend.differs"]}) { nodes { data { key value } } } }')
    ).data
    return [{each["key"]: each["value"] for each in node["data"]} for node in nodes["projectEvents"]["nodes"]]


async def test_equal_days_are_shown_beside_the_ledger_and_are_not_announced(api: Api):
    one = await machine(api, "one", days_ago(4) + HOUR, 3)
    await entry(api, one, days_ago(3), 2)
    for began, hours in ((days_ago(4) + HOUR, 3.0), (days_ago(3), 2.0)):
        bill(api.world, "mone", began, hours)
    bill(api.world, "by-hand", days_ago(4), 24)  # of the account, but not of a project
    assert (await shown(api))["billed"] is None

    assert await sync(api) == 3

    end = midnight(now() - timedelta(hours=6))
    assert await shown(api) == {
        "billed": {"amountMicros": 5 * HOURLY},
        "difference": {"amountMicros": 0},
        "billedUntil": end.isoformat(),
        "billedDays": [day(4, 3 * HOURLY, 3 * HOURLY), day(3, 2 * HOURLY, 2 * HOURLY)],
    }
    assert await announced(api) == []


def day(ago: int, billed: int, ledger: int) -> dict[str, Any]:
    shown = days_ago(ago).date().isoformat()
    return {"day": shown, "billed": {"amountMicros": billed}, "ledger": {"amountMicros": ledger}}


async def test_a_day_that_differs_is_announced_once(api: Api):
    await machine(api, "one", days_ago(3), 2)
    bill(api.world, "mone", days_ago(3), 3)

    token, _ = await api.world.new_token(role=Role.ADMIN)
    await asyncio.gather(*(sync(api, token) for _ in range(3)))
    await sync(api)

    expected = {"day": days_ago(3).date().isoformat(), "billedMicros": str(3 * HOURLY), "ledgerMicros": str(2 * HOURLY)}
    assert await announced(api) == [expected]
    assert (await shown(api))["difference"] == {"amountMicros": HOURLY}


@pytest.mark.parametrize(
    ("ledger_hours", "billed_hours", "is_announced"),
    [
        (20, 20.4, False),  # 2 % of what was billed, at most
        (20, 20.5, True),
        (20, 19.5, True),
        (0.2, 0.45, False),  # 125 %, and 0.09 USD
        (0.2, 0.5, True),
    ],
)
async def test_small_differences_are_not_announced(
    api: Api, ledger_hours: float, billed_hours: float, is_announced: bool
):
    await machine(api, "one", days_ago(5), ledger_hours)
    bill(api.world, "mone", days_ago(5), billed_hours)
    await sync(api)
    assert len(await announced(api)) == is_announced


async def test_machines_that_only_one_side_knows_differ(api: Api):
    await machine(api, "one", days_ago(5), 1)
    two = await machine(api, "two", days_ago(4), 1)
    bill(api.world, "mtwo", days_ago(4), 1)
    bill(api.world, "mtwo", days_ago(3), 1)
    await sync(api)
    assert [(each["day"], each["billedMicros"], each["ledgerMicros"]) for each in await announced(api)] == [
        (days_ago(5).date().isoformat(), "0", str(HOURLY)),
        (days_ago(3).date().isoformat(), str(HOURLY), "0"),
    ]
    assert (await shown(api, instanceIds=[f"inst_{two.hex}"]))["difference"] == {"amountMicros": HOURLY}


async def test_a_bill_that_comes_late_is_read_again_for_three_days_before_it_is_announced(api: Api):
    simulated = api.world.simulator.world
    usual = simulated.dialect
    await machine(api, "one", days_ago(2), 2)
    bill(api.world, "mone", days_ago(2), 2)
    await machine(api, "two", days_ago(6), 2)  # of this day nothing comes any more
    try:
        simulated.set_dialect(replace(usual, bill_lag=3 * 86400))
        assert await sync(api) == 0
        assert (await shown(api))["billed"] == {"amountMicros": 0}
        assert [each["day"] for each in await announced(api)] == [days_ago(6).date().isoformat()]
        simulated.set_dialect(replace(usual, bill_lag=5 * 3600))  # less than what is waited for
        assert await sync(api) == 1
        assert (await shown(api, since=days_ago(3).isoformat()))["difference"] == {"amountMicros": 0}
        assert len(await announced(api)) == 1
    finally:
        simulated.set_dialect(usual)


async def test_days_that_are_not_over_or_not_of_the_ledger_are_not_compared(api: Api):
    """An upgrade writes the first day of the ledger."""
    await machine(api, "one", days_ago(4), 2)
    await api.world.execute("INSERT INTO bill_check (since) VALUES ($1)", days_ago(3).date())
    bill(api.world, "mone", days_ago(5), 40)
    await sync(api)
    assert await announced(api) == []
    assert (await shown(api))["billedDays"] == []
    assert await shown(api, since=days_ago(0).isoformat()) == NOTHING
    labelled = {"labels": [{"key": "team", "value": "x"}]}
    assert await shown(api, **labelled) == NOTHING


NOTHING: dict[str, Any] = {"billed": None, "difference": None, "billedUntil": None, "billedDays": []}


async def test_one_request_is_for_at_most_31_days_and_all_machines(api: Api):
    await machine(api, "one", days_ago(40), 2)
    for ago in (40, 5):
        bill(api.world, "mone", days_ago(ago), 2)
    async with api.world.database.read() as session:
        windows = await find_windows(session)
    assert windows[0][1] - windows[0][0] == 31 * DAY
    assert (len(windows), windows[0][0], windows[1][0]) == (2, days_ago(40), days_ago(9))
    before = api.world.calls("GET /openapi/v1/billing/bill/list")
    assert await sync(api) == 2
    assert api.world.calls("GET /openapi/v1/billing/bill/list") == before + 2


async def test_the_job_is_tried_again_after_an_outage_and_gives_up_without_the_right(api: Api):
    world = api.world
    await machine(api, "one", days_ago(2), 2)
    world.outage()
    await world.enqueue(CheckBill())
    await world.work_once()
    assert tuple(await world.one("SELECT kind, status FROM job")) == ("CHECK_BILL", "WAITING")
    assert await world.rows("SELECT FROM bill_check") == []

    world.faults(Fault(FaultKind.ERROR, status=403))
    await world.hurry()
    await world.work_once()
    ended = await world.one("SELECT kind, status FROM job_history")
    assert tuple(ended) == ("CHECK_BILL", "SUCCEEDED")
    assert await world.rows("SELECT FROM bill_check") == []

    world.faults()
    bill(world, "mone", days_ago(2), 2)
    await world.enqueue(CheckBill())
    await world.work_once()
    assert await world.value("SELECT amount_micros FROM bill_line WHERE machine = 'mone'") == 2 * HOURLY
