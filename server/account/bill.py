"""Compares the ledger with the provider's bill."""

from dataclasses import dataclass

import structlog

from server.account.objects import Account, refuse
from server.auth.caller import Caller
from server.db.database import Database
from server.errors import NovitaError
from server.instances.provider.ledger_repair import cut_overnight
from server.novita.client import CallPriority, NovitaClient
from server.spend.bill import MICROS_PER_E4, BilledLine, find_windows, store_bill
from server.spend.sums import sum_entries

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class BillReport:
    """How many lines were read, and how many days of a project were found to differ for the first time."""

    lines: int
    differing: int


async def sync_bill(account: Account, *, by: Caller) -> BillReport:
    """For a caller. Raises Refused, or a NovitaError that may pass by itself."""
    account.live_reads.take(by)
    try:
        return await check_bill(account.database, account.novita, priority=CallPriority.USER)
    except NovitaError as error:
        refuse(error)


async def check_bill(
    database: Database, novita: NovitaClient, *, priority: CallPriority = CallPriority.POLL
) -> BillReport:
    """Read the days that are settled and not compared yet, and the last three again. Raises NovitaError.

    Killed anywhere, the next one reads the same days: a window is stored and compared in one transaction.
    """
    await cut_overnight(database)
    await sum_entries(database.raw)
    async with database.read() as session:
        windows = await find_windows(session)
    read, differing = 0, 0
    for since, until in windows:
        bills = await novita.bills(since=since, until=until, cycle="Day", priority=priority)
        lines = [
            BilledLine(bill.instance_id, bill.since.date(), bill.amount_e4 * MICROS_PER_E4)
            for bill in bills
            if bill.since is not None and since <= bill.since < until
        ]
        async with database.write() as session:
            found = await store_bill(session, lines, since=since, until=until, end=windows[-1][1])
        for project_id, each in found:
            log.warning(
                "spend.differs",
                project_id=project_id,
                day=each.day.isoformat(),
                billed_micros=each.billed_micros,
                ledger_micros=each.ledger_micros,
            )
        read += len(lines)
        differing += len(found)
    return BillReport(read, differing)
