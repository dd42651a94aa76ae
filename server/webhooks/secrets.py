"""A project's signing secrets. None is stored: each is made from a salt in its row and one key of the server's."""

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from sqlalchemy import ColumnElement, delete, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import now
from server.db.tables import Project, WebhookSecret
from server.errors import PilotlightError

SHORTEST_KEY = 16


class WrongKey(PilotlightError):
    """This process has another key than the one that the project's secrets were made with, or none."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """WEBHOOK_SIGNING_KEY. Whoever has it and the database can sign for every project."""

    raw: bytes = field(repr=False)

    def secret(self, project_id: UUID, salt: bytes) -> bytes:
        return hmac.new(self.raw, b"webhook secret\0" + project_id.bytes + salt, hashlib.sha256).digest()

    def check(self, salt: bytes) -> bytes:
        """Tells keys apart and tells nothing about them."""
        return hmac.new(self.raw, b"webhook key check\0" + salt, hashlib.sha256).digest()[:8]


async def projects_with_another_key(session: AsyncSession, key: SigningKey | None) -> int:
    """How many projects have a secret that this key, or none, could not sign with."""
    rows = await session.execute(select(WebhookSecret).where(_signs_now()))
    return len({row.project_id for row in rows.scalars() if key is None or row.key_check != key.check(row.salt)})


async def signing_secrets(session: AsyncSession, project_id: UUID, key: SigningKey | None) -> list[bytes]:
    """All that sign now, newest first; the first one is made when there is none. Raises WrongKey."""
    if key is None:
        raise WrongKey("WEBHOOK_SIGNING_KEY is not set")
    rows = await _current(session, project_id)
    if not rows:
        await session.execute(_new(project_id, 1, key).on_conflict_do_nothing())
        rows = await _current(session, project_id)
    if any(row.key_check != key.check(row.salt) for row in rows):
        raise WrongKey("WEBHOOK_SIGNING_KEY is another one than the secrets were made with")
    return [key.secret(project_id, row.salt) for row in rows]


async def rotate(session: AsyncSession, project_id: UUID, key: SigningKey, *, overlap: timedelta) -> bytes:
    """Make a new secret and give it back, once. The one before goes on signing beside it for `overlap`.

    The way out when the server's key was lost or changed, too: what was made with another key is dropped at once.
    """
    # Rotations of one project go one by one.
    await session.execute(select(Project.id).where(Project.id == project_id).with_for_update(key_share=True))
    found = await session.execute(
        select(WebhookSecret).where(WebhookSecret.project_id == project_id).order_by(WebhookSecret.generation)
    )
    rows = found.scalars().all()
    moment = now()
    over = [row.generation for row in rows if _is_over(row, key)]
    await session.execute(
        delete(WebhookSecret).where(WebhookSecret.project_id == project_id, WebhookSecret.generation.in_(over))
    )
    await session.execute(
        update(WebhookSecret)
        .where(WebhookSecret.project_id == project_id, WebhookSecret.retires_at.is_(None))
        .values(retires_at=moment + overlap)
    )
    generation = 1 + (rows[-1].generation if rows else 0)
    made = await session.execute(_new(project_id, generation, key).returning(WebhookSecret.salt))
    return key.secret(project_id, made.scalar_one())


def _is_over(row: WebhookSecret, key: SigningKey) -> bool:
    return (row.retires_at is not None and row.retires_at <= now()) or row.key_check != key.check(row.salt)


def _new(project_id: UUID, generation: int, key: SigningKey):
    salt = secrets.token_bytes(16)
    return insert(WebhookSecret).values(
        project_id=project_id, generation=generation, salt=salt, key_check=key.check(salt), created_at=now()
    )


async def _current(session: AsyncSession, project_id: UUID) -> list[WebhookSecret]:
    found = await session.execute(
        select(WebhookSecret)
        .where(WebhookSecret.project_id == project_id, _signs_now())
        .order_by(WebhookSecret.generation.desc())
    )
    return list(found.scalars())


def _signs_now() -> ColumnElement[bool]:
    return or_(WebhookSecret.retires_at.is_(None), WebhookSecret.retires_at > now())
