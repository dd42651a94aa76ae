"""Answers catalogue reads from the tape, so that they need no provider call."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import orjson

from server.db.database import Database
from server.market.places import want
from server.market.tape import PRODUCT
from server.novita.models import Cluster, Product

# Nothing if one of the places was not read lately: a part of a list would look like the whole.
READ = """
    WITH place AS (
        SELECT region, mode, gpu_count, seen_at FROM market_place
        WHERE cluster_id = ANY($1::text[]) AND mode = $2 AND gpu_count = $3
          AND seen_at > clock_timestamp() - $4::interval AND seen_at <= clock_timestamp()
    )
    SELECT offer.is_available, offer.product::text
    FROM place LEFT JOIN offer ON offer.region = place.region AND offer.mode = place.mode
                              AND offer.gpu_count = place.gpu_count AND offer.is_listed
    WHERE (SELECT count(*) FROM place) = cardinality($1::text[])
    ORDER BY array_position($1::text[], offer.cluster_id), offer.product_id
"""


class TapeListings:
    """The lists of products that the catalogue needs."""

    def __init__(self, database: Database, *, max_age: timedelta) -> None:
        self._database = database
        self._max_age = max_age

    async def read(self, clusters: Sequence[Cluster], *, mode: str, gpu_count: int) -> Sequence[Product] | None:
        """Products of these regions; one is in stock if any of its regions has it. None if the tape is too old."""
        ids = [cluster.id for cluster in clusters]
        rows = await self._database.raw.fetch(READ, ids, mode, gpu_count, self._max_age)
        if not rows:
            await self._want(clusters, mode=mode, gpu_count=gpu_count)
            return None
        found: dict[str, Product] = {}
        for is_available, product in rows:
            if product is None:  # a place without an offer
                continue
            # Not validated strictly: JSON has lists where the model has tuples.
            each = replace(PRODUCT.validate_python(orjson.loads(product)), is_deployable=is_available)
            known = found.get(each.id)
            found[each.id] = each if known is None or each.is_deployable else known
        return tuple(found.values())

    async def _want(self, clusters: Sequence[Cluster], *, mode: str, gpu_count: int) -> None:
        if gpu_count == 1:
            return  # always on the tape
        async with self._database.write() as session:
            await want(session, clusters, mode=mode, gpu_count=gpu_count)
