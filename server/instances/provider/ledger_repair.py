"""Corrects the ledger where it differs from the instances: a process of an older release writes no entries."""

from collections.abc import Mapping

import structlog

from server.db.database import Database
from server.instances import transitions
from server.instances.provider.snapshot import ProviderSnapshot
from server.instances.provider.states import times_of
from server.observe import metrics
from server.spend.ledger import NO_TIMES, find_differing

log = structlog.get_logger(__name__)

CUT_AT_ONCE = 200  # entries per transaction


async def repair_entries(database: Database, shown: Mapping[str, ProviderSnapshot | None]) -> int:
    """Begin, end and cut entries as the instances demand, with the times that the provider shows; returns how many."""
    async with database.read() as session:
        differing = await find_differing(session)
    repaired = 0
    for instance_id, machine in differing:
        snapshot = shown.get(machine or "")
        async with database.write() as session:
            instance = await transitions.try_lock(session, instance_id)
            if instance is None:
                continue  # it is being changed, which writes its entry
            times = NO_TIMES if snapshot is None else times_of(snapshot)
            repaired += await transitions.repair_entry(session, instance, times=times)
    if repaired:
        log.warning("ledger.repaired", count=repaired)
        metrics.LEDGER_REPAIRS.add(by=repaired)
    return repaired


async def cut_overnight(database: Database) -> int:
    """Cut the entries that were open at midnight UTC; returns how many."""
    cut = 0
    while True:
        async with database.write() as session:
            done = await transitions.cut_entries_at_midnight(session, limit=CUT_AT_ONCE)
        cut += done
        if done < CUT_AT_ONCE:
            return cut
