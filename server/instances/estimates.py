"""How long operations of a kind usually take once they have begun: the median of the project's last ones."""

import time
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.database import Database
from server.enums import OperationKind

# The estimate of a start, a restart or a migration while there is no history. Creates have a setting.
DEFAULT_ESTIMATE = timedelta(minutes=3)

# Only the project's own operations: other projects' times are private. One walk of `operation_that_succeeded` from its
# end. The median, because one pull of a huge image must not distort the estimate.
MEDIAN_SQL = """
    SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY took) FROM (
        SELECT finished_at - coalesce(started_at, created_at) AS took FROM operation
        WHERE status = 'SUCCEEDED' AND project_id = {project_id} AND kind = {kind}
          AND product_name = {product_name} AND region = {region}
        ORDER BY finished_at DESC
        LIMIT 50
    ) AS last
"""
MEDIAN = text(MEDIAN_SQL.format(project_id=":project_id", kind=":kind", product_name=":product_name", region=":region"))
MEDIAN_FOR_POOL = MEDIAN_SQL.format(project_id="$1", kind="$2", product_name="$3", region="$4")

CACHE_TTL = 5.0  # seconds
CACHE_MAX = 10_000


async def usual_time(
    session: AsyncSession,
    kind: OperationKind,
    *,
    project_id: UUID,
    product_name: str,
    region: str | None,
    default: timedelta = DEFAULT_ESTIMATE,
) -> timedelta:
    """The median of the last 50 that succeeded; `default` while there is none."""
    median = await median_time(session, kind, project_id=project_id, product_name=product_name, region=region)
    return default if median is None else median


async def median_time(
    session: AsyncSession, kind: OperationKind, *, project_id: UUID, product_name: str, region: str | None
) -> timedelta | None:
    """The same; None while there is none."""
    result = await session.execute(
        MEDIAN, {"project_id": project_id, "kind": kind.value, "product_name": product_name, "region": region}
    )
    return result.scalar()


class CreateEstimates:
    """The usual times of creates, cached for a few seconds."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._cache: dict[tuple[UUID, str, str], tuple[timedelta | None, float]] = {}

    async def usual_time(self, *, project_id: UUID, product_name: str, region: str) -> timedelta | None:
        """The median of the project's last 50 of that product there; None while there is none."""
        key = (project_id, product_name, region)
        cached = self._cache.get(key)
        if cached is not None and cached[1] > time.monotonic():
            return cached[0]
        median: Any = await self._database.raw.fetchval(
            MEDIAN_FOR_POOL, project_id, OperationKind.CREATE.value, product_name, region
        )
        if len(self._cache) >= CACHE_MAX:
            self._cache.clear()
        self._cache[key] = (median, time.monotonic() + CACHE_TTL)
        return median
