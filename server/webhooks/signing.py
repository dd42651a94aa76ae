"""Signs webhooks: the server's signing key, the projects' secrets and their rotation."""

import base64
import hashlib
import hmac
import os
import secrets
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

from pydantic import SecretStr
from sqlalchemy import ColumnElement, delete, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import now
from server.db.tables import Project, WebhookSecret
from server.errors import PilotlightError

KEY_FILE = "webhook.key"


class WrongSigningKey(PilotlightError):
    """This process has no signing key, or not the one the project's secrets were derived from."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """WEBHOOK_SIGNING_KEY. Together with the database it can sign for every project.

    New secrets are derived from `raw`; those derived from a previous key stay good as long as it is listed.
    """

    raw: bytes = field(repr=False)
    previous: tuple[bytes, ...] = field(default=(), repr=False)

    def secret(self, project_id: UUID, salt: bytes) -> bytes:
        return hmac.new(self.raw, b"webhook secret\0" + project_id.bytes + salt, hashlib.sha256).digest()

    def check(self, salt: bytes) -> bytes:
        """Identifies the key without revealing it."""
        return hmac.new(self.raw, b"webhook key check\0" + salt, hashlib.sha256).digest()[:8]

    def behind(self, row: WebhookSecret) -> "SigningKey | None":
        """The key, this or a previous one, that a stored secret was derived from; None if it is another."""
        keys = (self, *(SigningKey(raw) for raw in self.previous))
        return next((key for key in keys if row.key_check == key.check(row.salt)), None)


SECRET_PREFIX = "whsec_"


def find_key(setting: SecretStr | None, home: Path) -> SigningKey | None:
    """The key of the setting, else of the file in the home directory; None if there is neither."""
    if setting is not None:
        whole = setting.get_secret_value()
        first, *others = (each.strip().encode() for each in whole.split(","))
        # All of it as well: before the setting was a list, a key could have a comma.
        return SigningKey(first, (*others, whole.encode()) if others else ())
    try:
        content = (home.expanduser() / KEY_FILE).read_text().strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return SigningKey(content.encode()) if content else None


def make_key(home: Path) -> None:
    """Create the key file unless it exists: with another key, the secrets that receivers know would become invalid."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (home / KEY_FILE).exists():
        return
    # Written under another name, then linked: a kill or a concurrent call never leaves half a key.
    handle, name = tempfile.mkstemp(dir=home, prefix=f".{KEY_FILE}-")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(secrets.token_urlsafe(32))
        with suppress(FileExistsError):
            os.link(name, home / KEY_FILE)
    finally:
        os.unlink(name)


async def projects_with_another_key(session: AsyncSession, key: SigningKey | None) -> int:
    """How many projects have a secret that needs a key which is not listed."""
    rows = await session.execute(select(WebhookSecret).where(_signs_now()))
    return len({row.project_id for row in rows.scalars() if key is None or key.behind(row) is None})


async def projects_with_a_previous_key(session: AsyncSession, key: SigningKey) -> int:
    """How many projects have a secret that needs one of the previous keys: until it is 0, none may be removed."""
    rows = await session.execute(select(WebhookSecret).where(_signs_now()))
    return len({row.project_id for row in rows.scalars() if row.key_check != key.check(row.salt) and key.behind(row)})


async def signing_secrets(session: AsyncSession, project_id: UUID, key: SigningKey | None) -> list[bytes]:
    """The current secrets, newest first; creates the first one. Raises WrongSigningKey."""
    if key is None:
        raise WrongSigningKey("WEBHOOK_SIGNING_KEY is not set")
    rows = await _signing_rows(session, project_id)
    if not rows:
        await session.execute(_new(project_id, 1, key).on_conflict_do_nothing())
        rows = await _signing_rows(session, project_id)
    keys = [(key.behind(row), row.salt) for row in rows]
    derived = [behind.secret(project_id, salt) for behind, salt in keys if behind is not None]
    if len(derived) < len(rows):
        raise WrongSigningKey("WEBHOOK_SIGNING_KEY does not have the key the secrets were derived from")
    return derived


async def rotate(session: AsyncSession, project_id: UUID, key: SigningKey, *, overlap: timedelta) -> bytes:
    """Create and return a new secret. The previous one signs as well for `overlap`.

    Also the way to recover from a lost signing key: secrets of a key that is not listed are deleted at once.
    """
    # Serialises the rotations of one project.
    await session.execute(select(Project.id).where(Project.id == project_id).with_for_update(key_share=True))
    result = await session.execute(
        select(WebhookSecret).where(WebhookSecret.project_id == project_id).order_by(WebhookSecret.generation)
    )
    rows = result.scalars().all()
    moment = now()
    expired = [row.generation for row in rows if _is_expired(row, key)]
    await session.execute(
        delete(WebhookSecret).where(WebhookSecret.project_id == project_id, WebhookSecret.generation.in_(expired))
    )
    await session.execute(
        update(WebhookSecret)
        .where(WebhookSecret.project_id == project_id, WebhookSecret.retires_at.is_(None))
        .values(retires_at=moment + overlap)
    )
    generation = 1 + (rows[-1].generation if rows else 0)
    created = await session.execute(_new(project_id, generation, key).returning(WebhookSecret.salt))
    return key.secret(project_id, created.scalar_one())


def _is_expired(row: WebhookSecret, key: SigningKey) -> bool:
    return (row.retires_at is not None and row.retires_at <= now()) or key.behind(row) is None


def _new(project_id: UUID, generation: int, key: SigningKey):
    salt = secrets.token_bytes(16)
    return insert(WebhookSecret).values(
        project_id=project_id, generation=generation, salt=salt, key_check=key.check(salt), created_at=now()
    )


async def _signing_rows(session: AsyncSession, project_id: UUID) -> list[WebhookSecret]:
    result = await session.execute(
        select(WebhookSecret)
        .where(WebhookSecret.project_id == project_id, _signs_now())
        .order_by(WebhookSecret.generation.desc())
    )
    return list(result.scalars())


def _signs_now() -> ColumnElement[bool]:
    return or_(WebhookSecret.retires_at.is_(None), WebhookSecret.retires_at > now())


def signature_headers(delivery_id: UUID, body: str, secrets: Sequence[bytes], *, at: datetime) -> dict[str, str]:
    """Id and body are the same for every attempt; the timestamp, and so the signature, differs."""
    message_id = f"msg_{delivery_id.hex}"
    timestamp = str(int(at.timestamp()))
    signed = f"{message_id}.{timestamp}.{body}".encode()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(_signature(secret, signed) for secret in secrets),
    }


def format_secret(secret: bytes) -> str:
    """A secret as shown to users."""
    return SECRET_PREFIX + base64.b64encode(secret).decode()


def _signature(secret: bytes, signed: bytes) -> str:
    return "v1," + base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()
