"""Our instances and the provider's machines as one list, and counts of our instances."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from sqlalchemy import and_, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from server.auth.caller import Caller
from server.billing import BILLED_UNSEEN, UNBILLED_STATUSES, UNBILLED_WORDS
from server.db.database import Database
from server.db.tables import Instance, InstanceRow
from server.enums import InstanceStatus
from server.errors import NovitaError
from server.instances.provider.drift import expected_status
from server.instances.provider.reader import ProviderReader
from server.instances.provider.snapshot import ProviderSnapshot
from server.instances.provider.states import MachineState, state_of
from server.instances.provider.unlinked import Origin, UnlinkedMachine, unlinked_machines
from server.instances.queries.instances import InstanceFilter, conditions_of
from server.instances.status import MOVING

S = InstanceStatus


class FleetSource(StrEnum):
    """Where an item comes from: our rows, the provider, or both."""

    LOCAL = "LOCAL"
    NOVITA = "NOVITA"
    MERGED = "MERGED"


# The status shown for a machine that is not an instance.
STATUS_OF: dict[MachineState, InstanceStatus | None] = {
    MachineState.COMING_UP: S.STARTING,
    MachineState.UP: S.RUNNING,
    MachineState.GOING_DOWN: S.STOPPING,
    MachineState.DOWN: S.EXITED,
    MachineState.GOING_AWAY: S.DELETING,
    MachineState.GONE: S.DELETED,
    MachineState.UNKNOWN: None,
}


@dataclass(frozen=True, slots=True)
class FleetItem:
    """One machine or instance. `status` follows the provider's state; the instance has our own. `is_serving`: not a
    machine that its instance has besides the one that serves it, or that has no instance."""

    source: FleetSource
    status: InstanceStatus | None
    instance: InstanceRow | None
    snapshot: ProviderSnapshot | None
    is_serving: bool = True


@dataclass(frozen=True, slots=True)
class Fleet:
    """All items and timings. `problem` says why the provider's part is missing, if it is."""

    items: Sequence[FleetItem]
    counts: Counter[FleetSource]
    problem: NovitaError | None
    listed_at: datetime | None
    local_took: timedelta
    novita_took: timedelta


async def fleet(database: Database, reader: ProviderReader, *, by: Caller, include_novita_only: bool) -> Fleet:
    """Both sides are read concurrently; if the provider fails, the list has our rows only.

    Every machine that was made for the caller's project is shown to it, whether it serves an instance or not: it may be
    billed. `include_novita_only` adds those that were not made by this installation.
    """
    started = time.monotonic()
    (rows, local_took), (machines, listed_at, problem, novita_took) = await asyncio.gather(
        _rows(database, by, started), _list_machines(reader, started)
    )
    by_id = {snapshot.id: snapshot for snapshot in machines}
    unlinked = await unlinked_machines(database, machines)
    # A create without a response whose machine is there already: shown with its instance before it is linked.
    found = {each.instance_id: each.snapshot for each in unlinked if each.origin is Origin.IN_DOUBT}
    items = [_ours(row, by_id.get(row.novita_id) if row.novita_id else found.get(row.id)) for row in rows]
    shown = {item.snapshot.id for item in items if item.snapshot is not None}
    instances = {row.id: row for row in rows}
    items += [
        _besides(each, instances.get(each.instance_id) if each.instance_id else None)
        for each in unlinked
        if each.snapshot.id not in shown and _is_shown(each, instances, by, include_novita_only=include_novita_only)
    ]
    return Fleet(
        items=items,
        counts=Counter(item.source for item in items),
        problem=problem,
        listed_at=listed_at,
        local_took=local_took,
        novita_took=novita_took,
    )


def _is_shown(
    machine: UnlinkedMachine, instances: Mapping[UUID, InstanceRow], by: Caller, *, include_novita_only: bool
) -> bool:
    """A token that sees only its own instances sees their machines, and no other."""
    if machine.instance_id in instances:
        return True
    is_own = machine.project_id == by.project_id and by.owner_id is None
    return is_own or (include_novita_only and machine.is_visible_to(by.project_id))


def _besides(machine: UnlinkedMachine, row: InstanceRow | None) -> FleetItem:
    source = FleetSource.NOVITA if row is None else FleetSource.MERGED
    return FleetItem(source, STATUS_OF[state_of(machine.snapshot)], row, machine.snapshot, is_serving=False)


def _ours(row: InstanceRow, snapshot: ProviderSnapshot | None) -> FleetItem:
    status = InstanceStatus(row.status)
    if snapshot is None:
        return FleetItem(FleetSource.LOCAL, status, row, None)
    # The status of a moving instance follows its operation, and a row that is newer than the list stays as it is.
    if status not in MOVING | {S.CREATING} and row.updated_at < snapshot.asked_at:
        status = expected_status(status, snapshot)
    return FleetItem(FleetSource.MERGED, status, row, snapshot)


async def _rows(database: Database, by: Caller, started: float) -> tuple[Sequence[InstanceRow], timedelta]:
    async with database.read() as session:
        shown = [getattr(Instance, name) for name in InstanceRow._fields]
        wanted = select(*shown).where(*conditions_of(InstanceFilter(owner_id=by.owner_id)))
        result = await session.execute(
            wanted.order_by(Instance.created_at.desc(), Instance.id.desc()), {"project_id": by.project_id}
        )
        rows = [InstanceRow._make(row) for row in result]
    return rows, timedelta(seconds=time.monotonic() - started)


async def _list_machines(
    reader: ProviderReader, started: float
) -> tuple[Sequence[ProviderSnapshot], datetime | None, NovitaError | None, timedelta]:
    problem: NovitaError | None = None
    machines: Sequence[ProviderSnapshot] = ()
    listed_at: datetime | None = None  # also of an empty list, which has a cache age too
    try:
        listed = await reader.machines()
        machines, listed_at = listed.value, listed.fetched_at
    except NovitaError as error:
        problem = error
    return machines, listed_at, problem, timedelta(seconds=time.monotonic() - started)


@dataclass(frozen=True, slots=True)
class FleetStats:
    """Comparable, so that subscribers only get changes. `unpriced` are billed, at a price that is not known."""

    by_status: dict[InstanceStatus, int]
    billed: int
    unpriced: int
    price_per_hour_e5: int


# The same as `is_billed`.
IS_BILLED = and_(
    Instance.status.not_in(sorted(UNBILLED_STATUSES)),
    or_(
        Instance.novita_status.not_in(sorted(UNBILLED_WORDS)),
        and_(Instance.novita_status.is_(None), Instance.status.in_(sorted(BILLED_UNSEEN))),
    ),
)


async def fleet_stats(session: AsyncSession, *, project_id: UUID, wanted: InstanceFilter | None = None) -> FleetStats:
    """Of the instances that match; the price is of those that the provider bills now."""
    price = Instance.price_per_hour_e5
    rows = await session.execute(
        select(
            Instance.status,
            func.count().label("count"),
            func.count().filter(IS_BILLED).label("billed"),
            func.count().filter(IS_BILLED, price.is_(None)).label("unpriced"),
            func.coalesce(func.sum(price).filter(IS_BILLED), 0).label("price"),
        )
        .where(*conditions_of(wanted or InstanceFilter()))
        .group_by(Instance.status),
        {"project_id": project_id},
    )
    counts = rows.all()
    return FleetStats(
        by_status={InstanceStatus(row.status): row[1] for row in counts},
        billed=sum(row.billed for row in counts),
        unpriced=sum(row.unpriced for row in counts),
        price_per_hour_e5=sum(int(row.price) for row in counts),
    )
