"""Takes the steps of instances' lifetimes at their time."""

from datetime import timedelta

import structlog

from server.errors import NotFound, NovitaError
from server.instances import transitions
from server.instances.limits.arming import job_key
from server.jobs.registry import JobContext, handles
from server.lifetimes.end import Reading, finish_reading, take_step
from server.lifetimes.idle import INTERVAL, UNKNOWN, Verdict, judge
from server.queue.control import release_key
from server.queue.handler import Done, Outcome
from server.queue.kinds import EndLifetime

log = structlog.get_logger(__name__)


@handles(EndLifetime)
async def end_lifetime(work: EndLifetime, ctx: JobContext) -> Outcome:
    """One step. What comes next is a new job, made under the instance's lock, so no time set meanwhile is lost."""
    if await ctx.services.lifetime_steps.take(ctx.claim, work.instance_id):
        return Done()
    retry, calls = ctx.settings.lifetime_retry, ctx.settings.novita_rate_limit * ctx.settings.metrics_share
    try:
        async with ctx.write() as session:
            await transitions.lock(session, work.instance_id)
            if not await release_key(session, ctx.claim.job_id, unique_key=job_key(work.instance_id)):
                return Done()  # an earlier run was killed after its commit
            reading = await take_step(session, work.instance_id, retry=retry, calls_per_minute=calls)
    except NotFound:
        return Done()
    if reading is not None:
        verdict = await _read(reading, ctx)
        async with ctx.write() as session:
            await finish_reading(session, reading, verdict, retry=retry)
    return Done()


async def _read(reading: Reading, ctx: JobContext) -> Verdict:
    """Metrics that can't be read say nothing: the instance counts as busy."""
    try:
        metrics = await ctx.novita.metrics(
            reading.novita_id, since=reading.since - timedelta(seconds=1), until=reading.until, interval=INTERVAL
        )
    except NovitaError as error:
        log.info("lifetime.metrics_unreadable", instance_id=reading.instance_id, code=error.code)
        return UNKNOWN
    return judge(metrics, reading.limit, gpu_count=reading.gpu_count, since=reading.since, until=reading.until)
