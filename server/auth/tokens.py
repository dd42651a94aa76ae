"""Making and recognising bearer tokens. Only hashes are stored."""

import hashlib
import secrets
from collections.abc import Collection
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import ColumnElement, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from server.auth.caller import Caller
from server.clock import new_id, now
from server.db.engine import Database
from server.db.tables import Project, Token
from server.words import Role

PREFIX = "pl_"
DEFAULT_PROJECT = "default"
SEEN_EVERY = timedelta(minutes=1)  # `last_used_at` is for people; a write per request would be a write per read


def new_secret() -> str:
    """256 random bits: no guessing, so a fast hash is enough to store them."""
    return PREFIX + secrets.token_urlsafe(32)


def hash_of(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


async def create_token(
    session: AsyncSession,
    *,
    project: str,
    name: str,
    role: Role,
    secret: str,
    expires_at: datetime | None = None,
) -> UUID:
    """Store a token for a project, making the project if there is none of that name. The same secret again is no-op."""
    project_id = await ensure_project(session, project)
    row = await session.execute(
        insert(Token)
        .values(
            id=new_id(),
            project_id=project_id,
            name=name,
            role=role,
            hash=hash_of(secret),
            hint=secret[-4:],
            expires_at=expires_at,
        )
        .on_conflict_do_update(index_elements=["hash"], set_={"hash": hash_of(secret)})
        .returning(Token.id)
    )
    return row.scalar_one()


async def ensure_project(session: AsyncSession, name: str) -> UUID:
    row = await session.execute(
        insert(Project)
        .values(id=new_id(), name=name)
        .on_conflict_do_update(index_elements=["name"], set_={"name": name})
        .returning(Project.id)
    )
    return row.scalar_one()


async def any_token(session: AsyncSession) -> bool:
    """Whether anybody could call the API at all."""
    return (await session.execute(select(Token.id).where(_is_valid()).limit(1))).first() is not None


class Tokens:
    """Recognises callers, and remembers when each was last seen."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._seen: dict[UUID, datetime] = {}

    async def caller_of(self, secret: str) -> Caller | None:
        """Whose token this is; None when it is nobody's, expired or revoked."""
        async with self._database.read() as session:
            found = await session.execute(
                select(Token.id, Token.project_id, Token.role, Token.expires_at).where(
                    Token.hash == hash_of(secret), _is_valid()
                )
            )
            row = found.first()
        if row is None:
            return None
        await self._note_use(row.id)
        return Caller(project_id=row.project_id, token_id=row.id, role=Role(row.role), expires_at=row.expires_at)

    async def still_valid(self, token_ids: Collection[UUID]) -> frozenset[UUID]:
        """Those that are neither expired nor revoked."""
        async with self._database.read() as session:
            found = await session.execute(select(Token.id).where(Token.id.in_(token_ids), _is_valid()))
            return frozenset(found.scalars())

    async def _note_use(self, token_id: UUID) -> None:
        moment = now()
        seen = self._seen.get(token_id)
        if seen is not None and moment - seen < SEEN_EVERY:
            return
        self._seen[token_id] = moment
        async with self._database.write() as session:
            await session.execute(update(Token).where(Token.id == token_id).values(last_used_at=moment))


def _is_valid() -> ColumnElement[bool]:
    moment = now()
    return Token.revoked_at.is_(None) & (Token.expires_at.is_(None) | (Token.expires_at > moment))
