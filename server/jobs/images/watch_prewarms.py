"""Looks for the ends of prewarmed images: the provider tells of none, and reconcile looks only every few minutes."""

from datetime import timedelta

import structlog

from server.account import prewarms
from server.account.object_sync import compare_objects
from server.account.objects import Account
from server.errors import NovitaError
from server.instances.provider.live_reads import LiveReads
from server.jobs.registry import JobContext, handles
from server.queue.handler import Again, Done, Outcome
from server.queue.kinds import WatchPrewarms

log = structlog.get_logger(__name__)

LOOK_EVERY = timedelta(seconds=15)  # one call for all of them; a prewarm takes minutes


@handles(WatchPrewarms)
async def watch_prewarms(_work: WatchPrewarms, ctx: JobContext) -> Outcome:
    """Its writes need no claim, as those of RECONCILE."""
    account = Account(ctx.services.database, ctx.novita, ctx.catalog, LiveReads())
    try:
        compared = await compare_objects(account, prewarms.KIND, gone_grace=ctx.settings.gone_grace)
    except NovitaError as error:
        log.info("prewarms.not_read", code=error.code)
        return Again(after=LOOK_EVERY)
    return Again(after=LOOK_EVERY) if compared.unfinished else Done()
