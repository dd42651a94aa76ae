"""Our instances beside the provider's, as one list."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from sqlalchemy import select

from server.clock import now
from server.db.engine import Database
from server.db.tables import Instance
from server.errors import NovitaError
from server.instances.glimpse import Glimpse
from server.instances.observed import Seen, seen
from server.instances.outside import expected
from server.instances.reconcile import unmanaged_of
from server.instances.watch import MOVING, Watch
from server.words import InstanceStatus

S = InstanceStatus


class Source(StrEnum):
    """Who knows of it."""

    LOCAL = "LOCAL"
    NOVITA = "NOVITA"
    MERGED = "MERGED"


# What a machine that is nobody's instance would be called if it were one.
STATUS_OF: dict[Seen, InstanceStatus | None] = {
    Seen.COMING_UP: S.STARTING,
    Seen.UP: S.RUNNING,
    Seen.GOING_DOWN: S.STOPPING,
    Seen.DOWN: S.EXITED,
    Seen.GOING_AWAY: S.DELETING,
    Seen.GONE: S.DELETED,
    Seen.UNKNOWN: None,
}


@dataclass(frozen=True, slots=True)
class FleetItem:
    """One machine or instance. `status` is what the provider's word makes of it; the instance has our own."""

    source: Source
    status: InstanceStatus | None
    instance: Instance | None
    glimpse: Glimpse | None


@dataclass(frozen=True, slots=True)
class Fleet:
    """Everything, and how it was come by. `problem` says why the provider's part is missing, if it is."""

    items: Sequence[FleetItem]
    counts: Counter[Source]
    problem: NovitaError | None
    listed_at: datetime | None
    local_took: timedelta
    novita_took: timedelta


async def fleet(database: Database, watch: Watch, *, project_id: UUID, include_novita_only: bool) -> Fleet:
    """Both sides are asked at the same time; without the provider there are our rows alone."""
    started = time.monotonic()
    (rows, local_took), (shown, problem, novita_took) = await asyncio.gather(
        _rows(database, project_id, started), _machines(watch, started)
    )
    by_id = {glimpse.id: glimpse for glimpse in shown}
    items = [_ours(row, by_id.get(row.novita_id or "")) for row in rows]
    if include_novita_only:
        items += [
            FleetItem(Source.NOVITA, STATUS_OF[seen(glimpse)], None, glimpse)
            for glimpse in await unmanaged_of(database, shown)
        ]
    return Fleet(
        items=items,
        counts=Counter(item.source for item in items),
        problem=problem,
        listed_at=shown[0].asked_at if shown else (now() if problem is None else None),
        local_took=local_took,
        novita_took=novita_took,
    )


def _ours(row: Instance, glimpse: Glimpse | None) -> FleetItem:
    status = InstanceStatus(row.status)
    if glimpse is None:
        return FleetItem(Source.LOCAL, status, row, None)
    # What is moving is moved by its own operation; and a row that is newer than the list is not argued with.
    if status not in MOVING | {S.CREATING} and row.updated_at < glimpse.asked_at:
        status = expected(status, glimpse)
    return FleetItem(Source.MERGED, status, row, glimpse)


async def _rows(database: Database, project_id: UUID, started: float) -> tuple[Sequence[Instance], timedelta]:
    async with database.read() as session:
        found = await session.execute(
            select(Instance)
            .where(Instance.project_id == project_id, Instance.status != S.DELETED)
            .order_by(Instance.created_at.desc(), Instance.id.desc())
        )
        rows = found.scalars().all()
    return rows, timedelta(seconds=time.monotonic() - started)


async def _machines(watch: Watch, started: float) -> tuple[Sequence[Glimpse], NovitaError | None, timedelta]:
    problem: NovitaError | None = None
    shown: Sequence[Glimpse] = ()
    try:
        shown = await watch.machines()
    except NovitaError as error:
        problem = error
    return shown, problem, timedelta(seconds=time.monotonic() - started)
