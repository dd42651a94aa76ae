"""A caller's own key for a request: however often and by how many at once it is sent, it is accepted once."""

import hashlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson
from sqlalchemy import select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from server.auth.caller import Caller
from server.clock import new_id
from server.db.engine import Database
from server.db.tables import IdempotencyKey, Instance, Operation
from server.errors import KeyReused, Problem
from server.instances.drafts import MAX_KEY, is_storable


@dataclass(frozen=True, slots=True)
class Accepted:
    """What the caller gets back."""

    instance: Instance
    operation: Operation
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """Who asked, under which key, and a fingerprint of what: the same for the same input of the same mutation."""

    by: Caller
    key: str | None
    fingerprint: bytes

    @classmethod
    def of(cls, by: Caller, key: str | None, mutation: str, fields: Mapping[str, Any]) -> "Asked":
        told = mutation.encode() + orjson.dumps(fields, option=orjson.OPT_SORT_KEYS, default=str)
        return cls(by, key, hashlib.sha256(told).digest())


class KeyTaken(Exception):
    """Another call with the same key committed first."""


def key_problems(key: str | None) -> Iterator[Problem]:
    if key is not None and (not 1 <= len(key) <= MAX_KEY or not is_storable(key)):
        message = f"The key has 1 to {MAX_KEY} characters."
        yield Problem("INVALID_IDEMPOTENCY_KEY", message, ("input", "idempotencyKey"))


async def once(
    database: Database, asked: Asked, accept: Callable[[AsyncSession, UUID], Awaitable[Accepted]]
) -> Accepted:
    """Run `accept` in one transaction, with the id for its operation; or give back what the same key gave before.

    The key is the first row of the transaction: of many calls with one key, the others wait there for the first to
    commit. A refusal takes the key back with it, so the same key may be tried again.
    """
    known = await find(database, asked)
    if known is not None:
        return known
    operation_id = new_id()
    try:
        async with database.write() as session:
            await reserve(session, asked, operation_id)
            accepted = await accept(session, operation_id)
            if asked.key is not None and accepted.operation.id != operation_id:
                await _point(session, asked, accepted.operation.id)
            return accepted
    except KeyTaken:
        known = await find(database, asked)
        if known is None:
            raise KeyReused from None
        return known


async def find(database: Database, asked: Asked) -> Accepted | None:
    if asked.key is None:
        return None
    async with database.read() as session:
        return await replay(session, asked)


async def replay(session: AsyncSession, asked: Asked) -> Accepted | None:
    """What was accepted under this key; None when nothing was. Raises KeyReused when that was something else."""
    if asked.key is None:
        return None
    found = await session.execute(
        select(IdempotencyKey, Operation, Instance)
        .outerjoin(Operation, Operation.id == IdempotencyKey.operation_id)
        .outerjoin(Instance, Instance.id == Operation.instance_id)
        .where(IdempotencyKey.project_id == asked.by.project_id, IdempotencyKey.key == asked.key)
    )
    row = found.first()
    if row is None:
        return None
    key, operation, instance = row
    if key.fingerprint != asked.fingerprint or key.operation_id is None:
        raise KeyReused
    return Accepted(instance, operation, replayed=True)


async def reserve(session: AsyncSession, asked: Asked, operation_id: UUID | None) -> None:
    """Take the key, or raise KeyTaken once whoever took it has committed."""
    if asked.key is None:
        return
    taken = await session.execute(
        insert(IdempotencyKey)
        .values(project_id=asked.by.project_id, key=asked.key, fingerprint=asked.fingerprint, operation_id=operation_id)
        .on_conflict_do_nothing()
        .returning(IdempotencyKey.key)
    )
    if taken.first() is None:
        raise KeyTaken


async def reserve_for_many(database: Database, asked: Asked) -> None:
    """The key of a request about many instances; each of them then has its own, made from it. Raises KeyReused."""
    try:
        async with database.write() as session:
            await reserve(session, asked, None)
    except KeyTaken:
        async with database.read() as session:
            found = await session.execute(
                select(IdempotencyKey.fingerprint).where(
                    IdempotencyKey.project_id == asked.by.project_id, IdempotencyKey.key == asked.key
                )
            )
        if found.scalar_one_or_none() != asked.fingerprint:
            raise KeyReused from None


async def _point(session: AsyncSession, asked: Asked, operation_id: UUID) -> None:
    """What was asked for is under way already, as somebody else's operation."""
    await session.execute(
        update(IdempotencyKey)
        .where(IdempotencyKey.project_id == asked.by.project_id, IdempotencyKey.key == asked.key)
        .values(operation_id=operation_id)
    )
