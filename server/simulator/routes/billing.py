"""The account's balance. Nothing is charged: it changes only by the control API."""

import orjson

from server.simulator.requests import ApiRequest
from server.simulator.world import World

# Ten-thousandths of a dollar: 100 USD.
FIRST_BALANCE = 1_000_000


def available_balance(world: World) -> int:
    record = world.table("account").get("balance", {})
    return int(str(record.get("available", FIRST_BALANCE)))


def balance(world: World, request: ApiRequest) -> bytes:
    """All amounts are strings."""
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
