"""Environment variables of instances: which of them are secret, how they are stored, and encrypting them again."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.database import Database
from server.db.pool import RawPool
from server.db.tables import Instance
from server.encryption import Cipher
from server.enums import InstanceStatus

# Names that contain one of these, in any case, are secret unless the caller says otherwise. Too many rather than too
# few: a wrong guess hides a value, the other one shows it. docs/api.md has the same list.
SECRET_WORDS = (
    "AUTH",
    "CERT",
    "CONNECTION_STRING",
    "CREDENTIAL",
    "DATABASE_URL",
    "DSN",
    "KEY",
    "PASS",
    "PRIVATE",
    "PWD",
    "REDIS_URL",
    "SECRET",
    "SIGNATURE",
    "TOKEN",
    "WEBHOOK",
)
BATCH_SIZE = 500

ERASE_DELETED = """
    UPDATE instance SET env = '{}'::jsonb WHERE id = ANY(ARRAY(
        SELECT id FROM instance WHERE status = 'DELETED' AND env <> '{}'::jsonb
        LIMIT $1
        FOR NO KEY UPDATE SKIP LOCKED
    ))
"""


def looks_secret(name: str) -> bool:
    """Whether a variable of this name is secret by default."""
    return any(word in name.upper() for word in SECRET_WORDS)


def secret_names(env: Mapping[str, Any], stated: Iterable[tuple[str, bool]] = ()) -> list[str]:
    """The names of secret variables: as the caller stated, else by their names."""
    said = dict(stated)
    return sorted(name for name in env if said.get(name, looks_secret(name)))


def is_secret(name: str, secret_env: list[str] | None) -> bool:
    """`secret_env` is the column of the instance; null for rows of a process that does not know it."""
    return looks_secret(name) if secret_env is None else name in secret_env


def sealed(env: Mapping[str, str], cipher: Cipher) -> dict[str, Any]:
    """The variables as they are stored."""
    return {name: cipher.seal(value) for name, value in env.items()}


def opened(instance: Instance, cipher: Cipher) -> dict[str, str]:
    """The variables of the container. Raises UnknownEncryptionKey."""
    return {name: cipher.open(value) for name, value in instance.env.items()}


async def erase_deleted(pool: RawPool, *, limit: int) -> int:
    """Erase the variables of instances that a process of an older release deleted; returns how many."""
    return int((await pool.execute(ERASE_DELETED, limit)).rsplit(" ", 1)[1])


@dataclass(frozen=True, slots=True)
class StoredCounts:
    """How many instances have variables that are not stored as they would be now, or that can't be read."""

    outdated: int
    unreadable: int


async def count_stored(session: AsyncSession, cipher: Cipher) -> StoredCounts:
    rows = await session.execute(select(Instance.env).where(_has_env()))
    outdated = unreadable = 0
    for env in rows.scalars():
        outdated += not all(cipher.is_current(value) for value in env.values())
        unreadable += not all(cipher.is_known(value) for value in env.values())
    return StoredCounts(outdated, unreadable)


async def reseal(database: Database, cipher: Cipher, *, to: Cipher) -> int:
    """Store the variables of all instances as `to` stores them; returns of how many instances. May be repeated.

    Raises UnknownEncryptionKey; what was done until then stays.
    """
    changed, last = 0, None
    while True:
        async with database.write() as session:
            rows = await session.execute(
                select(Instance.id, Instance.env)
                .where(_has_env(), *([] if last is None else [Instance.id > last]))
                .order_by(Instance.id)
                .limit(BATCH_SIZE)
                .with_for_update(key_share=True)
            )
            batch = rows.all()
            for row in batch:
                if not all(to.is_current(value) for value in row.env.values()):
                    values = {name: to.seal(cipher.open(value)) for name, value in row.env.items()}
                    await session.execute(update(Instance).where(Instance.id == row.id).values(env=values))
                    changed += 1
        if len(batch) < BATCH_SIZE:
            return changed
        last = batch[-1].id


def _has_env() -> Any:
    return (Instance.status != InstanceStatus.DELETED) & (Instance.env != {})
