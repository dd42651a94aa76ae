"""A run's claim on its job, and the fenced transaction in which a handler writes."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.database import Database
from server.errors import LostClaim
from server.queue.exchange import JobTurn

# The lock lasts until commit, so no other worker can take the job over between check and write. The timeout covers
# a silent network: the server then ends the transaction, and the lock with it.
LOCK_CLAIM = text("""
    SELECT set_config('idle_in_transaction_session_timeout', :idle_timeout, true)
    FROM job
    WHERE id = :job_id AND claim = :token
      AND EXISTS (SELECT FROM job_worker WHERE job_worker.id = job.worker_id AND lease_until > clock_timestamp())
    FOR NO KEY UPDATE
""")
# The same for several runs of one process.
LOCK_CLAIMS = text("""
    SELECT job.id, job.unique_key, set_config('idle_in_transaction_session_timeout', :idle_timeout, true)
    FROM job JOIN unnest(CAST(:job_ids AS bigint[]), CAST(:tokens AS bigint[])) AS held (id, claim)
        ON job.id = held.id AND job.claim = held.claim
    WHERE EXISTS (SELECT FROM job_worker WHERE job_worker.id = job.worker_id AND lease_until > clock_timestamp())
    ORDER BY job.id
    FOR NO KEY UPDATE OF job
""")


@dataclass(slots=True)  # not frozen: that takes four times as long to create, and each run creates one
class Claim:
    """One run of one job. `attempt` counts from 1; runs that returned Again are not counted."""

    database: Database
    job_id: int
    kind: str
    attempt: int
    project_id: UUID | None
    instance_id: UUID | None
    token: int
    idle_timeout: timedelta
    turn: JobTurn | None = None

    @asynccontextmanager
    async def write(self) -> AsyncGenerator[AsyncSession]:
        """A transaction that commits only while this run holds the job; raises LostClaim otherwise.

        All writes of a handler go through it, so a worker that was paused, cut off or declared dead changes nothing.
        """
        async with self.database.write() as session:
            held = await session.execute(
                LOCK_CLAIM,
                {"job_id": self.job_id, "token": self.token, "idle_timeout": _milliseconds(self.idle_timeout)},
            )
            if held.first() is None:
                raise lost_claim()
            yield session


async def lock_claims(session: AsyncSession, claims: Sequence[Claim]) -> dict[int, str | None]:
    """The unique keys of the jobs that these runs still hold, by id. The other runs must write nothing."""
    rows = await session.execute(
        LOCK_CLAIMS,
        {
            "job_ids": [claim.job_id for claim in claims],
            "tokens": [claim.token for claim in claims],
            "idle_timeout": _milliseconds(min(claim.idle_timeout for claim in claims)),
        },
    )
    return {row[0]: row[1] for row in rows}


def lost_claim() -> LostClaim:
    return LostClaim("the job is claimed by another worker")


def _milliseconds(length: timedelta) -> str:
    return f"{int(length.total_seconds() * 1000)}ms"
