"""A project's instances in numbers."""

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import case, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.tables import Instance
from server.words import InstanceStatus

# The provider asks for money while a machine is there to be used.
PAID = (InstanceStatus.RUNNING, InstanceStatus.HEALTH_CHECKING, InstanceStatus.READY)


@dataclass(frozen=True, slots=True)
class FleetStats:
    """Compared with the last one, to tell only what is new."""

    by_status: dict[InstanceStatus, int]
    price_per_hour_e5: int


async def fleet_stats(session: AsyncSession, *, project_id: UUID) -> FleetStats:
    """Of all that are not deleted; the price is of those that run."""
    price = func.sum(case((Instance.status.in_(PAID), Instance.price_per_hour_e5), else_=0))
    rows = await session.execute(
        select(Instance.status, func.count().label("count"), func.coalesce(price, 0).label("price"))
        .where(Instance.project_id == project_id, Instance.status != InstanceStatus.DELETED)
        .group_by(Instance.status)
    )
    found = rows.all()
    return FleetStats(
        by_status={InstanceStatus(row.status): row[1] for row in found},
        price_per_hour_e5=sum(int(row.price) for row in found),
    )
