"""Comparing all our rows with all that the provider has, and putting right what differs."""

import asyncio
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import structlog
from sqlalchemy import select

from server.clock import now
from server.db.engine import Database
from server.db.tables import Attempt, Instance
from server.errors import ProviderNotFound
from server.events.event import EventType
from server.events.log import append
from server.instances import moves
from server.instances.glimpse import Glimpse, glimpses
from server.instances.observed import Seen, facts, seen
from server.instances.outside import Change, compare, give_up_lost
from server.novita.client import NovitaClient
from server.novita.priority import Priority
from server.words import LIVE_ATTEMPT, InstanceStatus

log = structlog.get_logger(__name__)

MARKED = re.compile(r"(?:^|-)(pl[0-9a-f]{16})$")
GETS_AT_ONCE = 8
MARKERS_AT_ONCE = 5_000


@dataclass(frozen=True, slots=True)
class Row:
    """As much of an instance as tells whether there is anything to do."""

    id: UUID
    novita_id: str
    status: str
    novita_status: str | None
    endpoints: list[object]
    spot_reclaim_at: datetime | None


@dataclass(frozen=True, slots=True)
class Report:
    """What came of it. `unmanaged` are machines that nobody asked us for; they are counted and left alone."""

    compared: int
    changes: Counter[Change]
    orphans: int
    unmanaged: int
    lost: int


@dataclass(frozen=True, slots=True)
class Orphan:
    """A machine that one of our attempts made and that belongs to no instance."""

    instance_id: UUID
    glimpse: Glimpse


async def reconcile(database: Database, novita: NovitaClient) -> Report:
    """Everybody's rows, orphans included. Safe to be killed anywhere: the next one finds the same and goes on."""
    asked_at = now()
    shown = {each.id: each for each in glimpses(await novita.all_instances(), asked_at=asked_at)}
    # After the list: a row that is newer than it has its machine looked at by itself, not declared gone.
    rows = await _rows(database, project_id=None)
    changes = await _bring_up_to_date(database, novita, rows, shown, asked_at=asked_at, cause=moves.Cause())
    orphans, unmanaged = await _sort_out(database, {row.novita_id for row in rows}, shown.values())
    for orphan in orphans:
        await _remove(database, novita, orphan)
    lost = await _give_up_lost(database)
    return Report(len(rows), changes, len(orphans), unmanaged, lost)


async def sync_project(database: Database, novita: NovitaClient, *, project_id: UUID, cause: moves.Cause) -> Report:
    """One project's rows, for a caller who does not want to wait for the next time."""
    asked_at = now()
    remotes = await novita.all_instances(priority=Priority.USER)
    shown = {each.id: each for each in glimpses(remotes, asked_at=asked_at)}
    rows = await _rows(database, project_id=project_id)
    changes = await _bring_up_to_date(database, novita, rows, shown, asked_at=asked_at, cause=cause)
    return Report(len(rows), changes, orphans=0, unmanaged=0, lost=0)


async def unmanaged_of(database: Database, shown: Iterable[Glimpse]) -> list[Glimpse]:
    """Those that no row of any project is tied to, and that no attempt of ours made."""
    shown = list(shown)
    async with database.read() as session:
        tied = await session.execute(
            select(Instance.novita_id).where(Instance.novita_id.in_([each.id for each in shown]))
        )
        known = set(tied.scalars())
    marked = await _attempts_of(database, shown)
    return [each for each in shown if each.id not in known and _marker(each) not in marked]


async def _rows(database: Database, *, project_id: UUID | None) -> list[Row]:
    query = select(
        Instance.id,
        Instance.novita_id,
        Instance.status,
        Instance.novita_status,
        Instance.endpoints,
        Instance.spot_reclaim_at,
    ).where(Instance.novita_id.is_not(None), Instance.status != InstanceStatus.DELETED)
    if project_id is not None:
        query = query.where(Instance.project_id == project_id)
    async with database.read() as session:
        return [Row(*row) for row in await session.execute(query)]


async def _bring_up_to_date(
    database: Database,
    novita: NovitaClient,
    rows: Sequence[Row],
    shown: dict[str, Glimpse],
    *,
    asked_at: datetime,
    cause: moves.Cause,
) -> Counter[Change]:
    places = asyncio.Semaphore(GETS_AT_ONCE)

    async def one(row: Row) -> Change:
        glimpse = shown.get(row.novita_id)
        moment = asked_at
        async with places:
            if glimpse is None:
                moment = now()
                glimpse = await _alone(novita, row.novita_id)
            if glimpse is not None and _agrees(row, glimpse):
                return Change.NONE
            async with database.write() as session:
                change = await compare(session, row.id, glimpse, asked_at=moment, cause=cause)
        if change not in (Change.NONE, Change.NOTED):
            log.warning("reconcile.changed", instance_id=row.id, novita_id=row.novita_id, change=change.value)
        return change

    return Counter(await asyncio.gather(*(one(row) for row in rows)))


async def _alone(novita: NovitaClient, novita_id: str) -> Glimpse | None:
    """A list that moves while it is read may leave some out: nobody is called gone before being asked for by id."""
    asked_at = now()
    try:
        return Glimpse.of(await novita.instance(novita_id, priority=Priority.POLL), asked_at=asked_at)
    except ProviderNotFound:
        return None


def _agrees(row: Row, glimpse: Glimpse) -> bool:
    """Whether there is certainly nothing to do, so that a fleet at rest costs one query and no transaction."""
    told = facts(glimpse)
    if seen(glimpse) is Seen.UP and not told["endpoints"]:
        del told["endpoints"]
    if any(getattr(row, name) != value for name, value in told.items()):
        return False
    return not (seen(glimpse) in (Seen.UP, Seen.COMING_UP) and row.status == InstanceStatus.EXITED) and not (
        seen(glimpse) in (Seen.DOWN, Seen.GONE)
        and row.status not in (InstanceStatus.EXITED, InstanceStatus.FAILED, InstanceStatus.DELETING)
    )


async def _sort_out(database: Database, tied: set[str], shown: Iterable[Glimpse]) -> tuple[list[Orphan], int]:
    """Of the machines without a row: which ones our own attempts made, and how many are nobody's business."""
    others = [each for each in shown if each.id not in tied]
    attempts = await _attempts_of(database, others)
    orphans: list[Orphan] = []
    unmanaged = 0
    for glimpse in others:
        attempt = attempts.get(_marker(glimpse))
        if attempt is None:
            # Also one that carries a marker of another database: it may be somebody else's Pilotlight.
            unmanaged += 1
        elif attempt.status in LIVE_ATTEMPT or seen(glimpse) in (Seen.GOING_AWAY, Seen.GONE):
            continue  # the attempt's own job adopts it; or it is leaving already
        elif attempt.is_tied_to != glimpse.id:
            orphans.append(Orphan(attempt.instance_id, glimpse))
    return orphans, unmanaged


@dataclass(frozen=True, slots=True)
class _Made:
    instance_id: UUID
    status: str
    is_tied_to: str | None  # the machine of the instance, unless that is deleted


async def _attempts_of(database: Database, shown: Sequence[Glimpse]) -> dict[str | None, _Made]:
    markers = [marker for each in shown if (marker := _marker(each)) is not None]
    found: dict[str | None, _Made] = {}
    for start in range(0, len(markers), MARKERS_AT_ONCE):
        async with database.read() as session:
            rows = await session.execute(
                select(Attempt.marker, Attempt.instance_id, Attempt.status, Instance.novita_id, Instance.status)
                .join(Instance, Instance.id == Attempt.instance_id)
                .where(Attempt.marker.in_(markers[start : start + MARKERS_AT_ONCE]))
            )
            for marker, instance_id, status, novita_id, its_status in rows:
                tied = novita_id if its_status != InstanceStatus.DELETED else None
                found[marker] = _Made(instance_id, status, tied)
    return found


def _marker(glimpse: Glimpse) -> str | None:
    marked = MARKED.search(glimpse.name)
    return marked.group(1) if marked else None


async def _remove(database: Database, novita: NovitaClient, orphan: Orphan) -> None:
    """It is billed and nobody can reach it any more. Said first: killed in between, the next time finds it again."""
    glimpse = orphan.glimpse
    log.warning("reconcile.orphan", instance_id=orphan.instance_id, novita_id=glimpse.id, status=glimpse.status)
    async with database.write() as session:
        instance = await moves.locked(session, orphan.instance_id)
        await append(
            session,
            type=EventType.INSTANCE_ORPHAN_FOUND,
            project_id=instance.project_id,
            instance_id=instance.id,
            data={"novita_id": glimpse.id, "novita_status": glimpse.status},
        )
    try:
        await novita.delete_instance(glimpse.id, priority=Priority.POLL)
    except ProviderNotFound:
        return


async def _give_up_lost(database: Database) -> int:
    async with database.read() as session:
        found = await session.execute(
            select(Instance.id).where(Instance.status == InstanceStatus.CREATING, Instance.novita_id.is_(None))
        )
        candidates = list(found.scalars())
    lost = 0
    for instance_id in candidates:
        async with database.write() as session:
            if await give_up_lost(session, instance_id):
                lost += 1
                log.error("reconcile.lost", instance_id=instance_id)
    return lost
