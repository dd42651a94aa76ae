"""Bills of the account's machines, from the record of their billed seconds."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, cast

from server.simulator.billing.meter import E5_SECONDS_PER_E4
from server.simulator.models import Instance
from server.simulator.requests import JsonObject

if TYPE_CHECKING:
    from server.simulator.world import World

CYCLES = ("Hour", "Day", "Week", "Month")
USER = "9141320498493177"


def keep_bill(world: World, instance: Instance) -> None:
    """Store the bill of a machine that is about to be forgotten."""
    world.meter.end(instance, world.clock.wall())
    if instance.billed:
        world.put("bill", instance.id, _bill(instance))


def bills(world: World, cycle: str, *, since: float, until: float, owner: str, product_name: str) -> list[JsonObject]:
    """One line per machine and cycle, of the seconds between `since` and `until`."""
    lines: list[JsonObject] = []
    for bill in _all_bills(world):
        if owner not in ("", bill["ownerID"]) or product_name.lower() not in str(bill["productName"]).lower():
            continue
        periods = cast(list[tuple[float, float, int]], bill["billed"])
        costs: dict[datetime, tuple[float, float]] = {}
        for began, ended, price in periods:
            for start, seconds in _by_cycle(cycle, max(began, since), min(ended or until, until)):
                total, cost = costs.get(start, (0.0, 0.0))
                costs[start] = (total + seconds, cost + seconds * price)
        gpus = int(str(bill["gpus"]))
        lines += [_line(bill, cycle, start, seconds, cost, gpus) for start, (seconds, cost) in sorted(costs.items())]
    return lines


def billed_times(world: World) -> dict[str, object]:
    """The record behind the bills, by machine."""
    return {str(bill["ownerID"]): bill["billed"] for bill in _all_bills(world)}


def add_subscription(world: World, instance: Instance, *, months: int, trade: str) -> None:
    """`trade` is monthly_new_buy or monthly_re_buy."""
    e5 = instance.price * months
    key = world.new_id("subscription")
    record: JsonObject = {**_bill(instance), "tradeType": trade, "at": world.clock.wall(), "months": months, "e5": e5}
    world.put("subscription", key, record)
    world.meter.pay(e5)


def subscription_bills(world: World, *, since: float, until: float, owner: str, product_name: str) -> list[JsonObject]:
    """One line per purchase and renewal."""
    lines: list[JsonObject] = []
    for record in world.table("subscription").values():
        at, amount = float(str(record["at"])), str(int(str(record["e5"])) // 10)
        if not since <= at <= until or owner not in ("", record["ownerID"]):
            continue
        if product_name.lower() not in str(record["productName"]).lower():
            continue
        lines.append(
            {
                **_shown(record),
                "billingMethod": "2",
                "tradeType": record["tradeType"],
                "cycle": datetime.fromtimestamp(at, UTC).strftime("%Y-%m"),
                "startTime": str(int(at)),
                "endTime": str(int(at) + int(str(record["months"])) * 30 * 86400),
                "amount": amount,
                "voucherAmount": "0",
                "payAmount": amount,
            }
        )
    return lines


def _all_bills(world: World) -> Iterator[JsonObject]:
    yield from world.table("bill").values()
    for instance in world.instances.values():
        if instance.billed:
            yield _bill(instance)


def _bill(instance: Instance) -> JsonObject:
    return {
        "ownerID": instance.id,
        "productId": instance.product_id,
        "productName": instance.product_name,
        "category": instance.kind,
        "gpus": instance.gpu_num,
        "billed": instance.billed,
    }


def _line(bill: JsonObject, cycle: str, start: datetime, seconds: float, cost: float, gpus: int) -> JsonObject:
    amount = str(round(cost / E5_SECONDS_PER_E4))
    # The price of one GPU and hour, in 1/100000 USD.
    price = str(round(cost / seconds / gpus)) if seconds else "0"
    return {
        **_shown(bill),
        "startTime": str(int(start.timestamp())),
        "endTime": str(int(_next_cycle(cycle, start).timestamp())),
        "billingMethod": "1",
        "billNum0": str(round(seconds * gpus)),
        "billNum1": "0",
        "basePrice0": price,
        "basePrice1": "0",
        "discountPrice0": price,
        "discountPrice1": "0",
        "amount": amount,
        "voucherAmount": "0",
        "payAmount": amount,
        "payAmountDisplay": f"{int(amount) / 10_000:.4f}",
        "pricePrecision": "100000",
    }


def _shown(bill: JsonObject) -> JsonObject:
    return {"userId": USER, **{name: bill[name] for name in ("ownerID", "productId", "productName", "category")}}


def _by_cycle(cycle: str, began: float, ended: float) -> Iterator[tuple[datetime, float]]:
    """(begin of the cycle, seconds in it) for every cycle of a period."""
    while began < ended:
        start = _cycle_of(cycle, datetime.fromtimestamp(began, UTC))
        end = min(_next_cycle(cycle, start).timestamp(), ended)
        yield start, end - began
        began = end


def _cycle_of(cycle: str, at: datetime) -> datetime:
    hour = at.replace(minute=0, second=0, microsecond=0)
    day = hour.replace(hour=0)
    match cycle:
        case "Hour":
            return hour
        case "Week":
            return day - timedelta(days=day.weekday())
        case "Month":
            return day.replace(day=1)
        case _:
            return day


def _next_cycle(cycle: str, start: datetime) -> datetime:
    match cycle:
        case "Hour":
            return start + timedelta(hours=1)
        case "Week":
            return start + timedelta(days=7)
        case "Month":
            return (start + timedelta(days=32)).replace(day=1)
        case _:
            return start + timedelta(days=1)
