"""The rows of the last check."""

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.tables.probe import ProbeResult

COLUMNS = tuple(column.name for column in ProbeResult.__table__.columns if column.name not in ("instance_id", "port"))


async def results_of(session: AsyncSession, instance_ids: Sequence[UUID]) -> dict[UUID, list[ProbeResult]]:
    """By instance, each in the order of its ports."""
    found = await session.execute(
        select(ProbeResult)
        .where(ProbeResult.instance_id.in_(instance_ids))
        .order_by(ProbeResult.instance_id, ProbeResult.port)
    )
    grouped: dict[UUID, list[ProbeResult]] = {instance_id: [] for instance_id in instance_ids}
    for row in found.scalars():
        grouped[row.instance_id].append(row)
    return grouped


async def save(
    session: AsyncSession, instance_id: UUID, results: Sequence[ProbeResult], *, instead_of: Sequence[ProbeResult]
) -> None:
    """Put these in the place of what was known; ports that are no longer probed go."""
    gone = {result.port for result in instead_of} - {result.port for result in results}
    if gone:
        await session.execute(
            delete(ProbeResult).where(ProbeResult.instance_id == instance_id, ProbeResult.port.in_(gone))
        )
    rows = [
        {"instance_id": instance_id, "port": result.port, **{name: getattr(result, name) for name in COLUMNS}}
        for result in results
    ]
    statement = insert(ProbeResult).values(rows)
    await session.execute(
        statement.on_conflict_do_update(
            index_elements=["instance_id", "port"],
            set_={name: statement.excluded[name] for name in COLUMNS},
        )
    )


async def forget(session: AsyncSession, instance_id: UUID) -> None:
    """A new run begins: what was found in the last one is no longer true."""
    await session.execute(delete(ProbeResult).where(ProbeResult.instance_id == instance_id))
