"""Compares all instances with the provider's list at an interval, and looks after the rest of the account."""

import structlog

from server.account.balance import warn_if_low
from server.account.object_sync import reconcile_objects
from server.account.objects import Account
from server.account.settle import settle_objects
from server.account.volume_sync import reconcile_volumes
from server.errors import NovitaError
from server.instances.provider.ledger_repair import cut_overnight
from server.instances.provider.live_reads import LiveReads
from server.instances.provider.reconcile import reconcile as compare_all
from server.jobs.registry import JobContext, handles
from server.lifetimes.repair import repair_lifetimes
from server.market.repair import repair_waits
from server.queue.handler import Done, Outcome
from server.queue.kinds import Reconcile
from server.recovery.repair import repair_recoveries
from server.spend.sums import sum_entries

log = structlog.get_logger(__name__)


@handles(Reconcile)
async def reconcile(_work: Reconcile, ctx: JobContext) -> Outcome:
    """Its writes need no claim: each reads its row under a lock, and repeating one changes nothing."""
    account = Account(ctx.services.database, ctx.novita, ctx.catalog, LiveReads())
    unarmed = await repair_lifetimes(ctx.services.database)
    await repair_recoveries(ctx.services.database)
    await repair_waits(ctx.services.database)
    await cut_overnight(ctx.services.database)
    await sum_entries(ctx.services.database.raw)
    try:
        report = await compare_all(ctx.services.database, ctx.novita, gone_grace=ctx.settings.gone_grace)
        settled = await settle_objects(account)
        objects = await reconcile_objects(account, gone_grace=ctx.settings.gone_grace)
        volumes = await reconcile_volumes(ctx.services.database, ctx.novita, gone_grace=ctx.settings.gone_grace)
    except NovitaError as error:
        # The next scheduled run does the same work.
        log.warning("reconcile.put_off", code=error.code, error=error.message)
        return Done()
    try:
        await warn_if_low(account, runway_min=ctx.settings.balance_warn)
    except NovitaError as error:
        log.info("balance.not_read", code=error.code, error=error.message)  # the key may not have the right
    log.info(
        "reconcile.done",
        compared=report.compared,
        changes={change.value: many for change, many in report.changes.items()},
        unlinked={origin.value: many for origin, many in report.unlinked.items()},
        in_doubt=report.in_doubt,
        lost=report.lost,
        settled_objects=settled,
        changed_objects=objects,
        volumes=volumes,
        lifetimes_without_job=unarmed,
        ledger_repaired=report.ledger,
        machines_repaired=report.machines,
        looked_at_again=report.again,
    )
    return Done()
