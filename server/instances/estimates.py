"""When an operation will probably be over: as long as the last ones of its kind took, for that product there."""

from datetime import timedelta
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from server.words import OperationKind

# What callers are told of a start, a restart or a migration until there is history. Creates have a setting.
UNTIL_THERE_IS_HISTORY = timedelta(minutes=3)

# Of the project's own, because the times of others are none of its business. One walk of `operation_that_succeeded`
# from its end; the median, because one pull of a huge image must not speak for all.
MEDIAN_SQL = """
    SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY took) FROM (
        SELECT finished_at - created_at AS took FROM operation
        WHERE status = 'SUCCEEDED' AND project_id = {project_id} AND kind = {kind}
          AND product_name = {product_name} AND region = {region}
        ORDER BY finished_at DESC
        LIMIT 50
    ) AS last
"""
MEDIAN = text(MEDIAN_SQL.format(project_id=":project_id", kind=":kind", product_name=":product_name", region=":region"))


async def usual_time(
    session: AsyncSession,
    kind: OperationKind,
    *,
    project_id: UUID,
    product_name: str,
    region: str | None,
    otherwise: timedelta = UNTIL_THERE_IS_HISTORY,
) -> timedelta:
    """The median of the last 50 that succeeded; `otherwise` while there is none."""
    found = await session.execute(
        MEDIAN, {"project_id": project_id, "kind": kind.value, "product_name": product_name, "region": region}
    )
    took: timedelta | None = found.scalar()
    return otherwise if took is None else took
