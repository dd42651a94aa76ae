"""The one statement of a worker: complete jobs, reschedule others, claim the next. One round trip, one commit."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol
from uuid import UUID

import asyncpg

from server.db.notify import Look

# Worker connections plan by rule, not by statistics. ANALYZE sees this table empty as often as full, and a plan for the
# empty table (sequential scan, sort) takes seconds per batch on the full one.
PLANNER = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}

# `id = ANY(array)` with a look-up by position instead of a join with unnest(): the join becomes a nested loop over the
# whole table when the statistics say that it is empty. width_bucket() is a binary search in the sorted ids;
# array_position() would scan them for every row.
# `head` counts how many of each kind are among the next jobs; `locked` then locks exactly as many of each. In one step,
# the lock would come before the limit over all kinds, or SKIP LOCKED after it, and workers would block each other.
# The update finds the locked rows by ctid: that is the fastest way, and no plan can go wrong.
# The scan of one kind starts at its floor: see ScanFloors.
EXCHANGE = """
    WITH finished AS (
        DELETE FROM job
        WHERE id = ANY($1::bigint[]) AND claim = ($2::bigint[])[width_bucket(id, $1::bigint[])]
        RETURNING id, kind, args, priority, project_id, instance_id, unique_key, run_at, attempts,
                  error_code, error_message, created_at, claimed_at
    ), history AS (
        INSERT INTO job_history (id, kind, args, priority, project_id, instance_id, unique_key, run_at, attempts,
                                 error_code, error_message, created_at, claimed_at, status, finished_at)
        SELECT finished.*, 'SUCCEEDED', clock_timestamp() FROM finished
    ), rescheduled AS (
        UPDATE job
        SET status = 'WAITING', claim = NULL, worker_id = NULL, claimed_at = NULL,
            run_at = coalesce(now() + ($5::interval[])[width_bucket(id, $3::bigint[])], run_at),
            due_at = coalesce(now() + ($5::interval[])[width_bucket(id, $3::bigint[])]
                                    + ($6::interval[])[width_bucket(id, $3::bigint[])], due_at),
            pause = coalesce(($5::interval[])[width_bucket(id, $3::bigint[])], pause),
            attempts = ($7::int[])[width_bucket(id, $3::bigint[])],
            error_code = ($8::text[])[width_bucket(id, $3::bigint[])],
            error_message = ($9::text[])[width_bucket(id, $3::bigint[])]
        WHERE id = ANY($3::bigint[]) AND claim = ($4::bigint[])[width_bucket(id, $3::bigint[])]
        RETURNING id
    ), request AS MATERIALIZED (
        SELECT kind, at_most, least(floor_due, now() - interval '100 ms') AS floor_due, floor_id
        FROM unnest($10::text[], $11::int[], $12::timestamptz[], $13::bigint[])
             AS requested (kind, at_most, floor_due, floor_id)
        WHERE kind NOT IN (SELECT kind FROM job_pause)
          AND EXISTS (SELECT FROM job_worker WHERE id = $15 AND lease_until > now())
    ), head AS MATERIALIZED (
        SELECT kind, floor_due, floor_id, count(*) AS many
        FROM (
            SELECT request.kind, request.floor_due, request.floor_id
            FROM request CROSS JOIN LATERAL (
                SELECT due_at, id FROM job
                WHERE status = 'WAITING' AND job.kind = request.kind AND run_at <= now()
                  AND (due_at, id) > (request.floor_due, request.floor_id)
                ORDER BY due_at, id
                LIMIT request.at_most
            ) AS job
            ORDER BY job.due_at, job.id
            LIMIT $14
        ) AS next
        GROUP BY kind, floor_due, floor_id
    ), locked AS MATERIALIZED (
        SELECT job.ctid AS place
        FROM head CROSS JOIN LATERAL (
            SELECT ctid FROM job
            WHERE status = 'WAITING' AND job.kind = head.kind AND run_at <= now()
              AND (due_at, id) > (head.floor_due, head.floor_id)
            ORDER BY due_at, id
            LIMIT head.many
            FOR NO KEY UPDATE SKIP LOCKED
        ) AS job
    ), claimed AS (
        UPDATE job SET status = 'RUNNING', claim = $16, worker_id = $15, claimed_at = clock_timestamp()
        WHERE ctid = ANY(ARRAY(SELECT place FROM locked))
        RETURNING id, kind, args, attempts, losses, cancel_requested, project_id, instance_id, due_at,
                  error_code, error_message, extract(epoch FROM claimed_at - run_at)::float8 AS waited,
                  origin
    )
    SELECT (SELECT count(*) FROM finished), NULL, NULL, (SELECT count(*) FROM rescheduled)::int, NULL, NULL, NULL, NULL,
           NULL, NULL, NULL,
           CASE WHEN (SELECT count(*) FROM locked) < $14 THEN (
               SELECT extract(epoch FROM min(job.run_at) - now())::float8
               FROM request CROSS JOIN LATERAL (
                   SELECT run_at FROM job
                   WHERE status = 'WAITING' AND job.kind = request.kind AND run_at > now()
                     AND (due_at, id) > (now(), 0)
                   ORDER BY due_at, id
                   LIMIT 1
               ) AS job
           ) END, NULL
    UNION ALL
    (SELECT id, kind, args::text, attempts, losses, cancel_requested, project_id, instance_id, due_at,
            error_code, error_message, waited, origin
     FROM claimed ORDER BY due_at, id)
"""

# Whether a job of these kinds is due, or will be before the second look from now.
IS_ANY_DUE = """
    EXISTS (SELECT FROM unnest('{{{kinds}}}'::text[]) AS wanted (kind) CROSS JOIN LATERAL (
        SELECT FROM job WHERE status = 'WAITING' AND job.kind = wanted.kind
          AND run_at <= clock_timestamp() + interval '{horizon} seconds'
        ORDER BY due_at, id
        LIMIT 1
    ) AS due)
"""

SCAN_START = (datetime(1970, 1, 1, tzinfo=UTC), 0)


@dataclass(frozen=True, slots=True)
class Reschedule:
    """An unfinished job to release. `after` None keeps its place in the order; else `due_at` is set anew."""

    job_id: int
    claim: int
    after: timedelta | None
    priority_delay: timedelta
    attempts: int
    error_code: str | None
    error_message: str | None


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """How many jobs to claim: of each kind, from which floor, and in all."""

    limit: int
    at_most: Mapping[str, int]
    floors: Mapping[str, tuple[datetime, int]]


def look_for_jobs(kinds: Iterable[str], *, every: timedelta) -> Look:
    """For workers that were not notified of their jobs."""
    seconds = every.total_seconds()
    return Look(IS_ANY_DUE.format(kinds=",".join(kinds), horizon=1.5 * seconds), seconds)


NO_CLAIM = ClaimRequest(0, {}, {})


class JobTurn(Protocol):
    """Leave for one run to use what its class shares with others, such as the provider's rate limit."""

    def give_back(self) -> None:
        """Called at the end of the run, whether it was used or not."""
        ...


@dataclass(slots=True)
class ClaimedJob:
    """A job with the values it had when it was claimed."""

    id: int
    kind: str
    args: str
    attempts: int
    losses: int
    cancel_requested: bool
    project_id: UUID | None
    instance_id: UUID | None
    due_at: datetime
    error_code: str | None
    error_message: str | None
    waited: float
    origin: str | None
    claim: int
    turn: "JobTurn | None" = None  # of a lined class; given back at the end of the run


@dataclass(slots=True)
class ExchangeResult:
    """`late` counts refused writes: jobs whose claim had passed to another worker."""

    claimed: list[ClaimedJob] = field(default_factory=list[ClaimedJob])
    late: int = 0
    next_in: float | None = None


async def exchange(
    connection: "asyncpg.Connection[asyncpg.Record]",
    *,
    worker_id: UUID,
    claim: int,
    finished: Sequence[tuple[int, int]],
    rescheduled: Sequence[Reschedule],
    request: ClaimRequest,
) -> ExchangeResult:
    """Run the statement. `claim` is a fresh random number: later writes for the jobs claimed here must present it."""
    finished = sorted(finished)
    rescheduled = sorted(rescheduled, key=lambda job: job.job_id)
    kinds = list(request.at_most)
    first, *rows = await connection.fetch(
        EXCHANGE,
        [job_id for job_id, _ in finished],
        [held_claim for _, held_claim in finished],
        [job.job_id for job in rescheduled],
        [job.claim for job in rescheduled],
        [job.after for job in rescheduled],
        [job.priority_delay for job in rescheduled],
        [job.attempts for job in rescheduled],
        [job.error_code for job in rescheduled],
        [job.error_message for job in rescheduled],
        kinds,
        list(request.at_most.values()),
        [request.floors.get(kind, SCAN_START)[0] for kind in kinds],
        [request.floors.get(kind, SCAN_START)[1] for kind in kinds],
        request.limit,
        worker_id,
        claim,
    )
    late = len(finished) + len(rescheduled) - first[0] - first[3]
    return ExchangeResult([claimed_job(row, claim) for row in rows], late, first[11])


def claimed_job(row: asyncpg.Record, claim: int) -> ClaimedJob:
    """The row's columns are in the order of ClaimedJob's fields."""
    return ClaimedJob(*row, claim)  # pyright: ignore[reportCallIssue] - a row does not know how long it is
