"""Machines that no row has: which create made each, whose it is, and the removal of those that serve nothing."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

import structlog
from sqlalchemy import and_, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.database import Database
from server.db.tables import Attempt, Instance, Machine, Project
from server.enums import LIVE_ATTEMPT, InstanceStatus
from server.errors import ProviderNotFound
from server.events.event import EventType
from server.events.outbox import append
from server.instances import transitions
from server.instances.events import with_owner
from server.instances.machines import is_leaving
from server.instances.markers import marker_of, project_part, project_part_of
from server.instances.provider.snapshot import ProviderSnapshot
from server.novita.client import NovitaClient
from server.novita.transport.concurrency import CallPriority

log = structlog.get_logger(__name__)

S = InstanceStatus
PER_QUERY = 5_000


class Origin(StrEnum):
    """Where a machine without a row comes from."""

    IN_DOUBT = "IN_DOUBT"  # made by an attempt without a response: it belongs to that attempt's instance
    SECOND = "SECOND"  # of an instance that another machine serves: it is being removed, or will take over
    ORPHAN = "ORPHAN"  # made by an attempt that has ended; its instance is deleted or has another machine
    LOST = "LOST"  # has the marker of a project of ours, but no attempt here: the database was restored from a backup
    UNMANAGED = "UNMANAGED"  # not made by this installation


@dataclass(frozen=True, slots=True)
class UnlinkedMachine:
    """`project_id` is None for an unmanaged machine, `instance_id` for a lost one too."""

    snapshot: ProviderSnapshot
    origin: Origin
    project_id: UUID | None = None
    instance_id: UUID | None = None

    def is_visible_to(self, project_id: UUID) -> bool:
        """A machine that was made for a project is private to it; the others are visible to every project."""
        return self.project_id is None or self.project_id == project_id


async def unlinked_machines(database: Database, listed: Iterable[ProviderSnapshot]) -> list[UnlinkedMachine]:
    """The machines that no row has, of all projects."""
    listed = list(listed)
    async with database.read() as session:
        linked = await _linked(session, [each.id for each in listed])
        others = [each for each in listed if each.id not in linked]
        seconds = await _seconds(session, {each.id: each for each in others})
        # After the rows: a machine that was linked in between is recognized by its attempt's instance.
        made = await _makers(session, [marker for each in others if (marker := marker_of(each.name))])
        projects = {project_part(each): each for each in (await session.execute(select(Project.id))).scalars()}
    return [
        machine
        for each in others
        if (machine := seconds.get(each.id) or _classify(each, made.get(marker_of(each.name)), projects)) is not None
    ]


async def remove_orphan(database: Database, novita: NovitaClient, orphan: UnlinkedMachine) -> None:
    """Delete a machine that serves nothing. Event first: if killed in between, the next run repeats both."""
    if orphan.instance_id is None:
        raise ValueError("only a machine of one of our attempts is removed")
    snapshot = orphan.snapshot
    log.warning("reconcile.orphan", instance_id=orphan.instance_id, novita_id=snapshot.id, status=snapshot.status)
    async with database.write() as session:
        instance = await transitions.lock(session, orphan.instance_id)
        await append(
            session,
            type=EventType.INSTANCE_ORPHAN_FOUND,
            project_id=instance.project_id,
            instance_id=instance.id,
            data=with_owner(instance, {"novita_id": snapshot.id, "novita_status": snapshot.status}),
        )
    try:
        await novita.delete_instance(snapshot.id, priority=CallPriority.POLL)
    except ProviderNotFound:
        return


@dataclass(frozen=True, slots=True)
class _Maker:
    """The attempt that made a machine; `machine` is the one that its instance has, unless that is deleted."""

    instance_id: UUID
    project_id: UUID
    status: str
    machine: str | None


async def _linked(session: AsyncSession, novita_ids: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for start in range(0, len(novita_ids), PER_QUERY):
        rows = await session.execute(
            select(Instance.novita_id).where(
                Instance.novita_id.in_(novita_ids[start : start + PER_QUERY]),
                Instance.status != InstanceStatus.DELETED,
            )
        )
        found.update(novita_id for novita_id in rows.scalars() if novita_id is not None)
    return found


async def _seconds(session: AsyncSession, others: Mapping[str, ProviderSnapshot]) -> dict[str, UnlinkedMachine]:
    """The machines that an instance has besides the one that serves it."""
    found: dict[str, UnlinkedMachine] = {}
    novita_ids = list(others)
    for start in range(0, len(novita_ids), PER_QUERY):
        rows = await session.execute(
            select(Machine.novita_id, Instance.project_id, Instance.id)
            .join(Instance, Instance.id == Machine.instance_id)
            .where(
                Machine.novita_id.in_(novita_ids[start : start + PER_QUERY]),
                Machine.ended_at.is_(None),
                or_(
                    is_leaving(),
                    and_(Instance.novita_id.is_distinct_from(Machine.novita_id), Instance.status != S.DELETED),
                ),
            )
        )
        for novita_id, project_id, instance_id in rows:
            found[novita_id] = UnlinkedMachine(others[novita_id], Origin.SECOND, project_id, instance_id)
    return found


async def _makers(session: AsyncSession, markers: Sequence[str]) -> dict[str | None, _Maker]:
    found: dict[str | None, _Maker] = {}
    for start in range(0, len(markers), PER_QUERY):
        rows = await session.execute(
            select(
                Attempt.marker,
                Attempt.instance_id,
                Instance.project_id,
                Attempt.status,
                Instance.novita_id,
                Instance.status,
            )
            .join(Instance, Instance.id == Attempt.instance_id)
            .where(Attempt.marker.in_(markers[start : start + PER_QUERY]))
        )
        for marker, instance_id, project_id, status, novita_id, instance_status in rows:
            machine = novita_id if instance_status != InstanceStatus.DELETED else None
            found[marker] = _Maker(instance_id, project_id, status, machine)
    return found


def _classify(snapshot: ProviderSnapshot, maker: _Maker | None, projects: dict[str, UUID]) -> UnlinkedMachine | None:
    if maker is None:
        owner = projects.get(project_part_of(marker_of(snapshot.name)) or "")
        return UnlinkedMachine(snapshot, Origin.UNMANAGED if owner is None else Origin.LOST, owner)
    if maker.machine == snapshot.id:
        return None
    # Also if its instance has another machine: that one may be about to be replaced.
    origin = Origin.IN_DOUBT if maker.status in LIVE_ATTEMPT else Origin.ORPHAN
    return UnlinkedMachine(snapshot, origin, maker.project_id, maker.instance_id)
