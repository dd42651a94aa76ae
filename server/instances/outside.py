"""What became of a machine without us: stopped or started in the console, reclaimed, removed. One row at a time."""

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import now
from server.db.tables import Instance
from server.instances import attempts, moves, operations
from server.instances.glimpse import Glimpse
from server.instances.observed import Seen, facts, seen
from server.queue.enqueue import enqueue
from server.queue.kinds import MonitorInstance
from server.words import InstanceStatus, OperationKind, OperationPhase

S = InstanceStatus

SPOT_RECLAIMED = "SPOT_RECLAIMED"
STOPPED_OUTSIDE = "STOPPED_OUTSIDE"
STARTED_OUTSIDE = "STARTED_OUTSIDE"
GONE_AT_PROVIDER = "GONE_AT_PROVIDER"

UP_AND_RUNNING = frozenset({S.RUNNING, S.HEALTH_CHECKING, S.READY})


class Change(StrEnum):
    """What a comparison did to a row."""

    NONE = "NONE"
    NOTED = "NOTED"
    STARTED = "STARTED"
    STOPPED = "STOPPED"
    RECLAIMED = "RECLAIMED"
    GONE = "GONE"


async def compare(
    session: AsyncSession, instance_id: UUID, glimpse: Glimpse | None, *, asked_at: datetime, cause: moves.Cause
) -> Change:
    """Bring one row to what the provider said. `glimpse` None: it was asked for this very machine and has none.

    What the row learned after the provider was asked is newer than what the provider said, so it stands. While an
    operation is open its own job moves the instance; only what was seen is noted then.
    """
    instance = await moves.locked(session, instance_id)
    if instance.updated_at >= asked_at or instance.status == S.DELETED:
        return Change.NONE
    if await operations.open_operation(session, instance_id) is not None:
        return Change.NONE if glimpse is None else await _note(session, instance, glimpse, cause)
    if glimpse is None or seen(glimpse) is Seen.GONE:
        return await _gone(session, instance, cause)
    match seen(glimpse):
        case Seen.DOWN if instance.status in UP_AND_RUNNING:
            reason = SPOT_RECLAIMED if was_reclaimed(glimpse) else STOPPED_OUTSIDE
            await moves.move(
                session, instance_id, S.EXITED, cause=cause, status_reason=reason, observed_at=now(), **facts(glimpse)
            )
            return Change.RECLAIMED if reason == SPOT_RECLAIMED else Change.STOPPED
        case Seen.UP | Seen.COMING_UP if instance.status == S.EXITED:
            return await _started(session, instance, glimpse, cause)
        case _:
            return await _note(session, instance, glimpse, cause)


def expected(status: InstanceStatus, glimpse: Glimpse | None) -> InstanceStatus:
    """The status that `compare` would leave a settled row in."""
    found = Seen.GONE if glimpse is None else seen(glimpse)
    if found is Seen.GONE:
        return status if status == S.FAILED else S.FAILED
    if found is Seen.DOWN and status in UP_AND_RUNNING:
        return S.EXITED
    if found in (Seen.UP, Seen.COMING_UP) and status == S.EXITED:
        return S.STARTING
    return status


def was_reclaimed(glimpse: Glimpse) -> bool:
    """A time of reclaim alone is not enough: it may also have been stopped between the notice and that time."""
    if glimpse.spot_reclaim_at is None:
        return False
    return glimpse.spot_status in ("reclaiming", "terminated") or glimpse.spot_reclaim_at <= now()


async def give_up_lost(session: AsyncSession, instance_id: UUID) -> bool:
    """End an instance that is being created by nobody: no operation, nothing at the provider, nothing in doubt.

    No path that we know of leads there. If one does, the row would otherwise say CREATING for ever.
    """
    instance = await moves.locked(session, instance_id)
    if instance.status != S.CREATING or instance.novita_id is not None:
        return False
    if await operations.open_operation(session, instance_id) or await attempts.live_of_instance(session, instance_id):
        return False
    await moves.move(
        session,
        instance_id,
        S.FAILED,
        cause=moves.Cause(),
        failure_code="CREATE_LOST",
        failure_message="Nobody was creating it any more. Delete it and ask again.",
    )
    return True


async def _note(session: AsyncSession, instance: Instance, glimpse: Glimpse, cause: moves.Cause) -> Change:
    version = instance.version
    values = facts(glimpse)
    if seen(glimpse) is Seen.UP and not values["endpoints"]:
        del values["endpoints"]  # lists leave addresses out; that is no news of their being gone
    noted = await moves.note(session, instance.id, cause=cause, observed_at=now(), **values)
    return Change.NONE if noted.version == version else Change.NOTED


async def _gone(session: AsyncSession, instance: Instance, cause: moves.Cause) -> Change:
    """FAILED, not EXITED or DELETED: it can't be started again, and nobody asked for its end.

    The row and its name stay until the owner has taken notice and deletes it.
    """
    gone: dict[str, Any] = {"novita_status": "removed", "endpoints": [], "observed_at": now()}
    if instance.status == S.DELETING:
        await moves.move(session, instance.id, S.DELETED, cause=cause, **gone)
        return Change.GONE
    if instance.status == S.FAILED:
        version = instance.version
        noted = await moves.note(session, instance.id, cause=cause, **gone)
        return Change.NONE if noted.version == version else Change.NOTED
    await moves.move(
        session,
        instance.id,
        S.FAILED,
        cause=cause,
        failure_code=GONE_AT_PROVIDER,
        failure_message="The provider no longer has it. Delete it to free its name.",
        **gone,
    )
    return Change.GONE


async def _started(session: AsyncSession, instance: Instance, glimpse: Glimpse, cause: moves.Cause) -> Change:
    """It runs again without our doing: followed to READY like any start, by an operation that nobody asked for."""
    await follow(session, instance, kind=OperationKind.START, cause=cause, reason=STARTED_OUTSIDE)
    await moves.note(session, instance.id, cause=cause, observed_at=now(), novita_status=glimpse.status)
    return Change.STARTED


async def follow(
    session: AsyncSession, instance: Instance, *, kind: OperationKind, cause: moves.Cause, reason: str | None
) -> None:
    """Have a machine that is up, or on its way there, followed until it is READY."""
    operation = await operations.begin(session, instance, kind, by=cause.token_id)
    its = moves.Cause(operation.id, cause.token_id)
    await moves.move(session, instance.id, S.STARTING, cause=its, status_reason=reason)
    await operations.enter(session, operation.id, OperationPhase.PROVISIONING)
    await enqueue(
        session,
        MonitorInstance(instance_id=instance.id, operation_id=operation.id),
        project_id=instance.project_id,
        instance_id=instance.id,
        unique_key=f"monitor {operation.id}",
    )
