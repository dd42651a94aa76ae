"""Writes the audit log: in the transaction of the mutation where it has one, else in a group commit.

A mutation that was accepted and its record are committed together or not at all. A record of a refused or failed
mutation is written before the response is sent.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import orjson
import structlog
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from server.audit.record import AuditRecord, current_record
from server.batching import GroupCommit
from server.clock import now
from server.db.database import Database, after_commit
from server.db.outages import DATABASE_ERRORS
from server.db.pool import RawPool
from server.db.seals import Seals
from server.enums import AuditOutcome

BATCH_MAX = 256
BATCHES_AT_ONCE = 2
NOT_RECORDED = frozenset({"heartbeat"})  # when accepted: up to thousands a second, and none changes what was allowed
COLUMNS = "id, project_id, token_id, request_id, mutation, input_digest, target, outcome, error_code"

# A mutation that fails after its first transaction has a record already; what it came to is known only now.
INSERT = """
    INSERT INTO audit_event ({columns})
    SELECT {columns} FROM jsonb_populate_recordset(NULL::audit_event, {rows}::jsonb)
    ON CONFLICT (id) DO UPDATE SET outcome = excluded.outcome, error_code = excluded.error_code
"""
INSERT_IN_SESSION = text(INSERT.format(columns=COLUMNS, rows="CAST(:rows AS text)"))
INSERT_BATCH = INSERT.format(columns=COLUMNS, rows="$1")
PRUNE = """
    DELETE FROM audit_event WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM audit_event WHERE created_at < $1 ORDER BY created_at LIMIT $2
    ))
"""

log = structlog.get_logger(__name__)


class AuditLog:
    """One per process that serves the API."""

    def __init__(self, database: Database, seals: Seals) -> None:
        self._database = database
        self._seals = seals
        self._writes: GroupCommit[AuditRecord, bool] = GroupCommit(
            self._insert, largest=BATCH_MAX, at_once=BATCHES_AT_ONCE
        )
        database.before_commit = write_current

    def digest(self, arguments: dict[str, Any]) -> bytes:
        """Equal arguments have equal digests. Keyed: without the database, a value can't be found by guessing."""
        return self._seals.digest(orjson.dumps(arguments, default=str, option=orjson.OPT_SORT_KEYS))

    async def finish(self, record: AuditRecord) -> None:
        """Write what the mutation came to, unless its transaction has."""
        is_accepted = record.outcome is AuditOutcome.ACCEPTED
        if is_accepted and (record.is_written or record.mutation in NOT_RECORDED):
            return
        try:
            await self._writes.add(record)
        except DATABASE_ERRORS as error:
            # The response stays what it is: the mutation is over. The line has what the row would have had.
            log.error("audit.not_written", error=type(error).__name__, **_loggable(record))

    async def _insert(self, records: Sequence[AuditRecord]) -> list[bool | Exception]:
        await self._database.raw.execute(INSERT_BATCH, to_json(records))
        return [True] * len(records)


async def write_current(session: AsyncSession) -> None:
    """Before each commit: add the record of the mutation that runs, if it is not written yet."""
    record = current_record()
    if record is None or record.mutation in NOT_RECORDED:
        return

    def mark() -> None:
        record.is_written = True

    await session.execute(INSERT_IN_SESSION, {"rows": to_json([record])})
    after_commit(session, mark)


def to_json(records: Sequence[AuditRecord]) -> str:
    return orjson.dumps([record.columns() for record in records], default=str).decode()


async def prune_audit(pool: RawPool, *, older_than: timedelta, limit: int) -> int:
    """Delete events older than that; returns how many."""
    return int((await pool.execute(PRUNE, now() - older_than, limit)).rsplit(" ", 1)[1])


def _loggable(record: AuditRecord) -> dict[str, Any]:
    return {**record.columns(), "id": str(record.id), "outcome": str(record.outcome)}
