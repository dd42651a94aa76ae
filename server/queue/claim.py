"""A handler's proof that the job is still its own, and the transaction in which it may write."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.engine import Database
from server.errors import LostClaim

# The lock lasts until the commit, so nobody can take the job over between the check and the write. The timeout is for
# a network that goes silent in between: the server then ends our transaction, and the lock, by itself.
HOLD = text("""
    SELECT set_config('idle_in_transaction_session_timeout', :patience, true)
    FROM job
    WHERE id = :job_id AND claim = :token
      AND EXISTS (SELECT FROM job_worker WHERE job_worker.id = job.worker_id AND lease_until > clock_timestamp())
    FOR NO KEY UPDATE
""")


@dataclass(slots=True)  # not frozen: making one would take four times as long, and each run of a job needs one
class Claim:
    """One run of one job. `attempt` counts from 1; runs that only said Again are not counted."""

    database: Database
    job_id: int
    kind: str
    attempt: int
    project_id: UUID | None
    instance_id: UUID | None
    token: int
    patience: timedelta

    @asynccontextmanager
    async def write(self) -> AsyncGenerator[AsyncSession]:
        """A transaction in which the job is ours from its first statement to its commit; LostClaim if it no longer is.

        Everything a handler writes goes through here: a worker that was stopped, cut off or thought dead changes
        nothing when it comes back.
        """
        async with self.database.write() as session:
            held = await session.execute(
                HOLD,
                {
                    "job_id": self.job_id,
                    "token": self.token,
                    "patience": f"{int(self.patience.total_seconds() * 1000)}ms",
                },
            )
            if held.first() is None:
                raise LostClaim(f"job {self.job_id} is no longer ours")
            yield session
