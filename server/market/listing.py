"""Answers catalogue reads from the tape, so that they need no provider call."""

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import orjson
import structlog

from server.db.database import Database
from server.db.outages import DATABASE_ERRORS
from server.market.regions import CLUSTER
from server.market.segments import mark_used
from server.market.tape import PRODUCT
from server.novita.models import Cluster, Product

log = structlog.get_logger(__name__)

USE_INTERVAL = 60.0  # seconds between two notes of one process that it uses a GPU count

READ_REGIONS = """
    SELECT cluster::text FROM market_region
    WHERE seen_at > clock_timestamp() - $1::interval AND seen_at <= clock_timestamp() ORDER BY list_order
"""
# Nothing if one of the segments was not polled lately: a part of a list would look like the whole.
READ_PRODUCTS = """
    WITH segment AS (
        SELECT region, mode, gpu_count, market_segment.seen_at, list_order
        FROM market_region JOIN market_segment USING (region)
        WHERE cluster_id = ANY($1::text[]) AND mode = $2 AND gpu_count = $3
          AND market_segment.seen_at > clock_timestamp() - $4::interval AND market_segment.seen_at <= clock_timestamp()
    )
    SELECT offer.is_available, offer.product::text, (SELECT min(seen_at) FROM segment)
    FROM segment LEFT JOIN offer ON offer.region = segment.region AND offer.mode = segment.mode
                                AND offer.gpu_count = segment.gpu_count AND offer.is_listed
    WHERE (SELECT count(*) FROM segment) = cardinality($1::text[])
    ORDER BY segment.list_order, offer.product_id
"""


class TapeListings:
    """The lists of regions and products that the catalogue needs; None if the tape is too old, or can't be read."""

    def __init__(self, database: Database, *, max_age: timedelta) -> None:
        self._database = database
        self._max_age = max_age
        self._used_at: dict[int, float] = {}

    async def regions(self) -> Sequence[Cluster] | None:
        try:
            rows = await self._database.raw.fetch(READ_REGIONS, self._max_age)
        except DATABASE_ERRORS as error:
            log.warning("market.tape_unreadable", error=type(error).__name__)
            return None
        # Not validated strictly: JSON has lists where the model has tuples.
        return tuple(CLUSTER.validate_python(orjson.loads(row[0])) for row in rows) or None

    async def products(
        self, clusters: Sequence[Cluster], *, mode: str, gpu_count: int
    ) -> tuple[Sequence[Product], datetime] | None:
        """Products of these regions and when they were polled; one is in stock if any of its regions has it."""
        ids = [cluster.id for cluster in clusters]
        try:
            await self._mark_used(gpu_count)
            rows = await self._database.raw.fetch(READ_PRODUCTS, ids, mode, gpu_count, self._max_age)
        except DATABASE_ERRORS as error:
            log.warning("market.tape_unreadable", error=type(error).__name__)
            return None
        if not rows:
            return None
        found: dict[str, Product] = {}
        for is_available, product, _ in rows:
            if product is None:  # a segment without an offer
                continue
            each = replace(PRODUCT.validate_python(orjson.loads(product)), is_deployable=is_available)
            known = found.get(each.id)
            found[each.id] = each if known is None or each.is_deployable else known
        return tuple(found.values()), rows[0][2]

    async def _mark_used(self, gpu_count: int) -> None:
        """One GPU is polled anyway. Of many reads at once, one writes."""
        moment = time.monotonic()
        if gpu_count == 1 or moment < self._used_at.get(gpu_count, float("-inf")) + USE_INTERVAL:
            return
        self._used_at[gpu_count] = moment
        async with self._database.write() as session:
            await mark_used(session, gpu_count)
