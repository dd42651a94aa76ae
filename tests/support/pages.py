"""Pages of instances read in a session, to compare with those past the ORM."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from server.db.tables import InstanceRow
from server.instances.queries.instances import InstanceFilter, InstanceOrder, page_values, select_page


async def page_of_instances(
    session: AsyncSession,
    *,
    project_id: UUID,
    wanted: InstanceFilter,
    first: int,
    after: tuple[Any, UUID] | None = None,
    order: InstanceOrder = InstanceOrder.CREATED_AT,
    descending: bool = True,
) -> Sequence[InstanceRow]:
    page = select_page(wanted, order, descending=descending, is_later=after is not None, first=first)
    rows = await session.execute(page, page_values(project_id, after))
    return [InstanceRow._make(row) for row in rows]
