"""Compares all rows with all machines at the provider and corrects the differences."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy import exists, or_, select
from sqlalchemy.dialects.postgresql import insert

from server.clock import now
from server.db.database import Database
from server.db.outages import is_database_unavailable
from server.db.tables import Attempt, Instance, Operation, UnlinkedCount
from server.enums import LIVE_ATTEMPT, OPEN_OPERATION, InstanceStatus, OperationKind
from server.errors import ProviderNotFound, ValidationFailed
from server.instances import transitions
from server.instances.provider.absence import (
    GONE_AT_PROVIDER,
    MassDisappearance,
    is_mass,
    note_missing,
    report_mass,
)
from server.instances.provider.drift import (
    Correction,
    apply_snapshot,
    expected_status,
    fail_abandoned_create,
    is_update_visible,
    may_recover,
)
from server.instances.provider.ledger_repair import look_again, note_seconds, repair_entries
from server.instances.provider.machine_repair import repair_machines
from server.instances.provider.mounts import record_all_mounts
from server.instances.provider.settle import settle_later
from server.instances.provider.snapshot import ProviderSnapshot, snapshots
from server.instances.provider.states import MachineState, is_unknown_run, observed_columns, state_of
from server.instances.provider.unlinked import Origin, remove_orphan, unlinked_machines
from server.novita.client import NovitaClient
from server.novita.transport.concurrency import CallPriority

log = structlog.get_logger(__name__)

CONCURRENT_GETS = 8
CONCURRENT_WRITES = 8
SAMPLE = 20


@dataclass(frozen=True, slots=True)
class ReconcileRow:
    """The columns that decide whether a row has to be changed."""

    id: UUID
    novita_id: str
    status: str
    novita_status: str | None
    endpoints: list[object]
    spot_reclaim_at: datetime | None
    failure_code: str | None
    missing_since: datetime | None
    status_reason: str | None
    ports: list[Any]
    rootfs_size_gb: int

    @property
    def is_known_gone(self) -> bool:
        """As `absence.is_known_gone`."""
        is_replaced = self.status == InstanceStatus.STARTING and self.novita_status == "removed"
        return self.failure_code == GONE_AT_PROVIDER or is_replaced


@dataclass(frozen=True, slots=True)
class Report:
    """The result: compared rows and their changes, machines without a row by origin, attempts that had no job, and
    creates that were abandoned; `ledger`: entries that were missing, not ended or not cut; `machines`: rows of machines
    that were wrong; `again`: machines that were looked at once more."""

    compared: int
    changes: Counter[Correction]
    unlinked: Counter[Origin]
    in_doubt: int
    lost: int
    ledger: int = 0
    machines: int = 0
    again: int = 0


async def reconcile(
    database: Database, novita: NovitaClient, *, gone_grace: timedelta = timedelta(seconds=60)
) -> Report:
    """All projects' rows, orphans included. May be killed at any point: the next run finds the same differences.

    Raises MassDisappearance, and then changes nothing.
    """
    asked_at = now()
    remotes = await novita.all_instances()
    listed = {each.id: each for each in snapshots(remotes, asked_at=asked_at)}
    # Read after the list: the machine of a row that is newer than the list is polled by id, not taken for gone.
    rows = await _rows(database, project_id=None)
    unlisted = await _look_for_unlisted(novita, rows, listed)
    changes = await _apply_all(database, rows, listed | unlisted, gone_grace=gone_grace, cause=transitions.Cause())
    ledger = await repair_entries(database, listed | unlisted)
    await record_all_mounts(database, remotes)
    repaired = await repair_machines(database)
    await note_seconds(database, novita, listed)
    unlinked = await unlinked_machines(database, listed.values())
    for machine in unlinked:
        if machine.origin is Origin.ORPHAN and _is_staying(machine.snapshot):
            await remove_orphan(database, novita, machine)
    in_doubt = await _settle_forgotten(database)
    lost = await _fail_abandoned_creates(database)
    found = Counter(machine.origin for machine in unlinked if _is_staying(machine.snapshot))
    await _record_counts(database, found)
    again = await look_again(database, novita, listed | unlisted)
    return Report(len(rows), changes, found, in_doubt, lost, ledger, repaired, again)


async def sync_project(
    database: Database,
    novita: NovitaClient,
    *,
    project_id: UUID,
    cause: transitions.Cause,
    gone_grace: timedelta = timedelta(seconds=60),
) -> Report:
    """One project's rows, for a caller that does not want to wait for the next reconcile."""
    asked_at = now()
    remotes = await novita.all_instances(priority=CallPriority.USER)
    listed = {each.id: each for each in snapshots(remotes, asked_at=asked_at)}
    rows = await _rows(database, project_id=project_id)
    unlisted = await _look_for_unlisted(novita, rows, listed)
    changes = await _apply_all(database, rows, listed | unlisted, gone_grace=gone_grace, cause=cause)
    await record_all_mounts(database, remotes)
    return Report(len(rows), changes, Counter(), in_doubt=0, lost=0)


async def _record_counts(database: Database, found: Counter[Origin]) -> None:
    """For /metrics: any process may be scraped, and only one has run this."""
    rows = [{"origin": origin, "machines": found[origin], "counted_at": now()} for origin in Origin]
    new = insert(UnlinkedCount).values(rows)
    async with database.write() as session:
        await session.execute(
            new.on_conflict_do_update(
                index_elements=[UnlinkedCount.origin],
                set_={"machines": new.excluded.machines, "counted_at": new.excluded.counted_at},
            )
        )


def _is_staying(snapshot: ProviderSnapshot) -> bool:
    return state_of(snapshot) not in (MachineState.GOING_AWAY, MachineState.GONE)


async def _rows(database: Database, *, project_id: UUID | None) -> list[ReconcileRow]:
    query = select(
        Instance.id,
        Instance.novita_id,
        Instance.status,
        Instance.novita_status,
        Instance.endpoints,
        Instance.spot_reclaim_at,
        Instance.failure_code,
        Instance.missing_since,
        Instance.status_reason,
        Instance.ports,
        Instance.rootfs_size_gb,
    ).where(Instance.novita_id.is_not(None), Instance.status != InstanceStatus.DELETED)
    if project_id is not None:
        query = query.where(Instance.project_id == project_id)
    async with database.read() as session:
        return [ReconcileRow(*row) for row in await session.execute(query)]


async def _look_for_unlisted(
    novita: NovitaClient, rows: Sequence[ReconcileRow], listed: dict[str, ProviderSnapshot]
) -> dict[str, ProviderSnapshot | None]:
    """The machines that the list leaves out and that are found by their ids; None for one that the provider refuses to
    show. Raises MassDisappearance."""
    expected = [row for row in rows if not row.is_known_gone and row.status != InstanceStatus.DELETING]
    unlisted = [row for row in rows if row.novita_id not in listed and not row.is_known_gone]
    found: dict[str, ProviderSnapshot | None] = {}

    def refuse_mass() -> None:
        missing = sum(row.novita_id not in listed and row.novita_id not in found for row in expected)
        if is_mass(missing, len(expected)):
            report_mass(missing, len(expected))
            raise MassDisappearance(f"the provider shows {len(expected) - missing} of {len(expected)} machines")

    if len(unlisted) > SAMPLE:
        # Of thousands that the list leaves out, a few tell whether the provider has lost them all.
        found = await _poll_all(novita, unlisted[:SAMPLE])
        if not found:
            refuse_mass()
    found |= await _poll_all(novita, [row for row in unlisted if row.novita_id not in found])
    refuse_mass()
    return found


async def _poll_all(novita: NovitaClient, rows: Sequence[ReconcileRow]) -> dict[str, ProviderSnapshot | None]:
    slots = asyncio.Semaphore(CONCURRENT_GETS)
    found: dict[str, ProviderSnapshot | None] = {}

    async def one(row: ReconcileRow) -> None:
        async with slots:
            asked_at = now()
            try:
                remote = await novita.instance(row.novita_id, priority=CallPriority.POLL)
            except ProviderNotFound:
                return
            except ValidationFailed as error:
                log.warning("reconcile.row_refused", instance_id=row.id, error=error.message)
                found[row.novita_id] = None
                return
            found[row.novita_id] = ProviderSnapshot.of(remote, asked_at=asked_at)

    await asyncio.gather(*(one(row) for row in rows))
    return found


async def _apply_all(
    database: Database,
    rows: Sequence[ReconcileRow],
    shown: Mapping[str, ProviderSnapshot | None],
    *,
    gone_grace: timedelta,
    cause: transitions.Cause,
) -> Counter[Correction]:
    slots = asyncio.Semaphore(CONCURRENT_WRITES)
    looked_at = now()

    async def one(row: ReconcileRow) -> Correction:
        snapshot = shown.get(row.novita_id)
        if snapshot is None and row.novita_id in shown:
            return Correction.SKIPPED  # the provider refused to show it
        if row.is_known_gone if snapshot is None else _is_up_to_date(row, snapshot):
            return Correction.NONE
        async with slots, database.write() as session:
            if await transitions.try_lock(session, row.id) is None:
                return Correction.SKIPPED  # it is being changed now
            if snapshot is None and await note_missing(session, row.id, row.novita_id) < gone_grace:
                return Correction.NONE
            asked_at = looked_at if snapshot is None else snapshot.asked_at
            change = await apply_snapshot(
                session, row.id, snapshot, machine=row.novita_id, asked_at=asked_at, cause=cause
            )
        if change not in (Correction.NONE, Correction.NOTED):
            log.warning("reconcile.changed", instance_id=row.id, novita_id=row.novita_id, change=change.value)
        return change

    async def isolated(row: ReconcileRow) -> Correction:
        """One row that our code can't handle must not keep the others from being compared."""
        try:
            return await one(row)
        except Exception as error:  # logged, and the next run tries again
            is_ours = not is_database_unavailable(error)
            log.warning("reconcile.row_failed", instance_id=row.id, exc_info=error if is_ours else None)
            return Correction.SKIPPED

    return Counter(await asyncio.gather(*(isolated(row) for row in rows)))


def _is_up_to_date(row: ReconcileRow, snapshot: ProviderSnapshot) -> bool:
    """Whether the row certainly needs no change, so that an unchanged fleet costs one query and no transaction."""
    if (
        row.is_known_gone
        or is_unknown_run(snapshot)
        or (state_of(snapshot) is MachineState.UP and may_recover(row.failure_code))
    ):
        return False
    if is_update_visible(snapshot, reason=row.status_reason, ports=row.ports, rootfs_size_gb=row.rootfs_size_gb):
        return False
    observed = observed_columns(snapshot)
    if state_of(snapshot) is MachineState.UP and not observed["endpoints"]:
        del observed["endpoints"]
    if any(getattr(row, name) != value for name, value in observed.items()):
        return False
    if state_of(snapshot) in (MachineState.DOWN, MachineState.GONE):
        return row.status in (InstanceStatus.EXITED, InstanceStatus.FAILED, InstanceStatus.DELETING)
    # Its words may be known already and not fit: written while an operation was open.
    return expected_status(InstanceStatus(row.status), snapshot) == row.status


async def _settle_forgotten(database: Database) -> int:
    """Enqueue the settling of attempts in doubt that no open create or delete settles; a job may have been lost."""
    has_settling_operation = exists().where(
        Operation.instance_id == Attempt.instance_id,
        Operation.status.in_(OPEN_OPERATION),
        or_(Operation.kind.in_((OperationKind.CREATE, OperationKind.DELETE)), Operation.id == Attempt.operation_id),
    )
    async with database.write() as session:
        rows = await session.execute(
            select(Attempt, Instance)
            .join(Instance, Instance.id == Attempt.instance_id)
            .where(Attempt.status.in_(LIVE_ATTEMPT), ~has_settling_operation)
        )
        forgotten = rows.all()
        for attempt, instance in forgotten:
            await settle_later(session, attempt, instance)
    return len(forgotten)


async def _fail_abandoned_creates(database: Database) -> int:
    async with database.read() as session:
        result = await session.execute(
            select(Instance.id).where(Instance.status == InstanceStatus.CREATING, Instance.novita_id.is_(None))
        )
        candidates = list(result.scalars())
    lost = 0
    for instance_id in candidates:
        async with database.write() as session:
            if await fail_abandoned_create(session, instance_id):
                lost += 1
                log.error("reconcile.lost", instance_id=instance_id)
    return lost
