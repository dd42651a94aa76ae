"""A worker's one statement: hand in what is over, put back what is not, take the next. One round trip, one commit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

import asyncpg

# Worker connections plan by rule, not by statistics. ANALYZE sees this table empty as often as full, and a plan made
# for the empty one (sequential scan, sort) takes seconds per batch on the full one.
PLANNER = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}

# `id = ANY(array)` with a look-up by position, where a join with unnest() would be the obvious thing: the join becomes
# a nested loop over the whole table when the statistics say that it is empty. width_bucket() is a binary search in the
# sorted ids; array_position() would walk them for every row.
# `head` finds out how many of each kind are among the next; `taken` then locks exactly as many of each. In one step,
# the lock would come before the limit over all kinds, or SKIP LOCKED after it, and workers would get in each other's
# way. They are locked by then, so their place in the table is the quickest way back to them, and no plan can go wrong.
# A scan of one kind starts at its floor: see Floors.
TURN = """
    WITH finished AS (
        DELETE FROM job
        WHERE id = ANY($1::bigint[]) AND claim = ($2::bigint[])[width_bucket(id, $1::bigint[])]
        RETURNING id, kind, args, priority, project_id, instance_id, unique_key, run_at, attempts,
                  error_code, error_message, created_at, claimed_at
    ), kept AS (
        INSERT INTO job_history (id, kind, args, priority, project_id, instance_id, unique_key, run_at, attempts,
                                 error_code, error_message, created_at, claimed_at, status, finished_at)
        SELECT finished.*, 'SUCCEEDED', clock_timestamp() FROM finished
    ), put_back AS (
        UPDATE job
        SET status = 'WAITING', claim = NULL, worker_id = NULL, claimed_at = NULL,
            run_at = coalesce(now() + ($5::interval[])[width_bucket(id, $3::bigint[])], run_at),
            due_at = coalesce(now() + ($5::interval[])[width_bucket(id, $3::bigint[])]
                                    + ($6::interval[])[width_bucket(id, $3::bigint[])], due_at),
            attempts = ($7::int[])[width_bucket(id, $3::bigint[])],
            error_code = ($8::text[])[width_bucket(id, $3::bigint[])],
            error_message = ($9::text[])[width_bucket(id, $3::bigint[])]
        WHERE id = ANY($3::bigint[]) AND claim = ($4::bigint[])[width_bucket(id, $3::bigint[])]
        RETURNING id
    ), asked AS MATERIALIZED (
        SELECT kind, at_most, least(floor_due, now() - interval '100 ms') AS floor_due, floor_id
        FROM unnest($10::text[], $11::int[], $12::timestamptz[], $13::bigint[])
             AS given (kind, at_most, floor_due, floor_id)
        WHERE kind NOT IN (SELECT kind FROM job_pause)
          AND EXISTS (SELECT FROM job_worker WHERE id = $15 AND lease_until > now())
    ), head AS MATERIALIZED (
        SELECT kind, floor_due, floor_id, count(*) AS many
        FROM (
            SELECT asked.kind, asked.floor_due, asked.floor_id
            FROM asked CROSS JOIN LATERAL (
                SELECT due_at, id FROM job
                WHERE status = 'WAITING' AND job.kind = asked.kind AND run_at <= now()
                  AND (due_at, id) > (asked.floor_due, asked.floor_id)
                ORDER BY due_at, id
                LIMIT asked.at_most
            ) AS job
            ORDER BY job.due_at, job.id
            LIMIT $14
        ) AS next
        GROUP BY kind, floor_due, floor_id
    ), taken AS MATERIALIZED (
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
        WHERE ctid = ANY(ARRAY(SELECT place FROM taken))
        RETURNING id, kind, args, attempts, losses, cancel_requested, project_id, instance_id, due_at,
                  error_code, error_message, extract(epoch FROM claimed_at - run_at)::float8 AS waited,
                  origin
    )
    SELECT (SELECT count(*) FROM finished), NULL, NULL, (SELECT count(*) FROM put_back)::int, NULL, NULL, NULL, NULL,
           NULL, NULL, NULL,
           CASE WHEN (SELECT count(*) FROM taken) < $14 THEN (
               SELECT extract(epoch FROM min(job.run_at) - now())::float8
               FROM asked CROSS JOIN LATERAL (
                   SELECT run_at FROM job
                   WHERE status = 'WAITING' AND job.kind = asked.kind AND run_at > now()
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

BEGINNING = (datetime(1970, 1, 1, tzinfo=UTC), 0)


@dataclass(frozen=True, slots=True)
class PutBack:
    """A job that is not over. `after` None keeps its place in the order; else it is due `head_start` after that."""

    job_id: int
    claim: int
    after: timedelta | None
    head_start: timedelta
    attempts: int
    error_code: str | None
    error_message: str | None


@dataclass(frozen=True, slots=True)
class Ask:
    """How many to take: of each kind, from where on, and in all."""

    limit: int
    at_most: Mapping[str, int]
    floors: Mapping[str, tuple[datetime, int]]


NOTHING = Ask(0, {}, {})


@dataclass(slots=True)
class Taken:
    """A job as it was claimed."""

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


@dataclass(slots=True)
class Turn:
    """What came of it. `late` counts those that were no longer ours: their claim had been given to somebody else."""

    taken: list[Taken] = field(default_factory=list[Taken])
    late: int = 0
    next_in: float | None = None


async def take_turn(
    connection: "asyncpg.Connection[asyncpg.Record]",
    *,
    worker_id: UUID,
    claim: int,
    finished: Sequence[tuple[int, int]],
    put_back: Sequence[PutBack],
    ask: Ask,
) -> Turn:
    """Do all three at once. `claim` is what every job taken here must present from now on: a fresh random number."""
    finished = sorted(finished)
    put_back = sorted(put_back, key=lambda job: job.job_id)
    kinds = list(ask.at_most)
    first, *rows = await connection.fetch(
        TURN,
        [job_id for job_id, _ in finished],
        [held for _, held in finished],
        [job.job_id for job in put_back],
        [job.claim for job in put_back],
        [job.after for job in put_back],
        [job.head_start for job in put_back],
        [job.attempts for job in put_back],
        [job.error_code for job in put_back],
        [job.error_message for job in put_back],
        kinds,
        list(ask.at_most.values()),
        [ask.floors.get(kind, BEGINNING)[0] for kind in kinds],
        [ask.floors.get(kind, BEGINNING)[1] for kind in kinds],
        ask.limit,
        worker_id,
        claim,
    )
    late = len(finished) + len(put_back) - first[0] - first[3]
    return Turn([taken(row, claim) for row in rows], late, first[11])


def taken(row: asyncpg.Record, claim: int) -> Taken:
    """From the columns of a claim, in their order there."""
    return Taken(*row, claim)  # pyright: ignore[reportCallIssue] - a row does not know how long it is
