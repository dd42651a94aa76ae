"""Reads of operations and attempts of one project; another project's rows are not found."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from server.auth.caller import Caller
from server.db.database import Database
from server.db.pages import Where
from server.db.tables import AttemptRow, Instance, Operation, OperationRow
from server.db.tables.rows import columns_of, make_rows, select_rows
from server.enums import OPEN_OPERATION, OperationKind, OperationStatus

BY_IDS = f"{select_rows(OperationRow)} WHERE id = ANY($1::uuid[]) AND project_id = $2"
OF_OWNER = "instance_id IN (SELECT id FROM instance WHERE owner_token_id = {})"
# Written out, as in the partial index of open operations.
OPEN = (
    f"{select_rows(OperationRow)} WHERE instance_id = ANY($1::uuid[]) AND project_id = $2"
    f" AND status IN ({', '.join(repr(str(status)) for status in OPEN_OPERATION)})"
)
ATTEMPTS = f"{select_rows(AttemptRow)} WHERE operation_id = ANY($1::uuid[]) ORDER BY operation_id, number"
# One index scan per instance.
NEWEST = f"""
    SELECT {columns_of(OperationRow, "newest.")}
    FROM instance, LATERAL (
        SELECT * FROM operation WHERE operation.instance_id = instance.id ORDER BY created_at DESC, id DESC LIMIT $3
    ) AS newest
    WHERE instance.id = ANY($1::uuid[]) AND instance.project_id = $2
    ORDER BY newest.instance_id, newest.created_at DESC, newest.id DESC
"""


@dataclass(frozen=True, slots=True)
class OperationFilter:
    """An empty filter means all operations of the project."""

    instance_id: UUID | None = None
    kinds: tuple[OperationKind, ...] = ()
    statuses: tuple[OperationStatus, ...] = ()


async def get_operation(session: AsyncSession, operation_id: UUID, *, by: Caller) -> Operation | None:
    return (await session.execute(_one(select(Operation), operation_id, by))).scalar_one_or_none()


async def read_in(session: AsyncSession, operation_id: UUID, *, by: Caller) -> OperationRow | None:
    """As the session's transaction sees it, to go with what else is read there."""
    shown: list[Any] = [getattr(Operation, name) for name in OperationRow._fields]
    found = (await session.execute(_one(select(*shown), operation_id, by))).one_or_none()
    return None if found is None else OperationRow._make(found)


async def get_operations(database: Database, ids: Sequence[UUID], *, by: Caller) -> dict[UUID, OperationRow]:
    statement, values = BY_IDS, [by.project_id]
    if by.owner_id is not None:
        statement, values = f"{BY_IDS} AND {OF_OWNER.format('$3')}", [*values, by.owner_id]
    records = await database.raw.fetch_by_keys(statement, ids, *values)
    return {row.id: row for row in make_rows(OperationRow, records)}


async def open_operations(
    database: Database, instance_ids: Sequence[UUID], *, project_id: UUID
) -> dict[UUID, OperationRow]:
    """The open operation, by instance."""
    records = await database.raw.fetch_by_keys(OPEN, instance_ids, project_id)
    return {row.instance_id: row for row in make_rows(OperationRow, records)}


async def attempts_by_operation(database: Database, ids: Sequence[UUID]) -> dict[UUID, list[AttemptRow]]:
    """In order."""
    grouped: dict[UUID, list[AttemptRow]] = {operation_id: [] for operation_id in ids}
    for row in make_rows(AttemptRow, await database.raw.fetch_by_keys(ATTEMPTS, ids)):
        grouped[row.operation_id].append(row)
    return grouped


async def newest_operations(
    database: Database, instance_ids: Sequence[UUID], *, project_id: UUID, first: int
) -> dict[UUID, list[OperationRow]]:
    """The newest of each instance, newest first."""
    grouped: dict[UUID, list[OperationRow]] = {instance_id: [] for instance_id in instance_ids}
    for row in make_rows(OperationRow, await database.raw.fetch_by_keys(NEWEST, instance_ids, project_id, first)):
        grouped[row.instance_id].append(row)
    return grouped


def conditions_on_operations(by: Caller, filter: OperationFilter) -> Where:
    where = Where().given("project_id = {}", by.project_id)
    if by.owner_id is not None:
        where = where.given(OF_OWNER, by.owner_id)
    if filter.instance_id is not None:
        where = where.given("instance_id = {}", filter.instance_id)
    if filter.kinds:
        where = where.given("kind = ANY({}::text[])", [str(kind) for kind in filter.kinds])
    if filter.statuses:
        where = where.given("status = ANY({}::text[])", [str(status) for status in filter.statuses])
    return where


async def was_left_open(session: AsyncSession, instance_id: UUID) -> bool:
    """Whether the last operation that called the provider for the machine ended without seeing what came of it."""
    last = await session.scalar(
        select(Operation.status)
        .where(Operation.instance_id == instance_id, Operation.asked_at.is_not(None))
        .order_by(Operation.created_at.desc())
        .limit(1)
    )
    return last not in (None, *OPEN_OPERATION, OperationStatus.SUCCEEDED)


def _one(wanted: Any, operation_id: UUID, by: Caller) -> Any:
    wanted = wanted.where(Operation.id == operation_id, Operation.project_id == by.project_id)
    if by.owner_id is None:
        return wanted
    return wanted.where(Operation.instance_id.in_(select(Instance.id).where(Instance.owner_token_id == by.owner_id)))
