"""Compares the ledger with the provider's bill, once a day."""

import structlog

from server.account.bill import check_bill as compare
from server.errors import AuthFailed, NovitaError
from server.jobs.registry import JobContext, handles
from server.queue.handler import Done, Outcome
from server.queue.kinds import CheckBill

log = structlog.get_logger(__name__)


@handles(CheckBill)
async def check_bill(_work: CheckBill, ctx: JobContext) -> Outcome:
    """Its writes need no claim: they replace what the same days had."""
    try:
        report = await compare(ctx.services.database, ctx.novita)
    except NovitaError as error:
        if error.retryable and not isinstance(error, AuthFailed):  # the key may not have the right
            raise
        log.warning("bill.not_read", code=error.code, error=error.message)
        return Done()
    log.info("bill.checked", lines=report.lines, differing=report.differing)
    return Done()
