"""The account's balance: what was paid in, less what its machines have cost since."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from server.simulator import lifecycle
from server.simulator.requests import JsonObject, ProviderRefusal

if TYPE_CHECKING:
    from server.simulator.world import World

# Ten-thousandths of a dollar: 100 USD. Until a balance is set, the account is topped up by itself, so that neither a
# demonstration nor a load test runs out of money.
FIRST_BALANCE = 1_000_000


def set_balance(world: World, available: int, *, is_charged: bool) -> None:
    """Without `is_charged`, the balance stays as it is set, and nothing is frozen."""
    record: JsonObject = {"available": available}
    if is_charged:
        record["charged_before"] = world.meter.charged_e4(world.clock.wall())
    world.put("account", "balance", record)
    freeze_if_used_up(world)
    if world.on_plan is not None:
        world.on_plan()


def restore(world: World) -> None:
    """Count what machines that are gone and subscriptions have cost."""
    for bill in world.table("bill").values():
        world.meter.count(cast(list[tuple[float, float, int]], bill["billed"]))
    for subscription in world.table("subscription").values():
        world.meter.pay(int(str(subscription["e5"])))


def available_balance(world: World) -> int:
    record = world.table("account").get("balance", {})
    return int(str(record.get("available", FIRST_BALANCE))) - int(_charged(world, record))


def check_balance(world: World) -> None:
    if available_balance(world) <= 0:
        raise ProviderRefusal(world.dialect.no_balance_status, "BALANCE_NOT_ENOUGH", "balance not enough")


def freeze_if_used_up(world: World) -> None:
    if not world.meter.running or not _is_charged(world) or available_balance(world) > 0:
        return
    for instance in list(world.meter.running.values()):
        if instance.status != "freezing":
            lifecycle.freeze(world, instance)


def used_up_in(world: World) -> float | None:
    """Real seconds until the balance is used up by the machines of now."""
    available = available_balance(world)
    return world.meter.seconds_for(available) if _is_charged(world) and available > 0 else None


def _is_charged(world: World) -> bool:
    return "charged_before" in world.table("account").get("balance", {})


def _charged(world: World, record: JsonObject) -> float:
    before = record.get("charged_before")
    return 0 if before is None else world.meter.charged_e4(world.clock.wall()) - float(str(before))
