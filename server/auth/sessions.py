"""Sessions of people who logged in: tokens that expire soon and are accepted from a cookie only."""

from datetime import timedelta

from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncSession

from server.auth.oidc import LoginFailed, Person
from server.auth.tokens import SESSION_PREFIX, TOPIC, ensure_project, hash_of, new_secret
from server.clock import new_id, now
from server.config.login import GroupRole
from server.db.database import notify_after_commit
from server.db.tables import Token
from server.enums import Role


def role_of(person: Person, groups: list[GroupRole], project: str | None) -> GroupRole:
    """What the person may do: in the project, or in the first one that a group is for. Raises LoginFailed."""
    roles = list(Role)
    found = [each for each in groups if each.group in person.groups]
    chosen = [each for each in found if each.project == (project or found[0].project)]
    if not chosen:
        where = "Pilotlight" if project is None else f"the project {project}"
        raise LoginFailed(f"None of your groups may use {where}. An administrator can change OIDC_GROUPS.")
    return max(chosen, key=lambda each: roles.index(each.role))


async def begin_session(session: AsyncSession, person: Person, may: GroupRole, *, lifetime: timedelta) -> str:
    """The secret for the cookie."""
    secret = new_secret(SESSION_PREFIX)
    token = Token(
        id=new_id(),
        project_id=await ensure_project(session, may.project),
        name=person.name,
        role=may.role,
        hash=hash_of(secret),
        hint=secret[-4:],
        created_at=now(),
        expires_at=now() + lifetime,
        is_session=True,
    )
    session.add(token)
    return secret


async def end_session(session: AsyncSession, secret: str) -> None:
    """Ending it twice changes nothing."""
    ended = update(Token).where(Token.hash == hash_of(secret), Token.is_session, Token.revoked_at.is_(None))
    await session.execute(ended.values(revoked_at=now()))
    notify_after_commit(session, TOPIC)
