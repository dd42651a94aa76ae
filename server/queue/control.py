"""Cancel, pause, resume, retry and delete jobs, make waiting ones due now, and keep one job per key at its time."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.database import Database, notify_after_commit
from server.db.pool import RawPool
from server.observe import job_origin
from server.queue.enqueue import PRIORITY_DELAY, TOPIC
from server.queue.exchange import ClaimedJob, claimed_job
from server.queue.kinds import Priority, Work, to_args

CANCEL_TOPIC = "job-cancel"

REQUEST_CANCEL = text("UPDATE job SET cancel_requested = true WHERE id = :job_id RETURNING id")

IS_ANY_CANCELLED = "EXISTS (SELECT FROM job WHERE cancel_requested)"
CANCELLED_HERE = "SELECT id, claim FROM job WHERE cancel_requested AND worker_id = $1 AND status = 'RUNNING'"

CLAIM_CANCELLED = """
    UPDATE job SET status = 'RUNNING', claim = $2, worker_id = $1, claimed_at = clock_timestamp()
    WHERE id = ANY(ARRAY(
        SELECT id FROM job
        WHERE cancel_requested AND status = 'WAITING' AND kind = ANY($3::text[])
        ORDER BY id
        LIMIT 100
        FOR NO KEY UPDATE SKIP LOCKED
    ))
    RETURNING id, kind, args::text, attempts, losses, cancel_requested, project_id, instance_id, due_at,
              error_code, error_message, extract(epoch FROM claimed_at - run_at)::float8, origin
"""


async def cancel_job(session: AsyncSession, job_id: int) -> bool:
    """Request the cancellation of a waiting or running job; False if there is no unfinished job with that id.

    A worker ends it: it interrupts a running handler and calls `failed` with the code CANCELLED in the transaction
    that ends the job. If the handler returns before that, the job ends as the handler says.
    """
    notify_after_commit(session, CANCEL_TOPIC)
    return (await session.execute(REQUEST_CANCEL, {"job_id": job_id})).first() is not None


async def cancelled_here(pool: RawPool, worker_id: UUID) -> set[tuple[int, int]]:
    """The running jobs of this worker that are to be cancelled, as pairs of id and claim."""
    return {(row["id"], row["claim"]) for row in await pool.fetch(CANCELLED_HERE, worker_id)}


async def claim_cancelled(pool: RawPool, worker_id: UUID, claim: int, kinds: Sequence[str]) -> list[ClaimedJob]:
    """Claim waiting jobs that are to be cancelled, even if they are not due or their kind is paused."""
    return [claimed_job(row, claim) for row in await pool.fetch(CLAIM_CANCELLED, worker_id, claim, kinds)]


# There is an index by instance_id. Running jobs are left alone.
MAKE_DUE_NOW = text("""
    UPDATE job SET run_at = clock_timestamp(), due_at = clock_timestamp() + (due_at - run_at), pause = interval '0'
    WHERE instance_id = :instance_id AND kind = :kind AND status = 'WAITING' AND run_at > clock_timestamp()
""")


async def make_due_now(session: AsyncSession, kind: str, *, instance_id: UUID) -> None:
    """Let an instance's waiting jobs of this kind run now."""
    notify_after_commit(session, TOPIC)
    await session.execute(MAKE_DUE_NOW, {"kind": kind, "instance_id": instance_id})


MAKE_KEYS_DUE_NOW = text("""
    UPDATE job SET run_at = clock_timestamp(), due_at = clock_timestamp() + (due_at - run_at), pause = interval '0'
    WHERE unique_key = ANY (CAST(:keys AS text[])) AND status = 'WAITING' AND run_at > clock_timestamp()
""")
MAKE_IDS_DUE_NOW = text("""
    UPDATE job SET run_at = clock_timestamp(), due_at = clock_timestamp() + (due_at - run_at)
    WHERE id = ANY (CAST(:ids AS bigint[])) AND status = 'WAITING' AND run_at > clock_timestamp()
""")


async def make_keys_due_now(session: AsyncSession, unique_keys: Sequence[str]) -> None:
    """Let the waiting jobs with these unique keys run now."""
    notify_after_commit(session, TOPIC)
    await session.execute(MAKE_KEYS_DUE_NOW, {"keys": list(unique_keys)})


async def make_ids_due_now(session: AsyncSession, ids: Collection[int]) -> None:
    """Let these jobs run now, those of them that wait."""
    notify_after_commit(session, TOPIC)
    await session.execute(MAKE_IDS_DUE_NOW, {"ids": sorted(ids)})


PAUSE = text("INSERT INTO job_pause (kind) VALUES (:kind) ON CONFLICT (kind) DO NOTHING RETURNING kind")
RESUME = text("DELETE FROM job_pause WHERE kind = :kind RETURNING kind")


async def pause_jobs(session: AsyncSession, kind: str) -> bool:
    """Claim no more jobs of this kind from the commit on; running ones finish. False if it was paused already."""
    return (await session.execute(PAUSE, {"kind": kind})).first() is not None


async def resume_jobs(session: AsyncSession, kind: str) -> bool:
    """Claim jobs of this kind again. False if the kind was not paused."""
    notify_after_commit(session, TOPIC)
    return (await session.execute(RESUME, {"kind": kind})).first() is not None


# A failed job whose unique key is in use again is dropped: the unfinished job with that key does its work.
RETRY = """
    WITH failed AS (
        DELETE FROM job_history WHERE id = ANY(ARRAY(
            SELECT id FROM job_history WHERE status = 'FAILED' AND {condition}
            ORDER BY finished_at
            LIMIT :limit
            FOR UPDATE SKIP LOCKED
        ))
        RETURNING id, kind, args, priority, project_id, instance_id, unique_key, created_at
    )
    INSERT INTO job (id, kind, args, priority, project_id, instance_id, unique_key, created_at, origin, run_at, due_at)
    SELECT failed.*, CAST(:origin AS text), start, start + (CAST(:priority_delays AS interval[]))[priority + 1]
    FROM failed, clock_timestamp() AS start
    ON CONFLICT DO NOTHING
    RETURNING id
"""
RETRY_ONE = text(RETRY.format(condition="id = :job_id"))
RETRY_MANY = text(
    RETRY.format(
        condition="""
            (CAST(:kind AS text) IS NULL OR kind = :kind)
            AND (CAST(:project_id AS uuid) IS NULL OR project_id = :project_id)
            AND (CAST(:owner_id AS uuid) IS NULL
                 OR instance_id IN (SELECT id FROM instance WHERE owner_token_id = CAST(:owner_id AS uuid)))
            AND (CAST(:error_code AS text) IS NULL OR error_code = :error_code)
            AND NOT EXISTS (SELECT FROM operation WHERE operation.id = CAST(args ->> 'operation_id' AS uuid)
                            AND operation.finished_at IS NOT NULL)
        """
    )
)

_priority_delays = [PRIORITY_DELAY[priority] for priority in Priority]


async def retry_job(session: AsyncSession, job_id: int) -> bool:
    """Run a failed job again, with its attempts reset. False if there is no failed job with that id."""
    notify_after_commit(session, TOPIC)
    values = {"job_id": job_id, "limit": 1, "priority_delays": _priority_delays, "origin": job_origin.current_origin()}
    return (await session.execute(RETRY_ONE, values)).first() is not None


async def retry_jobs(
    session: AsyncSession,
    *,
    kind: str | None = None,
    project_id: UUID | None = None,
    owner_id: UUID | None = None,
    error_code: str | None = None,
    limit: int = 1000,
) -> list[int]:
    """Run failed jobs again, the oldest first; return their ids. Call again while it returns `limit` of them.

    Not those whose operation has ended: they would do nothing.
    """
    notify_after_commit(session, TOPIC)
    rows = await session.execute(
        RETRY_MANY,
        {
            "kind": kind,
            "project_id": project_id,
            "owner_id": owner_id,
            "error_code": error_code,
            "limit": limit,
            "priority_delays": _priority_delays,
            "origin": job_origin.current_origin(),
        },
    )
    return sorted(rows.scalars())


# One waiting job per key at a given time. Callers hold a lock of their own for the key, such as an instance's row, so
# that their calls come one by one. A run of the job takes the same lock, and then calls `release_key`: what is kept
# after that is a new job, so a time that is set while the job runs is not lost. In the other order, a caller would wait
# for the run, and the run for the caller.
# Without a pause: the time is one of the database's clock, and stays so if that clock is set.
# Only a waiting job: the run of a claimed one waits for the caller's lock, and must not be waited for here.
MOVE_KEPT = text("""
    UPDATE job SET run_at = start, due_at = start, pause = NULL
    FROM greatest(CAST(:at AS timestamptz), clock_timestamp()) AS start
    WHERE unique_key = :key AND status = 'WAITING'
    RETURNING id
""")
ADD_KEPT = text("""
    INSERT INTO job (kind, args, priority, project_id, instance_id, unique_key, origin, run_at, due_at, pause)
    SELECT :kind, CAST(:args AS jsonb), :priority, CAST(:project_id AS uuid), CAST(:instance_id AS uuid), :key,
           CAST(:origin AS text), start, start, NULL
    FROM greatest(CAST(:at AS timestamptz), clock_timestamp()) AS start
    ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL DO NOTHING
""")
DROP_KEPT = text("DELETE FROM job WHERE unique_key = :key AND status = 'WAITING'")
RELEASE_KEYS = text("UPDATE job SET unique_key = NULL WHERE id = ANY(CAST(:job_ids AS bigint[]))")
RELEASE_KEY = text("UPDATE job SET unique_key = NULL WHERE id = :job_id AND unique_key = :key RETURNING id")


async def keep_job(
    session: AsyncSession,
    work: Work,
    *,
    unique_key: str,
    at: datetime | None,
    project_id: UUID,
    instance_id: UUID,
) -> None:
    """Let the waiting job with this key run at this time, and add it if there is none; None: remove it.

    A job of this kind is not delayed by its project's other jobs: its time is its order.
    """
    if at is None:
        await session.execute(DROP_KEPT, {"key": unique_key})
        return
    notify_after_commit(session, TOPIC)
    if (await session.execute(MOVE_KEPT, {"key": unique_key, "at": at})).first() is not None:
        return
    await add_kept_jobs(session, [KeptJob(work, unique_key, at, project_id, instance_id)])


# A lock of its own is not needed: the row of the key is locked until the caller's commit, also if another transaction
# has just added it, so the run that follows sees what the caller has written. A run that has begun releases its key
# first, and waits for the caller there.
WAKE = text("""
    INSERT INTO job (kind, args, priority, project_id, unique_key, origin, run_at, due_at, pause)
    SELECT :kind, CAST(:args AS jsonb), :priority, CAST(:project_id AS uuid), :key, CAST(:origin AS text), start, start,
           NULL
    FROM coalesce(CAST(:at AS timestamptz), clock_timestamp()) AS start
    ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL DO UPDATE
    SET run_at = CASE WHEN job.status = 'WAITING' THEN least(job.run_at, excluded.run_at) ELSE job.run_at END,
        due_at = CASE WHEN job.status = 'WAITING' THEN least(job.due_at, excluded.due_at) ELSE job.due_at END
""")


async def wake_job(
    session: AsyncSession, work: Work, *, unique_key: str, project_id: UUID, at: datetime | None = None
) -> None:
    """Let the job with this key run at this time or earlier, and add it if there is none; None: now."""
    notify_after_commit(session, TOPIC)
    values = {
        "kind": work.kind,
        "args": to_args(work),
        "priority": int(work.priority),
        "project_id": project_id,
        "key": unique_key,
        "origin": job_origin.current_origin(),
        "at": at,
    }
    await session.execute(WAKE, values)


@dataclass(frozen=True, slots=True)
class KeptJob:
    """A job of a key, to run at this time."""

    work: Work
    unique_key: str
    at: datetime
    project_id: UUID
    instance_id: UUID


async def add_kept_jobs(session: AsyncSession, jobs: Sequence[KeptJob]) -> None:
    """Add jobs of keys that no waiting job has."""
    if not jobs:
        return
    notify_after_commit(session, TOPIC)
    rows = [
        {
            "kind": job.work.kind,
            "args": to_args(job.work),
            "priority": int(job.work.priority),
            "project_id": job.project_id,
            "instance_id": job.instance_id,
            "key": job.unique_key,
            "origin": job_origin.current_origin(),
            "at": job.at,
        }
        for job in jobs
    ]
    await session.execute(ADD_KEPT, rows)


async def release_keys(session: AsyncSession, job_ids: Sequence[int]) -> None:
    """Let other jobs have the keys of these, which run now."""
    await session.execute(RELEASE_KEYS, {"job_ids": job_ids})


async def release_key(session: AsyncSession, job_id: int, *, unique_key: str) -> bool:
    """Let another job have the key of this one, which runs now. False if it has lost the key before."""
    return (await session.execute(RELEASE_KEY, {"job_id": job_id, "key": unique_key})).first() is not None


PRUNE = """
    DELETE FROM job_history WHERE id = ANY(ARRAY(
        SELECT id FROM job_history
        WHERE {condition} AND finished_at < now() - $1::interval
        ORDER BY finished_at
        LIMIT $2
        FOR UPDATE SKIP LOCKED
    ))
"""
PRUNE_SUCCEEDED_AND_CANCELLED = PRUNE.format(condition="status <> 'FAILED'")
PRUNE_FAILED = PRUNE.format(condition="status = 'FAILED'")
BATCH_SIZE = 1000


async def prune_jobs(
    database: Database,
    *,
    retention: timedelta = timedelta(hours=24),
    failed_retention: timedelta = timedelta(days=7),
    batch: int = BATCH_SIZE,
    limit: int = 1_000_000,
) -> int:
    """Delete jobs that are past their retention, in short transactions; return the number of rows.

    At most `limit` rows in one call, so that the job that calls this ends in time.
    """
    pool = database.raw
    pruned = 0
    for statement, age in ((PRUNE_SUCCEEDED_AND_CANCELLED, retention), (PRUNE_FAILED, failed_retention)):
        while pruned < limit:
            deleted = int((await pool.execute(statement, age, batch)).rsplit(" ", 1)[1])
            pruned += deleted
            if deleted < batch:
                break
    return pruned
