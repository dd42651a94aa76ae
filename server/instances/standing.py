"""How instances stand, for jobs that follow them: thousands look at about the same time, so they read together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
import orjson

from server.clock import now
from server.db.engine import Database
from server.instances.batch import Batch

READ = """
    SELECT instance.id, instance.status, instance.status_since, instance.novita_id, instance.novita_status,
           instance.endpoints, instance.spot_reclaim_at, instance.observed_at, operation.id, operation.requested_by
    FROM instance LEFT JOIN operation
         ON operation.instance_id = instance.id AND operation.status IN ('QUEUED', 'RUNNING')
    WHERE instance.id = ANY($1::uuid[])
"""

# In one order, so that two of these never wait for each other's rows. Never back: another may have looked later.
NOTE = """
    WITH seen AS MATERIALIZED (
        SELECT id FROM instance WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE
    )
    UPDATE instance SET observed_at = greatest(instance.observed_at, $2) FROM seen WHERE instance.id = seen.id
"""


@dataclass(frozen=True, slots=True)
class Standing:
    """What a job that follows an instance needs to know of it, and of the operation that is not over."""

    instance_id: UUID
    status: str
    status_since: datetime
    novita_id: str | None
    novita_status: str | None
    endpoints: list[Any]
    spot_reclaim_at: datetime | None
    observed_at: datetime | None
    operation_id: UUID | None
    requested_by: UUID | None

    @property
    def known_since(self) -> datetime:
        """The last moment of which we know how it stood."""
        return max(self.observed_at or self.status_since, self.status_since)

    def knows(self, facts: Mapping[str, Any]) -> bool:
        """Whether a look told nothing new."""
        return all(getattr(self, name) == value for name, value in facts.items())


class Standings:
    """Reads of many in one query, and the note that many were seen in one statement."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._reads: Batch[UUID, Standing] = Batch(self._read)
        self._seen: Batch[UUID, bool] = Batch(self._note, window=0.25)

    async def of(self, instance_id: UUID) -> Standing | None:
        return await self._reads.ask(instance_id)

    def seen(self, instance_id: UUID) -> None:
        """Say that the provider was asked and told nothing new; written a moment later, for many at once.

        Not fenced by the job's claim, and lost if we are killed: it is true whoever says it, and nothing hangs on it
        but the age that readers are shown.
        """
        self._seen.add(instance_id)

    async def _read(self, ids: Sequence[UUID]) -> Mapping[UUID, Standing]:
        pool = self._database.raw
        rows = await pool.fetch(READ, ids)
        return {row[0]: _standing(row) for row in rows}

    async def _note(self, ids: Sequence[UUID]) -> Mapping[UUID, bool]:
        pool = self._database.raw
        await pool.execute(NOTE, sorted(ids), now())
        return {}


def _standing(row: asyncpg.Record) -> Standing:
    """From the columns in their order there."""
    values = [*row[:5], orjson.loads(row[5]), *row[6:]]
    return Standing(*values)
