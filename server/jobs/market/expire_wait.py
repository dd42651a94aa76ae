"""Runs at the end of a wait, and when one that a budget or quota has blocked may be looked at again."""

from server.instances import operations
from server.jobs.registry import JobContext, handles
from server.market import waits
from server.queue.control import release_key
from server.queue.handler import Done, Outcome
from server.queue.kinds import ExpireWait


@handles(ExpireWait)
async def expire_wait(work: ExpireWait, ctx: JobContext) -> Outcome:
    async with ctx.write() as session:
        operation = await operations.lock_open(session, work.operation_id)
        waiting = None if operation is None else await waits.load(session, operation)
        if operation is None:
            # Left by a worker of an older release, which has made its machine and knows no waits.
            await waits.end(session, work.operation_id, is_served=False)
        if waiting is None or waiting.row is None:
            return Done()
        # From here on a new time is that of a new job.
        await release_key(session, ctx.claim.job_id, unique_key=waits.expiry_key(work.operation_id))
        if waiting.is_over:
            # Its own job ends the operation; if it is awake, that job runs already.
            await waits.look_now(session, work.operation_id)
        else:
            await waits.unblock(session, waiting.row)
    return Done()
