"""Batched reads of instances for monitor and check jobs: a thousand of them may run at once."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
import orjson
from sqlalchemy import select

from server.batching import BatchLoader
from server.clock import now
from server.db.database import Database
from server.db.tables import Instance, Operation, ProbeResult
from server.enums import OPEN_OPERATION
from server.probes.results import results_of

CONCURRENT_WRITES = 4


@dataclass(frozen=True, slots=True)
class CheckView:
    """What a check job needs: the instance, its open operation and the results so far."""

    status: str
    status_since: datetime
    novita_id: str | None
    novita_status: str | None
    spot_reclaim_at: datetime | None
    missing_since: datetime | None
    observed_at: datetime | None
    health_check: dict[str, Any]
    ports: list[Any]
    endpoints: list[Any]
    operation_id: UUID | None
    requested_by: UUID | None
    results: list[ProbeResult]

    @property
    def known_since(self) -> datetime:
        """The last time at which the state is known."""
        return max(self.observed_at or self.status_since, self.status_since)


class CheckViews:
    """One per process."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._reads: BatchLoader[UUID, CheckView] = BatchLoader(self._read)
        # Limits concurrent writers: of a thousand results at once, the last would time out waiting for a connection.
        self.writing = asyncio.Semaphore(CONCURRENT_WRITES)

    async def of(self, instance_id: UUID) -> CheckView | None:
        return await self._reads.load(instance_id)

    async def _read(self, ids: Sequence[UUID]) -> Mapping[UUID, CheckView]:
        query = (
            select(
                Instance.id,
                Instance.status,
                Instance.status_since,
                Instance.novita_id,
                Instance.novita_status,
                Instance.spot_reclaim_at,
                Instance.missing_since,
                Instance.observed_at,
                Instance.health_check,
                Instance.ports,
                Instance.endpoints,
                Operation.id,
                Operation.requested_by,
            )
            .outerjoin(Operation, (Operation.instance_id == Instance.id) & Operation.status.in_(OPEN_OPERATION))
            .where(Instance.id.in_(ids))
        )
        async with self._database.read() as session:
            rows = (await session.execute(query)).all()
            results = await results_of(session, ids)
        return {row[0]: CheckView(*row[1:], results=results[row[0]]) for row in rows}


READ_VIEWS = """
    SELECT instance.id, instance.status, instance.status_since, instance.novita_id, instance.novita_status,
           instance.endpoints, instance.spot_reclaim_at, instance.missing_since, instance.observed_at,
           instance.ready_timeout_seconds, instance.ports <> '[]' OR instance.tools <> '[]', operation.id,
           operation.requested_by
    FROM instance LEFT JOIN operation
         ON operation.instance_id = instance.id AND operation.status IN ('QUEUED', 'RUNNING')
    WHERE instance.id = ANY($1::uuid[])
"""

# A locked row is being written, and is skipped: it must not hold up the others. The time never goes back: another
# process may have seen the machine later.
MARK_SEEN = """
    WITH locked AS MATERIALIZED (
        SELECT id FROM instance WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
    )
    UPDATE instance SET observed_at = greatest(instance.observed_at, $2) FROM locked WHERE instance.id = locked.id
"""


@dataclass(frozen=True, slots=True)
class MonitorView:
    """What a monitor job needs: the instance and its open operation."""

    instance_id: UUID
    status: str
    status_since: datetime
    novita_id: str | None
    novita_status: str | None
    endpoints: list[Any]
    spot_reclaim_at: datetime | None
    missing_since: datetime | None
    observed_at: datetime | None
    ready_timeout_seconds: int | None
    has_endpoints: bool  # a port, or a tool of its template
    operation_id: UUID | None
    requested_by: UUID | None

    @property
    def known_since(self) -> datetime:
        """The last time at which the state is known."""
        return max(self.observed_at or self.status_since, self.status_since)

    def knows(self, facts: Mapping[str, Any]) -> bool:
        """Whether a poll returned nothing new."""
        return all(getattr(self, name) == value for name, value in facts.items())


class MonitorViews:
    """Reads many instances in one query and writes `observed_at` of many in one statement."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._reads: BatchLoader[UUID, MonitorView] = BatchLoader(self._read)
        self._seen: BatchLoader[UUID, bool] = BatchLoader(self._mark_seen, window=0.25)

    async def of(self, instance_id: UUID) -> MonitorView | None:
        return await self._reads.load(instance_id)

    def seen(self, instance_id: UUID) -> None:
        """Record a poll without news; written a moment later, for many instances at once.

        Not fenced by the job's claim, and lost if the process is killed: it is true whichever worker writes it, and
        only the age that readers see depends on it.
        """
        self._seen.add(instance_id)

    async def _read(self, ids: Sequence[UUID]) -> Mapping[UUID, MonitorView]:
        pool = self._database.raw
        rows = await pool.fetch(READ_VIEWS, ids)
        return {row[0]: _view_of(row) for row in rows}

    async def _mark_seen(self, ids: Sequence[UUID]) -> Mapping[UUID, bool]:
        pool = self._database.raw
        await pool.execute(MARK_SEEN, sorted(ids), now())
        return {}


def _view_of(row: asyncpg.Record) -> MonitorView:
    """From the columns of READ_VIEWS, in order."""
    values = [*row[:5], orjson.loads(row[5]), *row[6:]]
    return MonitorView(*values)
