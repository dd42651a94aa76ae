"""Forgetting what is kept no longer: old events, finished jobs, deliveries that are over."""

import structlog

from server.events.retention import drop_old_events
from server.jobs.handler import Tools, handles
from server.queue.kinds import CleanUp
from server.queue.outcome import Done, Outcome
from server.queue.prune import prune_jobs
from server.webhooks.deliveries import forget_old

# In one go; what is left is forgotten the next time.
MOST_DELIVERIES = 10_000

log = structlog.get_logger(__name__)


@handles(CleanUp)
async def clean_up(_work: CleanUp, tools: Tools) -> Outcome:
    database, settings = tools.services.database, tools.settings
    partitions = await drop_old_events(database, older_than=settings.event_retention)
    jobs = await prune_jobs(database, retention=settings.job_retention)
    async with tools.write() as session:
        deliveries = await forget_old(session, older_than=settings.event_retention, most=MOST_DELIVERIES)
    log.info("clean_up.done", event_partitions=partitions, jobs=jobs, deliveries=deliveries)
    return Done()
