"""Forgetting what is kept no longer: old events, finished jobs."""

import structlog

from server.events.retention import drop_old_events
from server.jobs.handler import Tools, handles
from server.queue.kinds import CleanUp
from server.queue.outcome import Done, Outcome

log = structlog.get_logger(__name__)


@handles(CleanUp)
async def clean_up(_work: CleanUp, tools: Tools) -> Outcome:
    database, settings = tools.services.database, tools.settings
    events = await drop_old_events(database, older_than=settings.event_retention)
    log.info("clean_up.done", events=events)
    return Done()
