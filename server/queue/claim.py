"""A run's claim on its job, and the fenced transaction in which a handler writes."""

from collections.abc import AsyncGenerator
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
                {
                    "job_id": self.job_id,
                    "token": self.token,
                    "idle_timeout": f"{int(self.idle_timeout.total_seconds() * 1000)}ms",
                },
            )
            if held.first() is None:
                raise LostClaim("the job is claimed by another worker")
            yield session
