"""The provider's regions as last listed; each has segments."""

from collections.abc import Sequence
from datetime import datetime

import orjson
from pydantic import TypeAdapter
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from server.market.segments import add_segments, read_counts
from server.novita.models import Cluster

CLUSTER: TypeAdapter[Cluster] = TypeAdapter(Cluster)

WRITE_REGIONS = text("""
    WITH listed AS (
        SELECT region, cluster_id, list_order, cluster
        FROM jsonb_to_recordset(CAST(:regions AS jsonb)) AS new (
            region text, cluster_id text, list_order smallint, cluster jsonb)
    ), gone AS (
        DELETE FROM market_region WHERE region NOT IN (SELECT region FROM listed)
    )
    INSERT INTO market_region (region, cluster_id, list_order, cluster, polled_at, seen_at)
    SELECT region, cluster_id, list_order, cluster, :at, :at FROM listed ORDER BY region
    ON CONFLICT (region) DO UPDATE
    SET cluster_id = excluded.cluster_id, list_order = excluded.list_order, cluster = excluded.cluster,
        polled_at = excluded.polled_at, seen_at = excluded.seen_at
""")


async def record_regions(session: AsyncSession, clusters: Sequence[Cluster], *, at: datetime) -> None:
    """Write the list of a call that began at `at`. Segments of a region that is gone are no longer polled."""
    by_code = {cluster.code: cluster for cluster in clusters}
    regions = [
        {
            "region": code,
            "cluster_id": cluster.id,
            "list_order": number,
            "cluster": CLUSTER.dump_python(cluster, mode="json"),
        }
        for number, (code, cluster) in enumerate(by_code.items())
    ]
    if not regions:  # an account without regions is one that the provider could not list
        return
    await session.execute(WRITE_REGIONS, {"regions": orjson.dumps(regions).decode(), "at": at})
    await add_segments(session, sorted(await read_counts(session)))
