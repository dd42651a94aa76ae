"""Reads the deliveries of one project."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from server.auth.caller import Caller
from server.db.database import Database
from server.db.pages import Where
from server.db.tables import DeliveryAttemptRow, DeliveryRow, DeliveryStatus
from server.db.tables.rows import make_rows, select_rows

# Of its own instances; and test messages, which are about none.
OF_OWNER = """
    coalesce(instance_id, subject_id, '00000000-0000-0000-0000-000000000000') IN (
        SELECT id FROM instance WHERE owner_token_id = {}
        UNION ALL
        SELECT '00000000-0000-0000-0000-000000000000' WHERE project_webhook_id IS NULL)
"""
ATTEMPTS = f"{select_rows(DeliveryAttemptRow)} WHERE delivery_id = ANY($1::uuid[]) ORDER BY delivery_id, number"


@dataclass(frozen=True, slots=True)
class DeliveryFilter:
    """An empty filter matches all deliveries of the project."""

    instance_id: UUID | None = None
    project_webhook_id: UUID | None = None
    statuses: tuple[DeliveryStatus, ...] = ()


async def get_deliveries(database: Database, ids: Sequence[UUID], *, by: Caller) -> dict[UUID, DeliveryRow]:
    where = _shown_to(by).given("id = ANY({}::uuid[])", ids)
    records = await database.raw.fetch(f"{select_rows(DeliveryRow)} {where.sql}", *where.values)
    return {row.id: row for row in make_rows(DeliveryRow, records)}


async def attempts_of(database: Database, delivery_ids: Sequence[UUID]) -> dict[UUID, list[DeliveryAttemptRow]]:
    """Attempts by delivery, in order."""
    grouped: dict[UUID, list[DeliveryAttemptRow]] = {delivery_id: [] for delivery_id in delivery_ids}
    for row in make_rows(DeliveryAttemptRow, await database.raw.fetch_by_keys(ATTEMPTS, delivery_ids)):
        grouped[row.delivery_id].append(row)
    return grouped


def _shown_to(by: Caller) -> Where:
    where = Where().given("project_id = {}", by.project_id)
    return where if by.owner_id is None else where.given(OF_OWNER, by.owner_id)


def conditions_on_deliveries(by: Caller, wanted: DeliveryFilter) -> Where:
    where = _shown_to(by)
    if wanted.instance_id is not None:
        # Of its own webhook, and of the project's; written as in their indexes.
        about = "(project_webhook_id IS NOT NULL AND subject_id = {})"
        where = where.given("(instance_id = {} OR " + about + ")", wanted.instance_id, wanted.instance_id)
    if wanted.project_webhook_id is not None:
        where = where.given("project_webhook_id = {}", wanted.project_webhook_id)
    if wanted.statuses:
        where = where.given("status = ANY({}::text[])", [status.value for status in wanted.statuses])
    return where
