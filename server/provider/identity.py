"""Which provider a database belongs to: the row, and what the settings lead to.

The API has nothing that names an account, so an account is known by its base URL and by the keys that worked with it.
A new key proves that it is of the same account by seeing one of our machines; otherwise an operator confirms it.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import Any, cast

from pydantic import SecretStr
from sqlalchemy import text, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.tables import ProviderIdentity
from server.enums import ProviderKind

# Of known keys; a key that was not used for this many rotations has to be confirmed again.
KEYS_MAX = 20
# Each is one call when a key is new.
MACHINES_TO_TRY = 5

MACHINES = text("""
    SELECT novita_id FROM instance
    WHERE novita_id IS NOT NULL AND status <> 'DELETED'
    ORDER BY created_at DESC
    LIMIT :limit
""")


@dataclass(frozen=True, slots=True)
class FoundProvider:
    """What the settings lead to. `world_id` is None at the real provider."""

    base_url: str
    key: SecretStr
    world_id: str | None

    @property
    def kind(self) -> ProviderKind:
        return ProviderKind.NOVITA if self.world_id is None else ProviderKind.SIMULATOR

    def confirmation(self) -> str:
        """The word by which an operator confirms it. Of a key only a short hash: it is shown and typed."""
        if self.world_id is not None:
            return self.world_id
        return hash_key(self.key, salt=self.base_url)[:12]

    def __str__(self) -> str:
        return _describe(self.base_url, self.world_id)


def hash_key(key: SecretStr, *, salt: str) -> str:
    """Keys are long and random, so the salt is enough: it keeps equal keys of two databases from being compared."""
    return hmac.new(salt.encode(), key.get_secret_value().encode(), hashlib.sha256).hexdigest()


def knows_key(row: ProviderIdentity, key: SecretStr) -> bool:
    return hash_key(key, salt=row.salt) in row.key_hashes


def has_same_settings(row: ProviderIdentity, base_url: str, key: SecretStr) -> bool:
    """Whether the row was last confirmed with this address and key; then it holds while the provider is away, too."""
    return row.base_url == base_url and knows_key(row, key)


def describe(row: ProviderIdentity) -> str:
    return _describe(row.base_url, row.world_id)


async def read_identity(session: AsyncSession) -> ProviderIdentity | None:
    return await session.get(ProviderIdentity, True)


async def bind(session: AsyncSession, found: FoundProvider) -> ProviderIdentity:
    """The row of this database, written now if there is none. Of two that bind at once, the second gets the first's."""
    await session.execute(insert(ProviderIdentity).values(**_values(found)).on_conflict_do_nothing())
    return await session.get_one(ProviderIdentity, True, populate_existing=True)


async def rebind(session: AsyncSession, found: FoundProvider) -> None:
    """Make the database belong to another provider. The answers about the former one go with it."""
    values = {**_values(found), "answers": None, "answered_at": None, "bound_at": text("now()")}
    written = insert(ProviderIdentity).values(**values)
    await session.execute(written.on_conflict_do_update(index_elements=["is_the_only_row"], set_=values))


async def remember_settings(session: AsyncSession, row: ProviderIdentity, found: FoundProvider) -> None:
    """Another address or key that leads to the same provider."""
    hashed = hash_key(found.key, salt=row.salt)
    hashes = [*(each for each in row.key_hashes if each != hashed), hashed][-KEYS_MAX:]
    await session.execute(update(ProviderIdentity).values(base_url=found.base_url, key_hashes=hashes))


async def machines_to_try(session: AsyncSession) -> list[str]:
    """Ids of our newest machines, to see whether a key is of the account that has them."""
    rows = await session.execute(MACHINES, {"limit": MACHINES_TO_TRY})
    return [cast(str, each) for each in rows.scalars()]


def _values(found: FoundProvider) -> dict[str, Any]:
    salt = secrets.token_hex(16)
    return {
        "kind": found.kind,
        "base_url": found.base_url,
        "world_id": found.world_id,
        "salt": salt,
        "key_hashes": [hash_key(found.key, salt=salt)],
    }


def _describe(base_url: str, world_id: str | None) -> str:
    return f"the Novita account at {base_url}" if world_id is None else f"the simulated world {world_id}"
