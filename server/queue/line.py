"""The statements of a line: is there a job, and which is next. Projects take turns, each with its jobs in order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import asyncpg

from server.db.tables.job import LINES
from server.queue.exchange import ClaimedJob, claimed_job
from server.queue.kinds import LINED, JobClass

NO_PROJECT = UUID(int=0)

PEEK = """
    SELECT kind,
           (SELECT count(*) FROM (SELECT FROM job
                                  WHERE job.kind = wanted.kind AND status = 'WAITING' AND run_at <= now()
                                  LIMIT $2) AS first) AS due,
           (SELECT extract(epoch FROM run_at - now())::float8 FROM job
            WHERE job.kind = wanted.kind AND status = 'WAITING' AND run_at > now() AND (due_at, id) > (now(), 0)
            ORDER BY due_at, id LIMIT 1) AS next_in
    FROM unnest($1::text[]) AS wanted (kind)
    WHERE kind NOT IN (SELECT kind FROM job_pause)
"""

# `project` walks the index from project to project. Of each, the first jobs are numbered; all first ones go before the
# second ones, beginning with the project after the one that was served last. Of two workers that choose the same job,
# one gets fewer than it could, and asks again.
CLAIM = """
    WITH RECURSIVE project AS (
        (SELECT project_id FROM job WHERE {is_in_line} AND project_id IS NOT NULL ORDER BY project_id LIMIT 1)
        UNION ALL
        SELECT (SELECT job.project_id FROM job WHERE {is_in_line} AND job.project_id > project.project_id
                ORDER BY job.project_id LIMIT 1)
        FROM project WHERE project.project_id IS NOT NULL
    ), next AS (
        SELECT first.id, project.project_id, first.nth
        FROM project CROSS JOIN LATERAL (
            SELECT id, row_number() OVER (ORDER BY due_at, id) AS nth FROM (
                SELECT id, due_at FROM job
                WHERE {is_in_line} AND job.project_id = project.project_id AND {is_due}
                ORDER BY due_at, id LIMIT $1
            ) AS job
        ) AS first
        WHERE project.project_id IS NOT NULL
        UNION ALL
        SELECT id, '{no_project}', row_number() OVER (ORDER BY due_at, id) FROM (
            SELECT id, due_at FROM job
            WHERE {is_in_line} AND project_id IS NULL AND {is_due}
            ORDER BY due_at, id LIMIT $1
        ) AS job
    ), chosen AS MATERIALIZED (
        SELECT id, row_number() OVER (ORDER BY nth, project_id <= $2, project_id) AS place FROM next
        ORDER BY place LIMIT $1
    ), locked AS MATERIALIZED (
        SELECT ctid AS place FROM job
        WHERE id = ANY(ARRAY(SELECT id FROM chosen)) AND status = 'WAITING' AND run_at <= now()
        FOR NO KEY UPDATE SKIP LOCKED
    ), claimed AS (
        UPDATE job SET status = 'RUNNING', claim = $3, worker_id = $4, claimed_at = clock_timestamp()
        WHERE ctid = ANY(ARRAY(SELECT place FROM locked))
          AND EXISTS (SELECT FROM job_worker WHERE id = $4 AND lease_until > now())
        RETURNING id, kind, args, attempts, losses, cancel_requested, project_id, instance_id, due_at,
                  error_code, error_message, extract(epoch FROM claimed_at - run_at)::float8 AS waited,
                  origin
    )
    SELECT id, kind, args::text, attempts, losses, cancel_requested, project_id, instance_id, due_at,
           error_code, error_message, waited, origin
    FROM claimed JOIN chosen USING (id) ORDER BY chosen.place
"""
IS_DUE = (
    "status = 'WAITING' AND run_at <= now() AND kind = ANY($5::text[]) AND kind NOT IN (SELECT kind FROM job_pause)"
)


def _claim_statement(job_class: JobClass) -> str:
    # The same words as in the index, which is only used for exactly these kinds.
    kinds = ", ".join(f"'{kind}'" for kind in LINES[job_class])
    return CLAIM.format(is_in_line=f"job.kind IN ({kinds})", is_due=IS_DUE, no_project=NO_PROJECT)


CLAIMS: Mapping[JobClass, str] = {job_class: _claim_statement(job_class) for job_class in LINED}


@dataclass(frozen=True, slots=True)
class Peek:
    """How many jobs are due in a line, up to the number that was asked for; if none, the seconds until one is, as far
    as is known."""

    due: int
    next_in: float | None


async def peek(
    connection: "asyncpg.Connection[asyncpg.Record]", lines: Mapping[JobClass, Sequence[str]], *, at_most: int
) -> dict[JobClass, Peek]:
    """Look at the jobs of each line's kinds; claims nothing."""
    rows = await connection.fetch(PEEK, [kind for kinds in lines.values() for kind in kinds], at_most)
    return {job_class: _peek_of([row for row in rows if row["kind"] in kinds]) for job_class, kinds in lines.items()}


def _peek_of(rows: Sequence[asyncpg.Record]) -> Peek:
    pauses = [row["next_in"] for row in rows if row["next_in"] is not None]
    return Peek(sum(row["due"] for row in rows), min(pauses, default=None))


async def claim_in_line(
    connection: "asyncpg.Connection[asyncpg.Record]",
    job_class: JobClass,
    kinds: Sequence[str],
    *,
    at_most: int,
    after_project: UUID,
    worker_id: UUID,
    claim: int,
) -> list[ClaimedJob]:
    """Claim the next jobs of a line, in their order: it begins with the project that comes after `after_project`."""
    rows = await connection.fetch(CLAIMS[job_class], at_most, after_project, claim, worker_id, kinds)
    return [claimed_job(row, claim) for row in rows]
