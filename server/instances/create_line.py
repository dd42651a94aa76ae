"""The line of creates: how long the next one waits, where one stands, and when a project's part of it is full."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import exp
from uuid import UUID

import asyncpg

from server.clock import now
from server.db.database import Database
from server.errors import QueueFull
from server.novita.transport.budget import SHARES, USE_SECONDS, CallPriority

CACHE_SECONDS = 1.0
# The part of the rate that creates get, as long as it is not measured: other calls go on during a burst. Reads that
# users make now come on top of those.
USUAL_PART = 0.75
# Once a create has waited for so long, the line was busy all the time, and the measured rate of creates is its speed.
MEASURED_AFTER = 45.0

READ_LINE = """
    SELECT job.project_id, count(*) AS jobs,
           extract(epoch FROM clock_timestamp() - min(job.created_at))::float8 AS oldest
    FROM job WHERE kind IN ('CREATE_INSTANCE') GROUP BY job.project_id
"""
# `used` is in the order of the classes of calls, of which the second is that of users' reads and the fifth that of
# creates. It was true at `at`, and fades.
READ_SPEED = """
    SELECT rate, used[5] AS creates, used[2] AS reads, extract(epoch FROM clock_timestamp())::float8 - at AS age
    FROM provider_budget
"""
READ_PLACES = """
    SELECT job.instance_id, job.project_id,
           (SELECT count(*) FROM job AS earlier
            WHERE earlier.kind IN ('CREATE_INSTANCE') AND earlier.project_id = job.project_id
              AND earlier.status = 'WAITING' AND (earlier.due_at, earlier.id) < (job.due_at, job.id)) AS ahead
    FROM job
    WHERE instance_id = ANY($1::uuid[]) AND kind IN ('CREATE_INSTANCE') AND status = 'WAITING'
"""
# Those of a project that are further back have hours to go.
READ_ESTIMATES = """
    SELECT job.instance_id, job.project_id, job.nth - 1 AS ahead, job.run_at, instance.estimated_ready_at,
           (job.args ->> 'operation_id')::uuid AS operation_id,
           (job.args ->> 'usual_seconds')::float8 AS usual_seconds
    FROM (SELECT *, row_number() OVER (PARTITION BY project_id ORDER BY due_at, id) AS nth
          FROM job WHERE kind IN ('CREATE_INSTANCE') AND status = 'WAITING') AS job
         JOIN instance ON instance.id = job.instance_id
    WHERE job.nth <= 2000 AND instance.status = 'CREATING'
    ORDER BY instance.id
"""
# An estimate is wrong if it differs by this part of the time that is left; less than a few seconds never matters.
WRONG_FROM = 0.25
WRONG_FROM_AT_LEAST = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Estimate:
    """When the instance of a create that waits is probably ready."""

    instance_id: UUID
    operation_id: UUID
    ready_at: datetime


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
        rows = await self._database.raw.fetch_by_keys(READ_PLACES, instance_ids)
        if rows:
            await self._refresh()
        return {
            row["instance_id"]: Place(row["ahead"] + 1, now() + self._wait(row["project_id"], row["ahead"]))
            for row in rows
        }

    async def corrections(self, *, usual: timedelta) -> list[Estimate]:
        """The creates that wait and whose estimate is wrong by now. `usual` is for those that have no time of their
        own: how long a create takes once it has begun."""
        rows = await self._database.raw.fetch(READ_ESTIMATES)
        if rows:
            await self._refresh()
        moment = now()
        found: list[Estimate] = []
        for row in rows:
            took = usual if row["usual_seconds"] is None else timedelta(seconds=row["usual_seconds"])
            ready_at = max(moment + self._wait(row["project_id"], row["ahead"]), row["run_at"]) + took
            allowed = max(WRONG_FROM * (ready_at - moment), WRONG_FROM_AT_LEAST)
            if row["estimated_ready_at"] is None or abs(ready_at - row["estimated_ready_at"]) > allowed:
                found.append(Estimate(row["instance_id"], row["operation_id"], ready_at))
        return found

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
            speed = await self._database.raw.fetchrow(READ_SPEED)
            is_busy = max((row["oldest"] for row in rows), default=0.0) > MEASURED_AFTER
            self._rate = _speed(speed, self._rate_limit, is_busy=is_busy)
            self._read_at = time.monotonic()


def _speed(row: asyncpg.Record | None, limit: float, *, is_busy: bool) -> float:
    """Creates a second: measured if the line has been busy, else estimated."""
    if row is None:
        return limit * USUAL_PART
    if is_busy and row["creates"]:
        return row["creates"]
    rate = min(row["rate"], limit)
    reads = row["reads"] * exp(-max(0.0, row["age"]) / USE_SECONDS)
    return max(rate * SHARES[CallPriority.CREATE], rate * USUAL_PART - reads)
