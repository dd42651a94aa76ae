"""The account's balance and bills. All amounts are strings, in ten-thousandths of a dollar."""

import orjson

from server.simulator.billing.account import available_balance
from server.simulator.billing.bills import CYCLES, bills, subscription_bills
from server.simulator.requests import ApiRequest, bad_param
from server.simulator.world import World

# What machines are billed as; there are no other products here.
CATEGORIES = ("", "gpu", "summary")
WINDOW_MAX = 31 * 86400


def balance(world: World, request: ApiRequest) -> bytes:
    available = str(available_balance(world))
    return orjson.dumps(
        {
            "availableBalance": available,
            "cashBalance": available,
            "creditLimit": "0",
            "pendingCharges": "0",
            "outstandingInvoices": "0",
        }
    )


def usage_bills(world: World, request: ApiRequest) -> bytes:
    """What was paid by the second, in lines per machine and cycle."""
    cycle = request.query("cycleType")
    if cycle not in CYCLES:
        raise bad_param(f"cycleType must be one of {', '.join(CYCLES)}", "cycleType")
    category = request.query("productCategory")
    if not category:
        raise bad_param("productCategory is required", "productCategory")
    since, until = _window(world, request)
    owner, product_name = request.query("ownerId"), request.query("productName")
    shown = bills(world, cycle, since=since, until=until, owner=owner, product_name=product_name)
    return orjson.dumps({"bills": shown if category in CATEGORIES else []})


def fixed_term_bills(world: World, request: ApiRequest) -> bytes:
    """What was paid for subscriptions, one line per purchase."""
    since, until = _window(world, request)
    owner, product_name = request.query("ownerId"), request.query("productName")
    shown = subscription_bills(world, since=since, until=until, owner=owner, product_name=product_name)
    return orjson.dumps({"bills": shown if request.query("category") in CATEGORIES else []})


def _window(world: World, request: ApiRequest) -> tuple[float, float]:
    """The last 31 days, if no times are sent; nothing is billed ahead of time."""
    now = world.clock.wall()
    until = request.query_int("endTime") or int(now) + 1
    since = request.query_int("startTime") or until - WINDOW_MAX
    if since > until:
        raise bad_param("startTime must not be after endTime", "startTime")
    if until - since > WINDOW_MAX:
        raise bad_param("the window can be at most 31 days", "startTime")
    return since, min(until, now - world.dialect.bill_lag)
