"""Create attempts: recorded with a marker before each call, so that at most one machine is made."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import new_id, now
from server.db.tables import Attempt, Instance, Operation
from server.enums import LIVE_ATTEMPT, AttemptStatus
from server.errors import InsufficientResource
from server.events.event import EventType
from server.events.outbox import append
from server.instances.events import with_owner
from server.instances.markers import derived_marker, random_marker
from server.instances.placement import OUT_OF_STOCK, Candidate, RegionRefusal
from server.instances.transitions import lock
from server.novita.models import RemoteInstance

# The reason of an instance's status while the result of its create attempt is not known.
MACHINE_MAY_EXIST = "MACHINE_MAY_EXIST"
# The reason of an attempt that the provider refused for want of stock.
NO_STOCK = frozenset({InsufficientResource.code, "INSUFFICIENT_RESOURCE"})


async def of_operation(session: AsyncSession, operation_id: UUID) -> Sequence[Attempt]:
    result = await session.execute(select(Attempt).where(Attempt.operation_id == operation_id).order_by(Attempt.number))
    return result.scalars().all()


async def live_of_instance(session: AsyncSession, instance_id: UUID) -> Attempt | None:
    """The attempt whose result is not known yet."""
    result = await session.execute(
        select(Attempt).where(Attempt.instance_id == instance_id, Attempt.status.in_(LIVE_ATTEMPT))
    )
    return result.scalar_one_or_none()


def age(attempt: Attempt) -> timedelta:
    """The time since it began."""
    return now() - attempt.created_at


async def with_marker(session: AsyncSession, marker: str) -> Attempt | None:
    result = await session.execute(select(Attempt).where(Attempt.marker == marker))
    return result.scalar_one_or_none()


async def begin(
    session: AsyncSession, instance: Instance, operation_id: UUID, candidate: Candidate, *, create: str
) -> Attempt:
    """Commit this before the call: a job that finds it knows that the call may have been made.

    `create` is what its marker is derived from: the same for a request that is repeated with its idempotency key.
    """
    number = await _next_number(session, instance.id, operation_id)
    marker = derived_marker(instance.project_id, create, number)
    return await _add(
        session,
        instance.id,
        operation_id,
        number,
        status=AttemptStatus.ASKING,
        marker=marker if await with_marker(session, marker) is None else random_marker(),
        region=candidate.region,
        cluster_id=candidate.cluster_id,
        product_id=candidate.product_id,
        billing_mode=candidate.billing_mode,
        price_per_hour_e5=candidate.price_per_hour_e5,
    )


async def begin_found(
    session: AsyncSession, instance: Instance, operation_id: UUID, remote: RemoteInstance, marker: str
) -> Attempt:
    """The attempt of a machine that was made before a backup was restored; the row of that time is lost."""
    return await _add(
        session,
        instance.id,
        operation_id,
        await _next_number(session, instance.id, operation_id),
        status=AttemptStatus.UNKNOWN,
        marker=marker,
        region=remote.region or "",
        cluster_id=remote.cluster_id or "",
        product_id=remote.product_id or "",
        billing_mode=remote.billing_mode or "",
        price_per_hour_e5=remote.price_e5 or 0,
    )


async def note_refusals(
    session: AsyncSession, instance: Instance, operation_id: UUID, refusals: Sequence[RegionRefusal]
) -> None:
    """Record the regions without a candidate, each once, so that the caller sees the reasons.

    Where the provider itself has refused the operation for want of stock, that the stock is gone says nothing new.
    """
    past = await of_operation(session, operation_id)
    known = {(each.region, each.billing_mode, each.reason_code) for each in past if each.marker is None}
    known |= {(each.region, each.billing_mode, OUT_OF_STOCK) for each in past if each.reason_code in NO_STOCK}
    for refusal in refusals:
        if (refusal.region, refusal.billing_mode, refusal.code) not in known:
            await _add(
                session,
                instance.id,
                operation_id,
                await _next_number(session, instance.id, operation_id),
                status=AttemptStatus.REJECTED,
                region=refusal.region,
                billing_mode=refusal.billing_mode,
                reason_code=refusal.code,
                reason_message=refusal.message,
                finished_at=now(),
            )


async def leave_unknown(session: AsyncSession, attempt: Attempt, *, code: str, message: str) -> None:
    """The call had no clear result: a machine may have been created."""
    await session.execute(
        update(Attempt)
        .where(Attempt.id == attempt.id, Attempt.status.in_(LIVE_ATTEMPT))
        .values(status=AttemptStatus.UNKNOWN, reason_code=code, reason_message=message)
    )


async def end(session: AsyncSession, attempt: Attempt, status: AttemptStatus, **fields: Any) -> bool:
    """End a live attempt. False if it has already ended."""
    instance = await lock(session, attempt.instance_id)
    ended = await session.execute(
        update(Attempt)
        .where(Attempt.id == attempt.id, Attempt.status.in_(LIVE_ATTEMPT))
        .values(status=status, finished_at=now(), **fields)
        .returning(Attempt)
        .execution_options(populate_existing=True)
    )
    row = ended.scalar_one_or_none()
    if row is None:
        return False
    await append(
        session,
        type=EventType.ATTEMPT_FINISHED,
        project_id=instance.project_id,
        instance_id=instance.id,
        operation_id=row.operation_id,
        caused_by=await session.scalar(select(Operation.requested_by).where(Operation.id == row.operation_id)),
        data=with_owner(instance, {"attempt": attempt_data(row)}),
    )
    return True


def attempt_data(attempt: Attempt) -> dict[str, Any]:
    """An attempt as events have it."""
    names = ("number", "region", "billing_mode", "status", "reason_code", "reason_message")
    return {name: getattr(attempt, name) for name in names}


async def last_data(session: AsyncSession, operation_id: UUID) -> dict[str, Any] | None:
    """The last attempt of an operation as events have it; None if there is none."""
    result = await session.execute(
        select(Attempt).where(Attempt.operation_id == operation_id).order_by(Attempt.number.desc()).limit(1)
    )
    last = result.scalar_one_or_none()
    return None if last is None else attempt_data(last)


async def _next_number(session: AsyncSession, instance_id: UUID, operation_id: UUID) -> int:
    await lock(session, instance_id)
    last = await session.execute(select(func.max(Attempt.number)).where(Attempt.operation_id == operation_id))
    return (last.scalar() or 0) + 1


async def _add(session: AsyncSession, instance_id: UUID, operation_id: UUID, number: int, **fields: Any) -> Attempt:
    attempt = Attempt(
        id=new_id(),
        operation_id=operation_id,
        instance_id=instance_id,
        number=number,
        created_at=now(),
        **fields,
    )
    session.add(attempt)
    await session.flush()
    return attempt
