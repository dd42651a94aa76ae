"""Corrects the ledger where it differs from the instances and from the machines that the provider shows.

A process of an older release writes no entries, and the job that follows a machine may be held up.
"""

import asyncio
from collections.abc import Mapping
from uuid import UUID

import structlog

from server.clock import now
from server.db.database import Database
from server.db.outages import is_database_unavailable
from server.errors import NovitaError
from server.instances import machines, transitions
from server.instances.provider.drift import apply_snapshot
from server.instances.provider.snapshot import ProviderSnapshot
from server.instances.provider.states import MachineState, state_of, times_of
from server.novita.client import NovitaClient
from server.novita.transport.concurrency import CallPriority
from server.observe import metrics
from server.spend.differing import find_contradicted, find_differing, find_former_runs
from server.spend.machine_times import NO_TIMES

log = structlog.get_logger(__name__)

CUT_AT_ONCE = 200  # entries per transaction
LOOKS_MAX = 20  # machines that are looked at once more
PAUSES = (0.0, 0.2, 0.5, 1.0)  # seconds; a row is locked for a moment


async def repair_entries(database: Database, shown: Mapping[str, ProviderSnapshot | None]) -> int:
    """Begin, end and cut entries as the instances demand, with the times that the provider shows; returns how many."""
    times_of_up = {
        each.id: times_of(each) for each in shown.values() if each is not None and state_of(each) is MachineState.UP
    }
    async with database.read() as session:
        differing = [*await find_differing(session), *await find_former_runs(session, times_of_up)]
    repaired = 0
    for instance_id, machine in differing:
        snapshot = shown.get(machine or "")
        async with database.write() as session:
            instance = await transitions.try_lock(session, instance_id)
            if instance is None:
                continue  # it is being changed, which writes its entry
            is_known = snapshot is not None and snapshot.id == instance.novita_id  # it may have another one by now
            times = times_of(snapshot) if snapshot is not None and is_known else NO_TIMES
            repaired += await transitions.repair_entry(session, instance, times=times)
    if repaired:
        log.warning("ledger.repaired", count=repaired)
        metrics.LEDGER_REPAIRS.add(by=repaired)
    return repaired


async def look_again(database: Database, novita: NovitaClient, shown: Mapping[str, ProviderSnapshot | None]) -> int:
    """Look once more at machines that the ledger contradicts although `shown` was written: a row that was locked, could
    not be written or had changed since was left as it was. Returns how many were looked at."""
    words = {each.id: each.status for each in shown.values() if each is not None}
    looked_at = 0
    for pause in PAUSES:
        async with database.read() as session:
            contradicted = await find_contradicted(session, words, limit=LOOKS_MAX)
        if not contradicted:
            break
        await asyncio.sleep(pause)
        looks = await asyncio.gather(*(_look(database, novita, *each) for each in contradicted), return_exceptions=True)
        looked_at = max(looked_at, len(looks))
        words = {}
        for each in looks:
            if isinstance(each, BaseException):
                raise each
            if each is not None:
                words[each.id] = each.status
    return looked_at


async def _look(database: Database, novita: NovitaClient, instance_id: UUID, machine: str) -> ProviderSnapshot | None:
    """What it shows, if that could not be written because the row was locked, or changed since the look."""
    asked_at = now()
    try:
        remote = await novita.instance(machine, priority=CallPriority.POLL)
    except NovitaError:
        return None
    snapshot = ProviderSnapshot.of(remote, asked_at=asked_at)
    try:
        async with database.write() as session:
            instance = await transitions.try_lock(session, instance_id)
            if instance is None or instance.updated_at >= asked_at:
                return snapshot
            if instance.novita_id == machine:
                cause = transitions.Cause()
                await apply_snapshot(session, instance_id, snapshot, machine=machine, asked_at=asked_at, cause=cause)
                await transitions.repair_entry(session, instance, times=times_of(snapshot))
    except Exception as error:
        if is_database_unavailable(error):
            raise
        log.warning("reconcile.row_failed", instance_id=instance_id, exc_info=error)
    return None


async def note_seconds(database: Database, novita: NovitaClient, shown: Mapping[str, ProviderSnapshot | None]) -> None:
    """Write what the provider shows of the machines that instances have besides the one that serves: they are paid for,
    whatever becomes of the jobs that follow or remove them."""
    async with database.read() as session:
        seconds = await machines.seconds(session)
    for pause in PAUSES:
        seconds = [each for each in seconds if not await _note_second(database, novita, shown, *each)]
        if not seconds:
            break
        await asyncio.sleep(pause)


async def _note_second(
    database: Database,
    novita: NovitaClient,
    shown: Mapping[str, ProviderSnapshot | None],
    instance_id: UUID,
    novita_id: str,
) -> bool:
    """False while its instance is locked."""
    snapshot = shown.get(novita_id)
    if snapshot is None:  # a list may leave out a new machine
        asked_at = now()
        try:
            remote = await novita.instance(novita_id, priority=CallPriority.POLL)
        except NovitaError:
            return True  # whether it is gone is for its own job to find out
        snapshot = ProviderSnapshot.of(remote, asked_at=asked_at)
    async with database.write() as session:
        if await transitions.try_lock(session, instance_id) is None:
            return False
        machine = await machines.second(session, instance_id, novita_id)
        sent_at = None if machine is None else machine.removal_sent_at
        if machine is not None and (sent_at is None or sent_at < snapshot.asked_at):
            await machines.note_seen(session, machine, snapshot.status, times_of(snapshot))
    return True


async def cut_overnight(database: Database) -> int:
    """Cut the entries that were open at midnight UTC; returns how many."""
    cut = 0
    while True:
        async with database.write() as session:
            done = await transitions.cut_entries_at_midnight(session, limit=CUT_AT_ONCE)
        cut += done
        if done < CUT_AT_ONCE:
            return cut
