"""Idempotency keys: a request that is sent again with the same key is accepted once."""

import dataclasses
import hashlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast
from uuid import UUID

import orjson
from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Mapped

from server.auth.caller import Caller
from server.clock import new_id
from server.db.database import Database
from server.db.tables import IdempotencyKey
from server.db.text import is_storable
from server.errors import KeyReused, Problem

MAX_KEY = 255


class StoredObject(Protocol):
    """A row that a key can stand for."""

    id: Mapped[UUID]


Row = TypeVar("Row", bound=StoredObject)


@dataclass(frozen=True, slots=True)
class IdempotentRequest:
    """The caller, the key, and a fingerprint: the same for the same input of the same mutation."""

    by: Caller
    key: str | None
    fingerprint: bytes

    @classmethod
    def of(cls, by: Caller, key: str | None, mutation: str, fields: Mapping[str, Any]) -> "IdempotentRequest":
        content = mutation.encode() + orjson.dumps(fields, option=orjson.OPT_SORT_KEYS, default=str)
        return cls(by, key, hashlib.sha256(content).digest())

    @property
    def digest(self) -> str | None:
        """The same for the same request with the same key; None without a key."""
        if self.key is None:
            return None
        return hashlib.sha256(self.fingerprint + self.key.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class CreatedObject(Generic[Row]):
    """`row` is None if the object was deleted since an earlier request with the same key created it."""

    row: Row | None
    replayed: bool = False


class KeyTaken(Exception):
    """Another request with the same key committed first."""


def key_problems(key: str | None) -> Iterator[Problem]:
    if key is not None and (not 1 <= len(key) <= MAX_KEY or not is_storable(key)):
        message = f"The key has 1 to {MAX_KEY} characters."
        yield Problem("INVALID_IDEMPOTENCY_KEY", message, ("input", "idempotencyKey"))


def requested_fields(draft: Any) -> dict[str, Any]:
    """What a draft asks for, for its fingerprint: FIRST_FIELDS, and other fields only if they are not the default.

    So a new field does not change the fingerprint of requests without it: a request that is sent again after an
    upgrade, or to a process of the other version, finds what was accepted. FIRST_FIELDS are always included because
    the first release did so; its processes and the keys that it stored compare with that form. Never add to them.
    """
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(draft):
        value: Any = getattr(draft, field.name)
        if field.name in draft.FIRST_FIELDS or value != _default(field):
            fields[field.name] = _plain(value)
    return fields


def _default(field: "dataclasses.Field[Any]") -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _plain(value: Any) -> Any:
    if hasattr(value, "FIRST_FIELDS"):
        return requested_fields(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return [_plain(each) for each in cast("tuple[Any, ...]", value)] if isinstance(value, tuple) else value


async def create_once(
    database: Database,
    request: IdempotentRequest,
    table: type[Row],
    create: Callable[[AsyncSession, UUID], Awaitable[Row]],
) -> CreatedObject[Row]:
    """Run `create` in one transaction, with the id for its row; or return what the same key created before.

    For objects that are not operations.
    """
    object_id = new_id()

    async def write(session: AsyncSession) -> Row:
        await reserve(session, request, None, object_id=object_id)
        return await create(session, object_id)

    return await write_once(database, request, table, write)


async def write_once(
    database: Database,
    request: IdempotentRequest,
    table: type[Row],
    write: Callable[[AsyncSession], Awaitable[Row]],
) -> CreatedObject[Row]:
    """Run `write`, which reserves the key, in one transaction; or return the row that the same key is of.

    A refusal rolls the key back, so that the same key may be used again.
    """
    previous = await find_object(database, request, table)
    if previous is not None:
        return previous
    try:
        async with database.write() as session:
            return CreatedObject(await write(session))
    except KeyTaken:
        previous = await find_object(database, request, table)
        if previous is None:
            raise KeyReused from None
        return previous


async def find_object(database: Database, request: IdempotentRequest, table: type[Row]) -> CreatedObject[Row] | None:
    """What was created under this key, if anything. Raises KeyReused if it was a different request."""
    if request.key is None:
        return None
    async with database.read() as session:
        found = await session.execute(
            select(IdempotencyKey, table)
            .outerjoin(table, table.id == IdempotencyKey.object_id)
            .where(IdempotencyKey.project_id == request.by.project_id, IdempotencyKey.key == request.key)
        )
        pair = found.first()
    if pair is None:
        return None
    if pair[0].fingerprint != request.fingerprint or pair[0].object_id is None:
        raise KeyReused
    return CreatedObject(cast("Row | None", pair[1]), replayed=True)  # an outer join


async def reserve(
    session: AsyncSession, request: IdempotentRequest, operation_id: UUID | None, *, object_id: UUID | None = None
) -> None:
    """Insert the key, or raise KeyTaken once the request that has it has committed."""
    if request.key is None:
        return
    taken = await session.execute(
        insert(IdempotencyKey)
        .values(
            project_id=request.by.project_id,
            key=request.key,
            fingerprint=request.fingerprint,
            operation_id=operation_id,
            object_id=object_id,
        )
        .on_conflict_do_nothing()
        .returning(IdempotencyKey.key)
    )
    if taken.first() is None:
        raise KeyTaken
