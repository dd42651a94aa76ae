"""What a check of an instance needs to know, read for many at once: a thousand may be checked together."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import select

from server.db.engine import Database
from server.db.tables import Instance, Operation, ProbeResult
from server.instances.batch import Batch
from server.probes.results import results_of
from server.words import OPEN_OPERATION

WRITE_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Standing:
    """How it stands, the operation that is not over, and what was found so far."""

    status: str
    status_since: datetime
    novita_id: str | None
    health_check: dict[str, Any]
    ports: list[Any]
    endpoints: list[Any]
    operation_id: UUID | None
    requested_by: UUID | None
    results: list[ProbeResult]


class Checks:
    """One per process."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._reads: Batch[UUID, Standing] = Batch(self._read)
        # A thousand probes may be answered in the same moment. Whoever waits here to write what was found waits in
        # peace: in line for a connection, the last of them would be told that the database takes too long.
        self.writing = asyncio.Semaphore(WRITE_AT_ONCE)

    async def of(self, instance_id: UUID) -> Standing | None:
        return await self._reads.ask(instance_id)

    async def _read(self, ids: Sequence[UUID]) -> Mapping[UUID, Standing]:
        query = (
            select(
                Instance.id,
                Instance.status,
                Instance.status_since,
                Instance.novita_id,
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
        return {row[0]: Standing(*row[1:], results=results[row[0]]) for row in rows}
