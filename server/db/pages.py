"""Pages of a table's rows, newest first."""

from collections.abc import Sequence
from datetime import datetime
from typing import TypeVar
from uuid import UUID

from sqlalchemy import ColumnElement, func, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.tables import Delivery, Operation, Project, Token

Row = TypeVar("Row", Delivery, Operation, Project, Token)


async def newest_first(
    session: AsyncSession,
    table: type[Row],
    conditions: Sequence[ColumnElement[bool]],
    *,
    first: int,
    after: tuple[datetime, UUID] | None = None,
) -> Sequence[Row]:
    query = select(table).where(*conditions)
    if after is not None:
        query = query.where(tuple_(table.created_at, table.id) < after)
    rows = await session.execute(query.order_by(table.created_at.desc(), table.id.desc()).limit(first))
    return rows.scalars().all()


async def count_rows(session: AsyncSession, table: type[Row], conditions: Sequence[ColumnElement[bool]]) -> int:
    return (await session.execute(select(func.count()).select_from(table).where(*conditions))).scalar_one()
