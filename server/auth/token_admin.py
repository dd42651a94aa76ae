"""Issues, revokes and lists tokens."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from server.auth.caller import Caller
from server.auth.projects import name_problems
from server.auth.token_limits import NO_ALLOWANCE, NO_LIMITS, Allowance, TokenLimits, limits_problem
from server.auth.tokens import TOPIC, hash_of, new_secret
from server.clock import new_id, now
from server.db.database import Database, notify_after_commit
from server.db.pages import Where
from server.db.tables import Project, Token, TokenRow
from server.db.tables.rows import make_rows, select_rows
from server.enums import Role
from server.errors import Invalid, NotFound, Problem, Refused


@dataclass(frozen=True, slots=True)
class TokenDraft:
    """A requested token; without a project, for the caller's own."""

    name: str
    role: Role
    project_id: UUID | None = None
    expires_at: datetime | None = None
    limits: TokenLimits = NO_LIMITS
    allowance: Allowance = NO_ALLOWANCE

    def check(self, by: Caller) -> None:
        problems = list(self._problems(by))
        if problems:
            raise Invalid(problems)

    def _problems(self, by: Caller) -> Iterator[Problem]:
        yield from name_problems(self.name, "INVALID_TOKEN_NAME", ("input", "name"))
        path = ("input", "expiresAt")
        if self.expires_at is not None and self.expires_at <= now():
            yield Problem("INVALID_EXPIRY", "A token must expire in the future.", path)
        elif by.tokens_expire_at is not None and self.expires_at is not None and self.expires_at > by.tokens_expire_at:
            yield Problem("INVALID_EXPIRY", "A token must not outlive the token that creates it.", path)
        if self.role is Role.ADMIN and (self.limits, self.allowance) != (NO_LIMITS, NO_ALLOWANCE):
            yield limits_problem("An ADMIN could remove them; limits are for OPERATOR and READER.")
        yield from self.limits.problems()
        yield from self.allowance.problems()


@dataclass(frozen=True, slots=True)
class Issued:
    """A new token with its secret, which is not stored: the row has its hash."""

    token: Token
    secret: str


async def issue_token(
    session: AsyncSession, draft: TokenDraft, *, by: Caller, is_server_admin: bool, limit: int
) -> Issued:
    """A token of the caller's project; server admins may choose any project.

    It expires with the token that creates it, or earlier: a leaked token that is about to expire must not be able to
    create one that lasts. A person's login is no such limit, because programs need tokens that outlast it. `limit`
    counts the project's valid tokens: limits that hold per token would otherwise be worth nothing. What the draft
    allows it to spend is for `server.spend` to add.
    """
    draft.check(by)
    project_id = draft.project_id or by.project_id
    is_allowed = project_id == by.project_id or is_server_admin
    # Locked, so that two callers at once can't pass the limit.
    project = select(Project.id).where(Project.id == project_id).with_for_update(key_share=True)
    if not is_allowed or await session.scalar(project) is None:
        raise NotFound("project", ("input", "projectId"))
    is_valid = Token.revoked_at.is_(None) & (Token.expires_at.is_(None) | (Token.expires_at > now()))
    valid = select(func.count()).where(Token.project_id == project_id, is_valid, ~Token.is_session)
    if (await session.scalar(valid) or 0) >= limit:
        message = f"The project has {limit} valid tokens, the maximum. Revoke those that are not used."
        raise Refused("TOO_MANY_TOKENS", message)
    secret = new_secret()
    token = Token(
        id=new_id(),
        project_id=project_id,
        name=draft.name,
        role=draft.role,
        hash=hash_of(secret),
        hint=secret[-4:],
        created_at=now(),
        expires_at=draft.expires_at or by.tokens_expire_at,
        created_by=by.token_id,
        limits=draft.limits.to_json(),
    )
    session.add(token)
    await session.flush()
    return Issued(token, secret)


async def revoke_token(session: AsyncSession, token_id: UUID, *, by: Caller, is_server_admin: bool) -> Token:
    """The token stops working and its connections are closed. Revoking twice changes nothing."""
    query = select(Token).where(Token.id == token_id)
    if not is_server_admin:
        query = query.where(Token.project_id == by.project_id)
    token = (await session.execute(query)).scalar_one_or_none()
    if token is None:
        raise NotFound("token", ("input", "id"))
    await session.execute(
        update(Token)
        .where(Token.id == token_id, Token.revoked_at.is_(None))
        .values(revoked_at=now(), revoked_by=by.token_id)
    )
    notify_after_commit(session, TOPIC)
    await session.refresh(token)
    return token


@dataclass(frozen=True, slots=True)
class TokenFilter:
    """Filter for tokens; an empty filter matches all."""

    roles: tuple[Role, ...] = ()
    is_valid: bool | None = None


async def get_tokens(database: Database, ids: Sequence[UUID], *, project_id: UUID | None) -> dict[UUID, TokenRow]:
    """Tokens by id, of one project or of any."""
    where = "WHERE id = ANY($1::uuid[]) AND ($2::uuid IS NULL OR project_id = $2)"
    records = await database.raw.fetch_by_keys(f"{select_rows(TokenRow)} {where}", ids, project_id)
    return {row.id: row for row in make_rows(TokenRow, records)}


def conditions_on_tokens(project_id: UUID, wanted: TokenFilter) -> Where:
    where = Where().given("project_id = {}", project_id)
    if wanted.roles:
        where = where.given("role = ANY({}::text[])", [str(role) for role in wanted.roles])
    if wanted.is_valid is not None:
        valid = "(revoked_at IS NULL AND (expires_at IS NULL OR expires_at > {}))"
        where = where.given(valid if wanted.is_valid else f"NOT {valid}", now())
    return where
