"""Plans of stock and price, and the simulator's own record of every change."""

import heapq
from dataclasses import dataclass

from server.simulator import validation
from server.simulator.catalog import Catalog, inventory_state
from server.simulator.clock import SimulatedClock
from server.simulator.requests import JsonObject, bad_param

# Older ones are dropped, so that a simulator that runs for weeks does not grow.
RECORD_MAX = 100_000


@dataclass(frozen=True, slots=True, order=True)
class Planned:
    """At a simulated time, that many GPUs are free, and cost that much; -1: the price stays."""

    at: float
    number: int
    product_id: str
    cluster_id: str
    free: int
    price: int


class MarketPlan:
    """Applied in order of time by `advance`, like the steps of instances. Not kept across restarts."""

    def __init__(self, catalog: Catalog, clock: SimulatedClock) -> None:
        self._catalog = catalog
        self._clock = clock
        self._planned: list[Planned] = []
        self._number = 0
        self.record: list[JsonObject] = []
        self._last: dict[tuple[str, str], JsonObject] = {}
        catalog.on_stock = self.note

    def add(self, items: list[JsonObject]) -> None:
        now = self._clock.now()
        checked = [self._planned_of(item, now) for item in items]  # all before the first is added
        for planned in checked:
            heapq.heappush(self._planned, planned)

    def next_at(self) -> float | None:
        return self._planned[0].at if self._planned else None

    def advance(self, now: float) -> None:
        while self._planned and self._planned[0].at <= now:
            step = heapq.heappop(self._planned)
            if step.price >= 0:
                self._catalog.planned_prices[step.product_id, step.cluster_id] = step.price
            self._catalog.set_stock(step.product_id, step.cluster_id, step.free)

    def note(self, product_id: str, cluster_id: str) -> None:
        """Record the present stock and prices of a product, if they differ from the last record of it."""
        product, now = self._catalog.products[product_id], self._clock.now()
        free = self._catalog.free(product_id, cluster_id)
        state: JsonObject = {
            "productId": product_id,
            "clusterId": cluster_id,
            "free": free,
            "inventoryState": inventory_state(free, self._catalog.total[product_id, cluster_id]),
            "price": self._catalog.price(product, "onDemand", now, cluster_id),
            "spotPrice": self._catalog.price(product, "spot", now, cluster_id),
        }
        if self._last.get((product_id, cluster_id)) != state:
            self._last[product_id, cluster_id] = state
            self.record.append({"at": now, "wall": self._clock.wall(), **state})
            del self.record[:-RECORD_MAX]

    def to_json(self) -> JsonObject:
        planned: list[JsonObject] = [
            {
                "at": each.at - self._clock.now(),
                "productId": each.product_id,
                "clusterId": each.cluster_id,
                "free": each.free,
                "price": None if each.price < 0 else each.price,
            }
            for each in sorted(self._planned)
        ]
        return {"plan": planned, "record": self.record}

    def _planned_of(self, item: JsonObject, now: float) -> Planned:
        seconds = item.get("at", 0)
        if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 <= seconds <= 1e9:
            raise bad_param("at must be a number of seconds from now", "at")
        product_id = validation.text(item, "productId", least=1)
        cluster_id = validation.text(item, "clusterId", least=1)
        if (product_id, cluster_id) not in self._catalog.total:
            raise bad_param("no such product in that cluster", "productId")
        free = validation.number(item, "free", least=0, most=10_000_000)
        price = validation.number(item, "price", least=0, most=10**9) if item.get("price") is not None else -1
        self._number += 1
        return Planned(now + seconds, self._number, product_id, cluster_id, free, price)
