"""Giving out tokens and taking them back, as a caller asks for it."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession

from server.auth.caller import Caller
from server.auth.names import name_problems
from server.auth.tokens import TOPIC, hash_of, new_secret
from server.clock import new_id, now
from server.db.engine import will_change
from server.db.tables import Project, Token
from server.errors import Invalid, NotFound, Problem
from server.words import Role


@dataclass(frozen=True, slots=True)
class TokenDraft:
    """What a caller asks for; without a project, one for their own."""

    name: str
    role: Role
    project_id: UUID | None = None
    expires_at: datetime | None = None

    def check(self, by: Caller) -> None:
        problems = list(self._problems(by))
        if problems:
            raise Invalid(problems)

    def _problems(self, by: Caller) -> Iterator[Problem]:
        yield from name_problems(self.name, "INVALID_TOKEN_NAME", ("input", "name"))
        path = ("input", "expiresAt")
        if self.expires_at is not None and self.expires_at <= now():
            yield Problem("INVALID_EXPIRY", "A token must expire in the future.", path)
        elif by.expires_at is not None and self.expires_at is not None and self.expires_at > by.expires_at:
            yield Problem("INVALID_EXPIRY", "It must not outlive the token that makes it.", path)


@dataclass(frozen=True, slots=True)
class Issued:
    """The secret is nowhere else: the row has its hash."""

    token: Token
    secret: str


async def issue_token(session: AsyncSession, draft: TokenDraft, *, by: Caller, runs_the_server: bool) -> Issued:
    """A token of the caller's project, or of any for those who run the server.

    One that was made by a token that expires does so too, by then at the latest: who finds a token that is nearly over
    must not be able to make another that lasts.
    """
    draft.check(by)
    project_id = draft.project_id or by.project_id
    may = project_id == by.project_id or runs_the_server
    if not may or await session.scalar(select(Project.id).where(Project.id == project_id)) is None:
        raise NotFound("project", ("input", "projectId"))
    secret = new_secret()
    token = Token(
        id=new_id(),
        project_id=project_id,
        name=draft.name,
        role=draft.role,
        hash=hash_of(secret),
        hint=secret[-4:],
        created_at=now(),
        expires_at=draft.expires_at or by.expires_at,
        created_by=by.token_id,
    )
    session.add(token)
    await session.flush()
    return Issued(token, secret)


async def revoke_token(session: AsyncSession, token_id: UUID, *, by: Caller, runs_the_server: bool) -> Token:
    """From now on it opens nothing, and its sockets are closed. Revoking twice changes nothing."""
    found = select(Token).where(Token.id == token_id)
    if not runs_the_server:
        found = found.where(Token.project_id == by.project_id)
    token = (await session.execute(found)).scalar_one_or_none()
    if token is None:
        raise NotFound("token", ("input", "id"))
    await session.execute(
        update(Token)
        .where(Token.id == token_id, Token.revoked_at.is_(None))
        .values(revoked_at=now(), revoked_by=by.token_id)
    )
    will_change(session, TOPIC)
    await session.refresh(token)
    return token
