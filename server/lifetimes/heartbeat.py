"""Heartbeats of instances: one column, no event and no version; those that arrive together share a commit."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import orjson

from server.auth.caller import Caller
from server.batching import GroupCommit
from server.db.database import Database
from server.errors import NotFound
from server.instances.limits.spec import read
from server.instances.limits.steps import heartbeat_end

BATCH_MAX = 256
BATCHES_AT_ONCE = 2
# Locked in one order: two batches with the same instances never wait for each other.
BEAT = """
    WITH beaten AS MATERIALIZED (
        SELECT instance.id
        FROM instance JOIN unnest($1::uuid[], $2::uuid[]) AS given (id, project_id) USING (id, project_id)
        WHERE instance.status <> 'DELETED'
        ORDER BY instance.id
        FOR NO KEY UPDATE OF instance
    )
    UPDATE instance SET heartbeat_at = clock_timestamp() FROM beaten WHERE instance.id = beaten.id
    RETURNING instance.id, heartbeat_at, run_accepted_at, lifetime::text
"""


@dataclass(frozen=True, slots=True)
class Beat:
    """When the next heartbeat is due at the latest; None without that limit, or before the machine exists."""

    next_at: datetime | None


class Heartbeats:
    """One per process; a dry run has its own."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._writes: GroupCommit[tuple[UUID, UUID], Beat] = GroupCommit(
            self._write, largest=BATCH_MAX, at_once=BATCHES_AT_ONCE
        )

    async def beat(self, instance_id: UUID, *, by: Caller) -> Beat:
        """Raises NotFound for a deleted instance, too."""
        return await self._writes.add((instance_id, by.project_id))

    async def _write(self, beats: Sequence[tuple[UUID, UUID]]) -> list[Beat | Exception]:
        rows = await self._database.raw.fetch(BEAT, [each[0] for each in beats], [each[1] for each in beats])
        found = {row["id"]: _beat(row["heartbeat_at"], row["run_accepted_at"], row["lifetime"]) for row in rows}
        return [found.get(instance_id) or NotFound("instance", ("input", "id")) for instance_id, _ in beats]


def _beat(heartbeat_at: datetime, run_accepted_at: datetime | None, lifetime: str | None) -> Beat:
    if lifetime is None:
        return Beat(None)
    limits = read(orjson.loads(lifetime))
    return Beat(heartbeat_end(limits, run_accepted_at=run_accepted_at, heartbeat_at=heartbeat_at))
