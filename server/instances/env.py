"""Environment variables of instances: which of them are secret, how they are stored, and encrypting them again."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from server.clock import format_id
from server.db.database import Database
from server.db.pool import RawPool
from server.db.tables import Instance, Operation
from server.encryption import Cipher
from server.enums import OPEN_OPERATION, InstanceStatus

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
# The provider's limits.
MAX_ENV = 100
MAX_ENV_OF_CPU = 30
# Set in each new machine, so that a program knows which instance it is and that it runs on another machine.
INSTANCE_ID, MACHINE = "PILOTLIGHT_INSTANCE_ID", "PILOTLIGHT_MACHINE"
OWN_NAMES = frozenset({INSTANCE_ID, MACHINE})
BATCH_SIZE = 500
ENV = "env"  # of an upgrade, in `wanted`; it is left out when the operation ends

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


def with_own(env: Mapping[str, str], instance: Instance, *, machine: int) -> dict[str, str]:
    """The variables of a new machine; only the caller's if ours would be too many for the provider."""
    joined = {**env, INSTANCE_ID: format_id("inst", instance.id), MACHINE: str(machine)}
    return joined if len(joined) <= (MAX_ENV if instance.gpu_count else MAX_ENV_OF_CPU) else dict(env)


async def erase_deleted(pool: RawPool, *, limit: int) -> int:
    """Erase the variables of instances that a process of an older release deleted; returns how many."""
    return int((await pool.execute(ERASE_DELETED, limit)).rsplit(" ", 1)[1])


@dataclass(frozen=True, slots=True)
class StoredCounts:
    """How many instances have variables that are not stored as they would be now, or that can't be read."""

    outdated: int
    unreadable: int


async def count_stored(session: AsyncSession, cipher: Cipher) -> StoredCounts:
    """Variables that an upgrade in progress will set are those of its instance, too."""
    outdated, unreadable = set[UUID](), set[UUID]()
    for statement in (
        select(Instance.id, Instance.env).where(_has_env()),
        select(Operation.instance_id, Operation.wanted[ENV]).where(_wants_env()),
    ):
        for instance_id, env in await session.execute(statement):
            if not _is_current(env, cipher):
                outdated.add(instance_id)
            if not all(cipher.is_known(value) for value in env.values()):
                unreadable.add(instance_id)
    return StoredCounts(len(outdated), len(unreadable))


async def reseal(database: Database, cipher: Cipher, *, to: Cipher) -> int:
    """Store the variables of all instances, and those that upgrades in progress will set, as `to` stores them.

    Returns of how many instances and upgrades. May be repeated. Raises UnknownEncryptionKey; what was done until then
    stays.
    """

    def of_instance(env: Mapping[str, Any]) -> dict[str, Any] | None:
        return None if _is_current(env, to) else {name: to.seal(cipher.open(value)) for name, value in env.items()}

    def of_operation(wanted: Mapping[str, Any]) -> dict[str, Any] | None:
        env = of_instance(wanted[ENV])
        return None if env is None else {**wanted, ENV: env}

    changed = await _rewrite(database, Instance, Instance.env, _has_env(), of_instance)
    return changed + await _rewrite(database, Operation, Operation.wanted, _wants_env(), of_operation)


async def _rewrite(
    database: Database,
    table: type[Instance] | type[Operation],
    column: InstrumentedAttribute[dict[str, Any]],
    condition: ColumnElement[bool],
    rewritten: Callable[[Mapping[str, Any]], dict[str, Any] | None],
) -> int:
    """Change the column of all rows that match, in batches; None leaves a row as it is. Returns how many changed."""
    changed, last = 0, None
    while True:
        async with database.write() as session:
            rows = await session.execute(
                select(table.id, column)
                .where(condition, *([] if last is None else [table.id > last]))
                .order_by(table.id)
                .limit(BATCH_SIZE)
                .with_for_update(key_share=True)
            )
            batch = rows.all()
            for id, value in batch:
                new = rewritten(value)
                if new is not None:
                    await session.execute(update(table).where(table.id == id).values({column: new}))
                    changed += 1
        if len(batch) < BATCH_SIZE:
            return changed
        last = batch[-1][0]


def _is_current(env: Mapping[str, Any], cipher: Cipher) -> bool:
    return all(cipher.is_current(value) for value in env.values())


def _has_env() -> ColumnElement[bool]:
    return (Instance.status != InstanceStatus.DELETED) & (Instance.env != {})


def _wants_env() -> ColumnElement[bool]:
    return Operation.status.in_([status.value for status in OPEN_OPERATION]) & Operation.wanted.has_key(ENV)
