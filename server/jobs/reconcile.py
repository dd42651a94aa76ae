"""Comparing everything with the provider now and then, so that what happened behind our back does not stay unseen."""

import structlog

from server.errors import NovitaError
from server.instances.reconcile import reconcile as compare_all
from server.jobs.handler import Tools, handles
from server.queue.kinds import Reconcile
from server.queue.outcome import Done, Outcome

log = structlog.get_logger(__name__)


@handles(Reconcile)
async def reconcile(_work: Reconcile, tools: Tools) -> Outcome:
    """Its writes need no claim: each looks at its row under a lock, and doing one twice changes nothing."""
    try:
        report = await compare_all(tools.services.database, tools.novita)
    except NovitaError as error:
        # The next one comes by the clock, and has the same to do.
        log.warning("reconcile.put_off", code=error.code, error=error.message)
        return Done()
    log.info(
        "reconcile.done",
        compared=report.compared,
        changes={change.value: many for change, many in report.changes.items()},
        orphans=report.orphans,
        unmanaged=report.unmanaged,
        lost=report.lost,
    )
    return Done()
