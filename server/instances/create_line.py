"""The line of creates: how long the next one waits, where one stands, and when a project's part of it is full."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from server.clock import now
from server.db.database import Database
from server.errors import QueueFull

CACHE_SECONDS = 1.0
# The part of the rate that creates get, as long as it is not measured: other calls go on during a burst.
USUAL_PART = 0.65
# Once a create has waited for so long, the line was busy all the time, and the measured rate of creates is its speed.
MEASURED_AFTER = 45.0

# `used` is in the order of the classes of calls; the fifth is that of creates.
READ_LINE = """
    SELECT job.project_id, count(*) AS jobs,
           extract(epoch FROM clock_timestamp() - min(job.created_at))::float8 AS oldest,
           (SELECT rate FROM provider_budget) AS rate, (SELECT used[5] FROM provider_budget) AS used
    FROM job WHERE kind IN ('CREATE_INSTANCE') GROUP BY job.project_id
"""
READ_PLACES = """
    SELECT job.instance_id, job.project_id,
           (SELECT count(*) FROM job AS earlier
            WHERE earlier.kind IN ('CREATE_INSTANCE') AND earlier.project_id = job.project_id
              AND earlier.status = 'WAITING' AND (earlier.due_at, earlier.id) < (job.due_at, job.id)) AS ahead
    FROM job
    WHERE instance_id = ANY($1::uuid[]) AND kind IN ('CREATE_INSTANCE') AND status = 'WAITING'
"""


@dataclass(frozen=True, slots=True)
class Place:
    """`position` counts from 1, among the creates of the same project only: other projects' are private."""

    position: int
    starts_at: datetime


class CreateLine:
    """One per process; what it read is a second old at most, plus what this process added since."""

    def __init__(self, database: Database, *, rate_limit: int = 0, pending_max: int = 0) -> None:
        self._database = database
        self._rate_limit = rate_limit / 60  # 0: no limit, so creates do not wait
        self.pending_max = pending_max  # 0: no limit
        self._waiting: Counter[UUID | None] = Counter()
        self._rate = 0.0
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()

    async def join(self, project_id: UUID) -> timedelta:
        """How long a new create of the project waits for its turn; raises QueueFull if too many wait already."""
        if not self._rate_limit and not self.pending_max:
            return timedelta(0)
        await self._refresh()
        if self.pending_max and self._waiting[project_id] >= self.pending_max:
            # When a tenth of them has begun there is room for several again.
            retry_after = self._wait(project_id, max(1, self.pending_max // 10))
            raise QueueFull(self.pending_max, max(retry_after, timedelta(seconds=1)))
        wait = self._wait(project_id, self._waiting[project_id])
        self._waiting[project_id] += 1
        return wait

    async def places(self, instance_ids: Sequence[UUID]) -> Mapping[UUID, Place]:
        """Where the creates of these instances stand; those that have begun have no place."""
        rows = await self._database.raw.fetch(READ_PLACES, instance_ids)
        if rows:
            await self._refresh()
        return {
            row["instance_id"]: Place(row["ahead"] + 1, now() + self._wait(row["project_id"], row["ahead"]))
            for row in rows
        }

    def _wait(self, project_id: UUID | None, ahead: int) -> timedelta:
        """Projects take turns: before this one go its project's earlier ones, and as many of every other project."""
        if not self._rate:
            return timedelta(0)
        others = (min(jobs, ahead + 1) for project, jobs in self._waiting.items() if project != project_id)
        return timedelta(seconds=(ahead + sum(others)) / self._rate)

    async def _refresh(self) -> None:
        async with self._reading:
            if time.monotonic() < self._read_at + CACHE_SECONDS:
                return
            rows = await self._database.raw.fetch(READ_LINE)
            self._waiting = Counter({row["project_id"]: row["jobs"] for row in rows})
            rate = min(rows[0]["rate"] or self._rate_limit, self._rate_limit) if rows else self._rate_limit
            is_measured = bool(rows) and max(row["oldest"] for row in rows) > MEASURED_AFTER and rows[0]["used"]
            self._rate = rows[0]["used"] if is_measured else rate * USUAL_PART
            self._read_at = time.monotonic()
