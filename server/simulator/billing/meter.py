"""Counts what the account's machines have cost, second by second."""

from server.simulator.models import Instance
from server.simulator.statuses import BILLED_STATUSES

SECONDS_PER_HOUR = 3600
# Prices are 1/100000 USD per hour, amounts 1/10000 USD: this many price-seconds are one unit of an amount.
E5_SECONDS_PER_E4 = SECONDS_PER_HOUR * 10


class Meter:
    """Sums over all machines, so that a request costs the same with 100,000 of them.

    A machine's own periods are stored with it. Times are wall seconds, like all timestamps of responses.
    """

    def __init__(self) -> None:
        # Machines that are billed by the second now, and the sum of their prices.
        self.running: dict[str, Instance] = {}
        self._rate = 0
        # Price-seconds of ended periods and of subscriptions, and the begins of open periods times their prices.
        self._ended = 0.0
        self._begins = 0.0

    def follow(self, instance: Instance, wall: float) -> None:
        """Begin or end a period by the machine's status; subscriptions are paid in advance."""
        is_billed = instance.status in BILLED_STATUSES and instance.billing_mode != "monthly"
        is_open = instance.id in self.running
        if is_billed and not is_open:
            instance.billed.append((wall, 0.0, instance.price))
            self._open(instance)
        elif is_open and not is_billed:
            self.end(instance, wall)

    def end(self, instance: Instance, wall: float) -> None:
        if self.running.pop(instance.id, None) is None:
            return
        began, _, price = instance.billed[-1]
        ended = max(began, wall)
        instance.billed[-1] = (began, ended, price)
        self._rate -= price
        self._begins -= began * price
        self._ended += (ended - began) * price

    def price_now(self, instance: Instance) -> int:
        """What an hour of it is charged now, in 1/100000 USD; 0 if it is not billed by the second."""
        return instance.billed[-1][2] if instance.id in self.running else 0

    def restore(self, instance: Instance) -> None:
        """Count a machine of the state file."""
        self.count(instance.billed)
        if instance.billed and not instance.billed[-1][1]:
            self._open(instance)

    def count(self, periods: list[tuple[float, float, int]]) -> None:
        """Add ended periods of a machine that is gone."""
        self._ended += sum((ended - began) * price for began, ended, price in periods if ended)

    def pay(self, e5: int) -> None:
        """Add a subscription."""
        self._ended += e5 * SECONDS_PER_HOUR

    def charged_e4(self, wall: float) -> float:
        """All charges until now, in ten-thousandths of a dollar."""
        return (self._ended + self._rate * wall - self._begins) / E5_SECONDS_PER_E4

    def seconds_for(self, e4: float) -> float | None:
        """How long that amount lasts for the machines of now."""
        return e4 * E5_SECONDS_PER_E4 / self._rate if self._rate else None

    def _open(self, instance: Instance) -> None:
        began, _, price = instance.billed[-1]
        self.running[instance.id] = instance
        self._rate += price
        self._begins += began * price
