"""The only writer of `instance.status` and `instance.version`; every change writes its event beside it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import bindparam, select
from sqlalchemy import update as sql_update
from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import now
from server.db.database import invalidate_after_commit
from server.db.tables import Instance, ProbeResult
from server.enums import InstanceStatus
from server.errors import IllegalTransition, NotFound
from server.events.event import EventType
from server.instances import machines
from server.instances.events import EventRows, event_rows, record, snapshot_of
from server.instances.limits import arming
from server.instances.recovery import incident, notice
from server.instances.status import BEGINS_A_RUN, TRANSITIONS, sources
from server.probes.results import delete_results
from server.probes.verdict import health_of, results_to_json
from server.queue.enqueue import enqueue
from server.queue.kinds import WatchReclaim
from server.spend import ledger
from server.spend.ledger import CostBasis
from server.spend.machine_times import NO_TIMES, MachineTimes
from server.volumes import attach

EVENT_OF: dict[InstanceStatus, EventType] = {
    InstanceStatus.CREATING: EventType.INSTANCE_CREATED,
    InstanceStatus.STARTING: EventType.INSTANCE_STARTING,
    InstanceStatus.RUNNING: EventType.INSTANCE_RUNNING,
    InstanceStatus.HEALTH_CHECKING: EventType.INSTANCE_HEALTH_CHECKING,
    InstanceStatus.READY: EventType.INSTANCE_READY,
    InstanceStatus.STOPPING: EventType.INSTANCE_STOPPING,
    InstanceStatus.EXITED: EventType.INSTANCE_EXITED,
    InstanceStatus.RESTARTING: EventType.INSTANCE_RESTARTING,
    InstanceStatus.MIGRATING: EventType.INSTANCE_MIGRATING,
    InstanceStatus.DELETING: EventType.INSTANCE_DELETING,
    InstanceStatus.DELETED: EventType.INSTANCE_DELETED,
    InstanceStatus.FAILED: EventType.INSTANCE_FAILED,
}

LOCKED = "instances that this transaction has locked"

# Columns that say when the provider was looked at, not what it showed.
SILENT = ("observed_at", "missing_since")

NOT_RECLAIMABLE = frozenset({InstanceStatus.EXITED, InstanceStatus.DELETED})  # there is no machine left to reclaim


@dataclass(frozen=True, slots=True)
class Cause:
    """What made a change: the operation it belongs to and the token that requested it."""

    operation_id: UUID | None = None
    token_id: UUID | None = None


def new_row(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The column values of a new instance. Used by `insert` for one and by the batched statement of creates."""
    moment = now()
    empty: dict[str, Any] = {
        "regions": [],
        "env": {},
        "secret_env": None,
        "ports": [],
        "tools": [],
        "volumes": [],
        "labels": {},
        "health_check": {},
        "endpoints": [],
    }
    first = {"status": InstanceStatus.CREATING, "version": 1}
    times = dict.fromkeys(("created_at", "updated_at", "status_since"), moment)
    return {**empty, **fields, **first, **times, **arming.armed_new(fields, at=moment)}


async def insert(
    session: AsyncSession, fields: Mapping[str, Any], *, cause: Cause, times: MachineTimes = NO_TIMES
) -> Instance:
    """Write a new instance and its event; an adopted one has a machine, which may be paid for already."""
    instance = Instance(**new_row(fields))
    session.add(instance)
    await session.flush()
    await ledger.follow(session, instance, before=CostBasis(False, CostBasis.of(instance).rate), times=times)
    await machines.follow(session, instance, before=machines.NO_LINK)
    await record(session, status_event(instance, previous=None, cause=cause))
    return instance


async def transition(
    session: AsyncSession,
    instance_id: UUID,
    to: InstanceStatus,
    *,
    cause: Cause,
    times: MachineTimes = NO_TIMES,
    **fields: Any,
) -> Instance:
    """Change the status, and write `fields` with it. Raises IllegalTransition and then changes nothing.

    The row is locked first: concurrent transitions run one by one, and each starts from the status that the one before
    it wrote. The event is written under that lock, which keeps an instance's events in the order of its versions.
    """
    instance = await lock(session, instance_id)
    previous = InstanceStatus(instance.status)
    values = status_values(instance, to, fields)
    if to in BEGINS_A_RUN:
        await delete_results(session, instance_id)
    if to is InstanceStatus.DELETED and instance.volumes:
        await attach.release(session, instance_id)
    reclaim_at = instance.spot_reclaim_at
    moved = await _write(session, instance, values, only_from=sources(to), times=times)
    await record(session, status_event(moved, previous=previous, cause=cause))
    await _watch_reclaim(session, moved, previous=reclaim_at, cause=cause)
    await incident.keep_job(session, moved)
    return moved


def status_values(instance: Instance, to: InstanceStatus, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that another status changes, with `fields`. Raises IllegalTransition."""
    previous = InstanceStatus(instance.status)
    if to not in TRANSITIONS[previous]:
        raise IllegalTransition(
            "INVALID_TRANSITION",
            f"An instance that is {previous} can't become {to}.",
            current=previous,
            allowed=sorted(TRANSITIONS[previous]),
        )
    moment = now()
    values: dict[str, Any] = {
        "status_reason": None,
        "failure_code": None,
        "failure_message": None,
        "degraded_since": None,
        **fields,
    }
    if to in BEGINS_A_RUN:
        values |= {"running_at": None, "ready_at": None, "health": None, "exit_code": None, "exit_message": None}
    if to is InstanceStatus.RUNNING and instance.running_at is None:
        values.setdefault("running_at", moment)
    if to is InstanceStatus.READY:
        values.setdefault("ready_at", instance.ready_at or moment)
    if to is InstanceStatus.DELETED:
        values |= {"deleted_at": moment, "env": {}, "secret_env": None}
    values |= incident.changes(instance, to, values, at=moment)
    return values | {"status": to, "status_since": moment}


async def update(
    session: AsyncSession, instance_id: UUID, *, cause: Cause, times: MachineTimes = NO_TIMES, **fields: Any
) -> Instance:
    """Write columns without changing the status. If only SILENT columns differ: no new version and no event."""
    instance = await lock(session, instance_id)
    changes = {k: value for k, value in (times.price_of(instance) | fields).items() if getattr(instance, k) != value}
    observed = {name: changes.pop(name) for name in SILENT if name in changes}
    if not changes:
        if observed:
            await session.execute(sql_update(Instance).where(Instance.id == instance_id).values(**observed))
        await ledger.begin_unknown(session, instance, times=times)
        return instance
    reclaim_at = instance.spot_reclaim_at
    changed = await _write(session, instance, changes | observed, times=times)
    await record(session, _event(EventType.INSTANCE_CHANGED, changed, cause=cause, data={"changed": sorted(changes)}))
    await _watch_reclaim(session, changed, previous=reclaim_at, cause=cause)
    return changed


async def extend(
    session: AsyncSession, instance_id: UUID, *, cause: Cause, values: Mapping[str, str], **fields: Any
) -> Instance:
    """Write later limits, with an event that has these values."""
    changed = await _write(session, await lock(session, instance_id), fields)
    await record_event(session, EventType.LIFETIME_EXTENDED, changed, cause=cause, values=values)
    return changed


async def repair_entry(session: AsyncSession, instance: Instance, *, times: MachineTimes) -> bool:
    """Make the ledger's entry of a locked row as the row demands; False if it was so."""
    return await ledger.repair(session, instance, times=times)


async def cut_entries_at_midnight(session: AsyncSession, *, limit: int) -> int:
    """Cut the ledger's entries that were open at midnight UTC; returns how many."""
    return await ledger.cut_at_midnight(session, limit=limit)


async def write_silently(session: AsyncSession, instance: Instance, **fields: Any) -> Instance:
    """Write columns of a locked row that are no change for callers: no version and no event. Its limits are armed."""
    fields |= arming.armed(instance, fields, at=now())
    changes = {name: value for name, value in fields.items() if getattr(instance, name) != value}
    if not changes:
        return instance
    written = await session.execute(
        sql_update(Instance)
        .where(Instance.id == instance.id)
        .values(**changes)
        .returning(Instance)
        .execution_options(populate_existing=True)
    )
    return await _keep_job(session, written.scalar_one(), changes)


async def write_columns(session: AsyncSession, rows: Sequence[tuple[Instance, Mapping[str, Any]]]) -> None:
    """Write columns of locked rows, which `commands.change_many` has computed; one statement for those alike."""
    alike: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for instance, values in rows:
        alike.setdefault(tuple(sorted(values)), []).append({"locked_id": instance.id, **values})
        if "status" in values and instance.novita_id is not None:
            invalidate_after_commit(session, instance.novita_id)
    table: Any = Instance.__table__
    for names, parameters in alike.items():
        written = sql_update(table).where(table.c.id == bindparam("locked_id"))
        await session.execute(written.values({name: bindparam(name) for name in names}), parameters)


async def record_event(
    session: AsyncSession, type: EventType, instance: Instance, *, cause: Cause, values: Mapping[str, str]
) -> None:
    """Write an event about a locked instance, with values that its type names."""
    await record(session, named_event(type, instance, cause=cause, values=values))


def named_event(type: EventType, instance: Instance, *, cause: Cause, values: Mapping[str, str]) -> EventRows:
    return _event(type, instance, cause=cause, data={"values": dict(values)})


async def record_health(
    session: AsyncSession, instance_id: UUID, results: Sequence[ProbeResult], *, cause: Cause
) -> Instance:
    """Write the result of a health check; the same result as before changes nothing."""
    instance = await lock(session, instance_id)
    health = health_of(results)
    if instance.health == health:
        return instance
    changed = await _write(session, instance, {"health": health})
    data = {"health": {"status": health, "endpoints": results_to_json(results)}}
    await record(session, _event(EventType.HEALTH_CHECKED, changed, cause=cause, data=data))
    return changed


async def record_degraded(
    session: AsyncSession, instance_id: UUID, results: Sequence[ProbeResult], *, is_degraded: bool, since: datetime
) -> None:
    """Write that an instance is degraded, or no longer; nothing if it already is so, or has left READY since then."""
    instance = await lock(session, instance_id)
    is_same_run = instance.status == InstanceStatus.READY and instance.status_since == since
    if not is_same_run or (instance.degraded_since is not None) == is_degraded:
        return
    health = health_of(results)
    changed = await _write(session, instance, {"health": health, "degraded_since": now() if is_degraded else None})
    data = {"health": {"status": health, "endpoints": results_to_json(results)}}
    await record(session, _event(EventType.HEALTH_CHANGED, changed, cause=Cause(), data=data))


async def lock(session: AsyncSession, instance_id: UUID) -> Instance:
    """The instance with its row locked until the transaction ends.

    Locked once per transaction: a second call returns the same object, which has what this transaction wrote.
    """
    held: dict[UUID, Instance] = session.info.setdefault(LOCKED, {})
    if instance_id in held:
        return held[instance_id]
    instance = await session.scalar(
        select(Instance)
        .where(Instance.id == instance_id)
        .with_for_update(key_share=True)
        .execution_options(populate_existing=True)
    )
    if instance is None:
        raise NotFound("instance", ("input", "id"))  # the same answer as for another project's instance
    held[instance_id] = instance
    return instance


async def try_lock(session: AsyncSession, instance_id: UUID) -> Instance | None:
    """Like `lock`, without waiting: None if another transaction holds the row."""
    free = select(Instance.id).where(Instance.id == instance_id).with_for_update(key_share=True, skip_locked=True)
    return None if await session.scalar(free) is None else await lock(session, instance_id)


async def _write(
    session: AsyncSession,
    instance: Instance,
    values: dict[str, Any],
    *,
    only_from: frozenset[InstanceStatus] | None = None,
    times: MachineTimes = NO_TIMES,
) -> Instance:
    """Write a new version of a locked row, and the ledger; the status must be in `only_from`, else as it was read."""
    before, link = CostBasis.of(instance), machines.Link.of(instance)
    values = times.price_of(instance) | values | arming.armed(instance, values, at=now())
    written = await session.execute(
        sql_update(Instance)
        .where(
            Instance.id == instance.id,
            Instance.version == instance.version,
            Instance.status.in_([status.value for status in only_from or {InstanceStatus(instance.status)}]),
        )
        .values(**values, version=Instance.version + 1, updated_at=now())
        .returning(Instance)
        .execution_options(populate_existing=True)
    )
    changed = written.scalar_one()
    if changed.novita_id is not None:
        invalidate_after_commit(session, changed.novita_id)
    await ledger.follow(session, changed, before=before, times=times)
    await machines.follow(session, changed, before=link)
    return await _keep_job(session, changed, values)


async def _keep_job(session: AsyncSession, instance: Instance, written: Mapping[str, Any]) -> Instance:
    """The job of the next step runs at its time; it is set in the transaction that sets the time."""
    if "lifetime_due_at" in written or "lifetime_state" in written:
        await arming.keep(session, instance)
    return instance


async def _watch_reclaim(session: AsyncSession, instance: Instance, *, previous: datetime | None, cause: Cause) -> None:
    """If the provider has announced a spot reclaim: write its event and enqueue the jobs that follow from it."""
    reclaim_at = instance.spot_reclaim_at
    await notice.keep_job(session, instance, is_new=reclaim_at != previous)
    if reclaim_at is None or reclaim_at == previous or instance.status in NOT_RECLAIMABLE:
        return
    data = {"at": reclaim_at.isoformat(), "values": {"at": reclaim_at.isoformat()}}
    await record(session, _event(EventType.SPOT_RECLAIM_SCHEDULED, instance, cause=cause, data=data))
    await enqueue(
        session,
        WatchReclaim(instance_id=instance.id),
        project_id=instance.project_id,
        after=max(reclaim_at - now(), timedelta(0)),
        unique_key=f"reclaim {instance.id}",
    )


def status_event(instance: Instance, *, previous: InstanceStatus | None, cause: Cause) -> EventRows:
    """The event of a new status, with a snapshot of the row that has it."""
    status = InstanceStatus(instance.status)
    return _event(EVENT_OF[status], instance, cause=cause, data={"from": previous, "to": status})


def _event(type: EventType, instance: Instance, *, cause: Cause, data: dict[str, Any]) -> EventRows:
    data = {**data, "instance": snapshot_of(instance)}
    return event_rows(instance, type, operation_id=cause.operation_id, caused_by=cause.token_id, data=data)
