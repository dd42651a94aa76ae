"""How instances stand, for jobs that follow them: thousands look at about the same time, so they read together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import select, update

from server.clock import now
from server.db.engine import Database
from server.db.tables import Instance, Operation
from server.instances.batch import Batch
from server.words import OPEN_OPERATION


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
    operation_id: UUID | None
    requested_by: UUID | None

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
        query = (
            select(
                Instance.id,
                Instance.status,
                Instance.status_since,
                Instance.novita_id,
                Instance.novita_status,
                Instance.endpoints,
                Instance.spot_reclaim_at,
                Operation.id,
                Operation.requested_by,
            )
            .outerjoin(
                Operation,
                (Operation.instance_id == Instance.id) & Operation.status.in_(OPEN_OPERATION),
            )
            .where(Instance.id.in_(ids))
        )
        async with self._database.read() as session:
            rows = await session.execute(query)
            return {row[0]: Standing(*row) for row in rows}

    async def _note(self, ids: Sequence[UUID]) -> Mapping[UUID, bool]:
        async with self._database.write() as session:
            # In one order, so that two of these never wait for each other's rows.
            await session.execute(update(Instance).where(Instance.id.in_(sorted(ids))).values(observed_at=now()))
        return {}
