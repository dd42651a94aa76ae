"""Idempotency keys: a request that is sent again with the same key is accepted once."""

import dataclasses
import hashlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast
from uuid import UUID

import orjson
from sqlalchemy import select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from server.auth.caller import Caller
from server.clock import new_id
from server.db.database import Database
from server.db.tables import IdempotencyKey, Instance, Operation
from server.errors import KeyReused, Problem
from server.instances.drafts import MAX_KEY, is_storable


@dataclass(frozen=True, slots=True)
class Accepted:
    """An accepted request. `replayed`: an earlier request with the same key was accepted."""

    instance: Instance
    operation: Operation
    replayed: bool = False


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


class KeyTaken(Exception):
    """Another request with the same key committed first."""


def key_problems(key: str | None) -> Iterator[Problem]:
    if key is not None and (not 1 <= len(key) <= MAX_KEY or not is_storable(key)):
        message = f"The key has 1 to {MAX_KEY} characters."
        yield Problem("INVALID_IDEMPOTENCY_KEY", message, ("input", "idempotencyKey"))


async def run_once(
    database: Database, request: IdempotentRequest, accept: Callable[[AsyncSession, UUID], Awaitable[Accepted]]
) -> Accepted:
    """Run `accept` in one transaction, with the id for its operation; or return what the same key returned before.

    The key is the first row of the transaction: of many calls with one key, the others wait there for the first to
    commit. A refusal rolls the key back, so that the same key may be used again.
    """
    previous = await find_accepted(database, request)
    if previous is not None:
        return previous
    operation_id = new_id()
    try:
        async with database.write() as session:
            await reserve(session, request, operation_id)
            accepted = await accept(session, operation_id)
            if request.key is not None and accepted.operation.id != operation_id:
                await _link(session, request, accepted.operation.id)
            return accepted
    except KeyTaken:
        previous = await find_accepted(database, request)
        if previous is None:
            raise KeyReused from None
        return previous


async def find_accepted(database: Database, request: IdempotentRequest) -> Accepted | None:
    if request.key is None:
        return None
    async with database.read() as session:
        return await replay(session, request)


async def replay(session: AsyncSession, request: IdempotentRequest) -> Accepted | None:
    """What was accepted under this key, if anything. Raises KeyReused if it was a different request."""
    if request.key is None:
        return None
    result = await session.execute(
        select(IdempotencyKey, Operation, Instance)
        .outerjoin(Operation, Operation.id == IdempotencyKey.operation_id)
        .outerjoin(Instance, Instance.id == Operation.instance_id)
        .where(IdempotencyKey.project_id == request.by.project_id, IdempotencyKey.key == request.key)
    )
    row = result.first()
    if row is None:
        return None
    key, operation, instance = row
    if key.fingerprint != request.fingerprint or key.operation_id is None:
        raise KeyReused
    return Accepted(instance, operation, replayed=True)


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


async def reserve_for_many(database: Database, request: IdempotentRequest) -> None:
    """Reserve the key of a bulk request; each instance then gets a key derived from it. Raises KeyReused."""
    try:
        async with database.write() as session:
            await reserve(session, request, None)
    except KeyTaken:
        async with database.read() as session:
            result = await session.execute(
                select(IdempotencyKey.fingerprint).where(
                    IdempotencyKey.project_id == request.by.project_id, IdempotencyKey.key == request.key
                )
            )
        if result.scalar_one_or_none() != request.fingerprint:
            raise KeyReused from None


async def _link(session: AsyncSession, request: IdempotentRequest, operation_id: UUID) -> None:
    """Point the key to an operation that was already open."""
    await session.execute(
        update(IdempotencyKey)
        .where(IdempotencyKey.project_id == request.by.project_id, IdempotencyKey.key == request.key)
        .values(operation_id=operation_id)
    )
