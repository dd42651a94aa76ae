"""Deletes what is past its retention, in small transactions, until nothing is left."""

import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

import structlog

from server.account.settle import prune_objects
from server.audit.log import prune_audit
from server.events.partitions import delete_old_events, drop_old_events
from server.instances.env import erase_deleted
from server.instances.retention import prune_deleted, prune_keys
from server.jobs.registry import JobContext, handles
from server.market.alerts import prune_alerts
from server.market.history import prune_changes
from server.queue.control import prune_jobs
from server.queue.handler import Again, Done, Outcome
from server.queue.kinds import CleanUp
from server.webhooks.deliveries import delete_old

BATCH_SIZE = 1000
# Of one run; the next one begins at once and continues.
TIME_MAX = timedelta(seconds=30)

log = structlog.get_logger(__name__)


@handles(CleanUp)
async def clean_up(_work: CleanUp, ctx: JobContext) -> Outcome:
    database, settings = ctx.services.database, ctx.settings
    pool = database.raw

    async def delete_deliveries() -> int:
        async with ctx.write() as session:
            return await delete_old(session, older_than=settings.event_retention, limit=BATCH_SIZE)

    # One batch of each: a statement that deletes nothing more ends its turn.
    steps: dict[str, Callable[[], Awaitable[int]]] = {
        "events": lambda: delete_old_events(pool, older_than=settings.event_retention, limit=BATCH_SIZE),
        "deliveries": delete_deliveries,
        "operations": lambda: prune_deleted(pool, older_than=settings.deleted_retention, limit=BATCH_SIZE),
        "env": lambda: erase_deleted(pool, limit=BATCH_SIZE),
        "provider_objects": lambda: prune_objects(pool, older_than=settings.deleted_retention, limit=BATCH_SIZE),
        "offer_changes": lambda: prune_changes(pool, older_than=settings.market_retention, limit=BATCH_SIZE),
        "alerts": lambda: prune_alerts(pool, older_than=settings.market_retention, limit=BATCH_SIZE),
        "keys": lambda: prune_keys(pool, older_than=settings.idempotency_retention, limit=BATCH_SIZE),
        "audit_events": lambda: prune_audit(pool, older_than=settings.audit_retention, limit=BATCH_SIZE),
    }
    deadline = time.monotonic() + TIME_MAX.total_seconds()
    deleted = {
        "event_partitions": await drop_old_events(database, older_than=settings.event_retention),
        "jobs": await prune_jobs(database, retention=settings.job_retention),
        **dict.fromkeys(steps, 0),
    }
    waiting = dict(steps)
    while waiting and time.monotonic() < deadline:
        for name, delete_batch in list(waiting.items()):
            count = await delete_batch()
            deleted[name] += count
            if count == 0:
                del waiting[name]
    log.info("clean_up.done", **deleted, is_complete=not waiting)
    return Again(after=timedelta(0)) if waiting else Done()
