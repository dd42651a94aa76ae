"""Tokens, as those may see them who rule over their project."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import ColumnElement, func, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import now
from server.db.tables import Token
from server.words import Role


@dataclass(frozen=True, slots=True)
class TokenFilter:
    """Which tokens of a project; an empty filter means all."""

    roles: tuple[Role, ...] = ()
    is_valid: bool | None = None


async def get_tokens(session: AsyncSession, ids: Sequence[UUID], *, project_id: UUID | None) -> dict[UUID, Token]:
    """Of one project, or of any."""
    query = select(Token).where(Token.id.in_(ids))
    if project_id is not None:
        query = query.where(Token.project_id == project_id)
    return {row.id: row for row in (await session.execute(query)).scalars()}


async def page_of_tokens(
    session: AsyncSession,
    *,
    project_id: UUID,
    wanted: TokenFilter,
    first: int,
    after: tuple[datetime, UUID] | None = None,
) -> Sequence[Token]:
    """Newest first."""
    query = select(Token).where(*_conditions(project_id, wanted))
    if after is not None:
        query = query.where(tuple_(Token.created_at, Token.id) < after)
    found = await session.execute(query.order_by(Token.created_at.desc(), Token.id.desc()).limit(first))
    return found.scalars().all()


async def count_tokens(session: AsyncSession, *, project_id: UUID, wanted: TokenFilter) -> int:
    found = await session.execute(select(func.count()).select_from(Token).where(*_conditions(project_id, wanted)))
    return found.scalar_one()


def _conditions(project_id: UUID, wanted: TokenFilter) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = [Token.project_id == project_id]
    if wanted.roles:
        conditions.append(Token.role.in_([str(role) for role in wanted.roles]))
    if wanted.is_valid is not None:
        valid = Token.revoked_at.is_(None) & (Token.expires_at.is_(None) | (Token.expires_at > now()))
        conditions.append(valid if wanted.is_valid else ~valid)
    return conditions
