"""Idempotency keys of requests that begin an operation."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import new_id
from server.db.database import Database
from server.db.tables import IdempotencyKey, Instance, Operation
from server.errors import KeyReused
from server.idempotency import IdempotentRequest, KeyTaken, reserve


@dataclass(frozen=True, slots=True)
class Accepted:
    """An accepted request. `replayed`: an earlier request with the same key was accepted."""

    instance: Instance
    operation: Operation
    replayed: bool = False


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
    if key.fingerprint != request.fingerprint or key.operation_id is None or not request.by.sees(instance):
        raise KeyReused
    return Accepted(instance, operation, replayed=True)


async def reserve_for_many(
    database: Database, request: IdempotentRequest, decide: Callable[[AsyncSession], Awaitable[list[UUID]]]
) -> list[UUID]:
    """Decide in one transaction which instances a bulk request is about, and reserve its key with them.

    Each instance then gets a key derived from it. The same key returns the same instances again, whatever they have
    become since. Raises KeyReused.
    """
    if request.key is None:
        async with database.read() as session:
            return await decide(session)
    stored = (IdempotencyKey.project_id == request.by.project_id, IdempotencyKey.key == request.key)
    try:
        async with database.write() as session:
            await reserve(session, request, None)
            decided = await decide(session)
            ids = [str(each) for each in decided]
            await session.execute(update(IdempotencyKey).where(*stored).values(instance_ids=ids))
            return decided
    except KeyTaken:
        async with database.read() as session:
            columns = select(IdempotencyKey.fingerprint, IdempotencyKey.instance_ids).where(*stored)
            row = (await session.execute(columns)).one_or_none()
        if row is None or row.fingerprint != request.fingerprint:
            raise KeyReused from None
        stored_ids: list[str] = row.instance_ids or []
        return [UUID(each) for each in stored_ids]


async def _link(session: AsyncSession, request: IdempotentRequest, operation_id: UUID) -> None:
    """Point the key to an operation that was already open."""
    await session.execute(
        update(IdempotencyKey)
        .where(IdempotencyKey.project_id == request.by.project_id, IdempotencyKey.key == request.key)
        .values(operation_id=operation_id)
    )
