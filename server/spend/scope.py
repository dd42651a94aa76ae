"""What a budget or a quota is about: the project, one label, or one token."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias
from uuid import UUID

import orjson
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from server.auth.caller import Caller
from server.db.pages import Where
from server.db.tables import BudgetLike, Project, QuotaLike, Token
from server.db.text import is_storable
from server.errors import NotFound

LABEL_MAX, VALUE_MAX = 63, 255


Scoped: TypeAlias = BudgetLike | QuotaLike


def is_in_scope(row: Scoped, *, token_id: UUID | None, labels: Mapping[str, str]) -> bool:
    if row.token_id is not None:
        return row.token_id == token_id
    return row.label_key is None or labels.get(row.label_key) == row.label_value


def is_shown(row: Scoped, by: Caller) -> bool:
    """Others would show a token that sees only its own instances what the instances of other tokens use."""
    return by.owner_id is None or row.token_id == by.owner_id


def shown_to(by: Caller) -> Where:
    """The same for a page."""
    where = Where().given("project_id = {}", by.project_id)
    return where if by.owner_id is None else where.given("token_id = {}", by.owner_id)


def is_label(key: str, value: str) -> bool:
    return 1 <= len(key) <= LABEL_MAX and len(value) <= VALUE_MAX and is_storable(key + value)


def label_json(row: Scoped) -> str | None:
    return None if row.label_key is None else orjson.dumps({row.label_key: row.label_value}).decode()


def scope_values(row: Scoped) -> dict[str, Any]:
    """The columns of one scope in a statement that reads what several have used."""
    label = None if row.label_key is None else {row.label_key: row.label_value}
    return {"id": row.id, "project_id": row.project_id, "label": label, "token_id": row.token_id}


def to_json(rows: Iterable[dict[str, Any]]) -> str:
    return orjson.dumps(list(rows), default=str).decode()  # default: asyncpg has its own UUID class


async def lock_project(session: AsyncSession, project_id: UUID) -> None:
    """Serialises what is added to one project, so that counts hold."""
    await session.execute(select(Project.id).where(Project.id == project_id).with_for_update(key_share=True))


async def refuse_foreign_token(session: AsyncSession, token_id: UUID | None, *, project_id: UUID) -> None:
    token = None if token_id is None else await session.get(Token, token_id)
    if token_id is not None and (token is None or token.project_id != project_id):
        raise NotFound("token", ("input", "scope", "tokenId"))
