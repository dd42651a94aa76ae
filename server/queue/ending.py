"""Ending a job that will not be done: the job and what it was for, in one fenced transaction."""

from sqlalchemy import text

from server.queue.claim import Claim
from server.queue.handler import Handler
from server.queue.kinds import Work
from server.queue.outcome import CANCELLED, Failure

END = text("""
    WITH ended AS (
        DELETE FROM job WHERE id = :job_id AND claim = :token
        RETURNING id, kind, args, priority, project_id, instance_id, unique_key, run_at, created_at, claimed_at
    )
    INSERT INTO job_history (id, kind, args, priority, project_id, instance_id, unique_key, run_at, created_at,
                             claimed_at, status, attempts, error_code, error_message, finished_at)
    SELECT ended.*, :status, :attempts, :code, :message, clock_timestamp() FROM ended
""")


async def end(claim: Claim, handler: Handler | None, work: Work | None, failure: Failure) -> None:
    """Move the job to the history as FAILED or CANCELLED. Raises LostClaim if it is somebody else's by now.

    `work` is None when its arguments can't be read; there is nobody to tell then but the log and the history.
    """
    async with claim.write() as session:
        if handler is not None and handler.failed is not None and work is not None:
            await handler.failed(session, work, failure)
        await session.execute(
            END,
            {
                "job_id": claim.job_id,
                "token": claim.token,
                "status": "CANCELLED" if failure.code == CANCELLED else "FAILED",
                "attempts": failure.attempts,
                "code": failure.code,
                "message": failure.message,
            },
        )
