"""Helpers of the market's tests: poll one segment now, plan stock, read the tape."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from server.catalog.catalog import Catalog
from server.jobs.registry import all_handlers
from server.market.listing import TapeListings
from server.market.segments import POLL_KEY
from server.queue.enqueue import enqueue
from server.queue.kinds import PollMarket
from server.queue.worker import Worker
from tests.support.waiting import until
from tests.support.world import World

# A product that is sold in one region only.
PRODUCT, CLUSTER, REGION, NAME = "26", "as-sgp-2", "AS-SGP-02", "RTX 4090 24GB"
SEGMENT = "region = 'AS-SGP-02' AND mode = 'spot' AND gpu_count = 1"


@dataclass
class Market:
    world: World

    async def poll(self) -> None:
        """Run the poller until nothing is due."""
        async with self.world.database.write() as session:
            await enqueue(session, PollMarket(), unique_key=POLL_KEY)

        # Only the poller: what it wakes is run when a test says so.
        handlers = all_handlers(self.world.services_with(self.world.novita))
        poller = Worker(
            self.world.database,
            self.world.notifier,
            {PollMarket.kind: handlers[PollMarket.kind]},
            lease=timedelta(seconds=5),
        )

        async def is_idle() -> bool:
            await poller.work_once()
            return await self.world.value(
                "SELECT count(*) = 0 FROM job WHERE kind = 'POLL_MARKET' AND (status = 'RUNNING' OR run_at <= now())"
            )

        await until(is_idle)

    async def poll_segment(self, where: str = SEGMENT) -> None:
        """Poll these segments now, and no other."""
        await self.world.execute("UPDATE market_segment SET polled_at = clock_timestamp()")
        await self.world.execute(f"UPDATE market_segment SET polled_at = NULL WHERE {where}")
        await self.world.execute("UPDATE job SET run_at = now(), due_at = now() WHERE kind = 'POLL_MARKET'")
        await self.poll()

    def plan(self, **fields: Any) -> None:
        """Change stock or price now."""
        step: dict[str, object] = {"at": 0, "productId": PRODUCT, "clusterId": CLUSTER, "free": 0, **fields}
        self.world.simulator.world.market.add([step])
        self.world.simulator.world.advance()

    def catalog(self) -> Catalog:
        """As API processes have it."""
        ttl = self.world.settings.product_cache_ttl
        tape = TapeListings(self.world.database, max_age=ttl)
        return Catalog(self.world.novita, product_ttl=ttl, template_ttl=ttl, tape=tape)

    async def changes(self, product_id: str = PRODUCT, mode: str = "spot") -> list[tuple[Any, ...]]:
        rows = await self.world.rows(
            "SELECT price_e5, is_available, inventory FROM offer_change WHERE product_id = $1 AND mode = $2"
            " AND region = 'AS-SGP-02' AND gpu_count = 1 ORDER BY id",
            product_id,
            mode,
        )
        return [tuple(row) for row in rows]
