"""Conditions on the audit log, and its export."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from server.clock import format_id
from server.db.database import Database
from server.db.pages import Where
from server.db.tables import AuditEventRow
from server.db.tables.rows import make_rows, select_rows
from server.enums import AuditOutcome

EXPORT_PAGE = 1000


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Without a project: of all projects."""

    project_id: UUID | None = None
    token_id: UUID | None = None
    mutations: tuple[str, ...] = ()
    outcomes: tuple[AuditOutcome, ...] = ()
    target: str | None = None
    since: datetime | None = None
    until: datetime | None = None


def conditions_on_audit(wanted: AuditFilter) -> Where:
    where = Where()
    if wanted.project_id is not None:
        where = where.given("project_id = {}", wanted.project_id)
    if wanted.token_id is not None:
        where = where.given("token_id = {}", wanted.token_id)
    if wanted.mutations:
        where = where.given("mutation = ANY({}::text[])", list(wanted.mutations))
    if wanted.outcomes:
        where = where.given("outcome = ANY({}::text[])", [str(outcome) for outcome in wanted.outcomes])
    if wanted.target is not None:
        where = where.given("target = {}", wanted.target)
    if wanted.since is not None:
        where = where.given("created_at >= {}", wanted.since)
    return where if wanted.until is None else where.given("created_at < {}", wanted.until)


async def export_audit(database: Database, wanted: AuditFilter) -> AsyncGenerator[dict[str, Any]]:
    """Oldest first, page by page: each page is a statement of its own, so a long export holds back no clean-up."""
    conditions, place = conditions_on_audit(wanted), None
    while True:
        where = conditions if place is None else conditions.given("(created_at, id) > ({}, {})", *place)
        statement = f"{select_rows(AuditEventRow)} {where.sql} ORDER BY created_at, id LIMIT {EXPORT_PAGE}"
        rows = make_rows(AuditEventRow, await database.raw.fetch(statement, *where.values))
        for row in rows:
            yield line_of(row)
        if len(rows) < EXPORT_PAGE:
            return
        place = (rows[-1].created_at, rows[-1].id)


def line_of(row: AuditEventRow) -> dict[str, Any]:
    """One line of the export, with the names and ids of the API."""
    return {
        "id": format_id("aud", row.id),
        "createdAt": row.created_at,
        "projectId": format_id("prj", row.project_id),
        "tokenId": format_id("tok", row.token_id),
        "requestId": row.request_id,
        "mutation": row.mutation,
        "inputDigest": row.input_digest.hex(),
        "target": row.target,
        "outcome": row.outcome,
        "errorCode": row.error_code,
    }
