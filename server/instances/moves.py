"""The ONE writer of `instance.status`; every move adds its event in the same breath."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import now
from server.db.engine import will_write
from server.db.tables import Instance, ProbeResult
from server.errors import IllegalMove, NotFound
from server.events.event import EventType
from server.instances.announce import announce
from server.instances.lifecycle import BEGINS_A_RUN, MOVES, sources
from server.instances.snapshot import snapshot_of
from server.probes.check import health_of, told
from server.probes.results import forget
from server.queue.enqueue import enqueue
from server.queue.kinds import WatchReclaim
from server.words import InstanceStatus

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

# Nothing is left to be taken back.
OVER = frozenset({InstanceStatus.EXITED, InstanceStatus.DELETED})


@dataclass(frozen=True, slots=True)
class Cause:
    """Who or what made a change: the operation it serves and the token that asked for it."""

    operation_id: UUID | None = None
    token_id: UUID | None = None


async def begin(session: AsyncSession, instance: Instance, *, cause: Cause) -> None:
    """Write a new instance, with the event that says so."""
    instance.status = InstanceStatus.CREATING
    instance.version = 1
    instance.created_at = instance.updated_at = instance.status_since = now()
    session.add(instance)
    await session.flush()
    await _announce(session, instance, previous=None, cause=cause)


async def move(
    session: AsyncSession, instance_id: UUID, to: InstanceStatus, *, cause: Cause, **fields: Any
) -> Instance:
    """Move an instance to another status, and write `fields` with it. Raises IllegalMove and changes nothing.

    The row is locked first, so that movers queue up and each finds the status that the one before it left; the event
    is written under that lock, which is what keeps an instance's events in the order of its versions.
    """
    instance = await locked(session, instance_id)
    previous = InstanceStatus(instance.status)
    if to not in MOVES[previous]:
        raise IllegalMove(
            "INVALID_TRANSITION",
            f"An instance that is {previous} can't become {to}.",
            current=previous,
            allowed=sorted(MOVES[previous]),
        )
    moment = now()
    values: dict[str, Any] = {"status_reason": None, "failure_code": None, "failure_message": None, **fields}
    if to in BEGINS_A_RUN:
        values |= {"running_at": None, "ready_at": None, "health": None}
        await forget(session, instance_id)
    if to is InstanceStatus.RUNNING and instance.running_at is None:
        values.setdefault("running_at", moment)
    if to is InstanceStatus.READY:
        values.setdefault("ready_at", instance.ready_at or moment)
    if to is InstanceStatus.DELETED:
        values["deleted_at"] = moment
    values |= {"status": to, "status_since": moment}
    reclaim_at = instance.spot_reclaim_at
    moved = await _write(session, instance, values, only_from=sources(to))
    await _announce(session, moved, previous=previous, cause=cause)
    await _announce_reclaim(session, moved, previous=reclaim_at, cause=cause)
    return moved


async def note(session: AsyncSession, instance_id: UUID, *, cause: Cause, **fields: Any) -> Instance:
    """Write what was learned about an instance without moving it. No news, no version, no event."""
    instance = await locked(session, instance_id)
    news = {name: value for name, value in fields.items() if getattr(instance, name) != value}
    seen = {name: news.pop(name) for name in ("observed_at",) if name in news}
    if not news:
        if seen:
            await session.execute(update(Instance).where(Instance.id == instance_id).values(**seen))
        return instance
    reclaim_at = instance.spot_reclaim_at
    changed = await _write(session, instance, news | seen, only_from=frozenset({InstanceStatus(instance.status)}))
    await _append(session, EventType.INSTANCE_CHANGED, changed, cause=cause, data={"changed": sorted(news)})
    await _announce_reclaim(session, changed, previous=reclaim_at, cause=cause)
    return changed


async def checked(
    session: AsyncSession, instance_id: UUID, results: Sequence[ProbeResult], *, cause: Cause
) -> Instance:
    """Write what a check of its endpoints came to. The same as the last time is no news."""
    instance = await locked(session, instance_id)
    health = health_of(results)
    if instance.health == health:
        return instance
    changed = await _write(
        session, instance, {"health": health}, only_from=frozenset({InstanceStatus(instance.status)})
    )
    data = {"health": {"status": health, "endpoints": told(results)}}
    await _append(session, EventType.HEALTH_CHECKED, changed, cause=cause, data=data)
    return changed


async def locked(session: AsyncSession, instance_id: UUID) -> Instance:
    """The instance, and nobody else may change it until this transaction is over.

    Whoever has it already is not asked again: what this transaction wrote since is in the object.
    """
    held: dict[UUID, Instance] = session.info.setdefault(LOCKED, {})
    if instance_id in held:
        return held[instance_id]
    found = await session.execute(
        select(Instance)
        .where(Instance.id == instance_id)
        .with_for_update(key_share=True)
        .execution_options(populate_existing=True)
    )
    instance = found.scalar_one_or_none()
    if instance is None:
        raise NotFound("instance", ("input", "id"))  # as for another project's: nobody can tell the two apart
    held[instance_id] = instance
    return instance


async def _write(
    session: AsyncSession, instance: Instance, values: dict[str, Any], *, only_from: frozenset[InstanceStatus]
) -> Instance:
    written = await session.execute(
        update(Instance)
        .where(
            Instance.id == instance.id,
            Instance.version == instance.version,
            Instance.status.in_([status.value for status in only_from]),
        )
        .values(**values, version=Instance.version + 1, updated_at=now())
        .returning(Instance)
        .execution_options(populate_existing=True)
    )
    changed = written.scalar_one()
    if changed.novita_id is not None:
        will_write(session, changed.novita_id)
    return changed


async def _announce_reclaim(
    session: AsyncSession, instance: Instance, *, previous: datetime | None, cause: Cause
) -> None:
    """Whoever learns that a spot machine will be taken back says so before it happens, and has it watched."""
    reclaim_at = instance.spot_reclaim_at
    if reclaim_at is None or reclaim_at == previous or instance.status in OVER:
        return
    await _append(session, EventType.SPOT_RECLAIM_SCHEDULED, instance, cause=cause, data={"at": reclaim_at.isoformat()})
    await enqueue(
        session,
        WatchReclaim(instance_id=instance.id),
        project_id=instance.project_id,
        after=max(reclaim_at - now(), timedelta(0)),
        unique_key=f"reclaim {instance.id}",
    )


async def _announce(
    session: AsyncSession, instance: Instance, *, previous: InstanceStatus | None, cause: Cause
) -> None:
    status = InstanceStatus(instance.status)
    await _append(session, EVENT_OF[status], instance, cause=cause, data={"from": previous, "to": status})


async def _append(
    session: AsyncSession, type: EventType, instance: Instance, *, cause: Cause, data: dict[str, Any]
) -> None:
    await announce(
        session,
        instance,
        type,
        operation_id=cause.operation_id,
        caused_by=cause.token_id,
        data={**data, "instance": snapshot_of(instance)},
    )
