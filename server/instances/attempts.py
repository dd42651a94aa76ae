"""The record of every try to create an instance at the provider; the base of making at most one."""

import re
import secrets
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import new_id, now
from server.db.tables import Attempt, Instance
from server.events.event import EventType
from server.events.log import append
from server.instances.moves import locked
from server.instances.placement import Candidate, Refusal
from server.words import LIVE_ATTEMPT, AttemptStatus

MARKER = "pl"
LONGEST_SLUG = 60


def new_marker() -> str:
    """Unique for ever: 64 random bits, recognisable as ours."""
    return MARKER + secrets.token_hex(8)


def novita_name(name: str, marker: str) -> str:
    """The name at the provider, which takes letters, digits and hyphens; the marker is what it is found by."""
    slug = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:LONGEST_SLUG].strip("-")
    return f"{slug}-{marker}" if slug else marker


def has_marker(name: str, marker: str) -> bool:
    """Whether a name at the provider was made with this marker."""
    return name == marker or name.endswith(f"-{marker}")


async def of_operation(session: AsyncSession, operation_id: UUID) -> Sequence[Attempt]:
    found = await session.execute(select(Attempt).where(Attempt.operation_id == operation_id).order_by(Attempt.number))
    return found.scalars().all()


async def live_of_instance(session: AsyncSession, instance_id: UUID) -> Attempt | None:
    """The attempt of which nobody knows yet whether it made something."""
    found = await session.execute(
        select(Attempt).where(Attempt.instance_id == instance_id, Attempt.status.in_(LIVE_ATTEMPT))
    )
    return found.scalar_one_or_none()


async def age(session: AsyncSession, attempt: Attempt) -> timedelta:
    """How long ago it began, by the database's clock: those of two workers may differ, or jump."""
    found = await session.execute(select(func.now() - Attempt.created_at).where(Attempt.id == attempt.id))
    return found.scalar_one()


async def begin(session: AsyncSession, instance: Instance, operation_id: UUID, candidate: Candidate) -> Attempt:
    """Commit this before the provider is asked: whoever finds it knows that the call may have been made."""
    return await _add(
        session,
        instance.id,
        operation_id,
        status=AttemptStatus.ASKING,
        marker=new_marker(),
        region=candidate.region,
        cluster_id=candidate.cluster_id,
        product_id=candidate.product_id,
        billing_mode=candidate.billing_mode,
        price_per_hour_e5=candidate.price_per_hour_e5,
    )


async def note_refusals(
    session: AsyncSession, instance: Instance, operation_id: UUID, refusals: Sequence[Refusal]
) -> None:
    """Regions that could not even be asked, each once, so that a caller can see why."""
    known = {
        (attempt.region, attempt.billing_mode, attempt.reason_code)
        for attempt in await of_operation(session, operation_id)
        if attempt.marker is None
    }
    for refusal in refusals:
        if (refusal.region, refusal.billing_mode, refusal.code) not in known:
            await _add(
                session,
                instance.id,
                operation_id,
                status=AttemptStatus.REJECTED,
                region=refusal.region,
                billing_mode=refusal.billing_mode,
                reason_code=refusal.code,
                reason_message=refusal.message,
                finished_at=now(),
            )


async def leave_unknown(session: AsyncSession, attempt: Attempt, *, code: str, message: str) -> None:
    """No clear answer came: something may have been made."""
    await session.execute(
        update(Attempt)
        .where(Attempt.id == attempt.id, Attempt.status.in_(LIVE_ATTEMPT))
        .values(status=AttemptStatus.UNKNOWN, reason_code=code, reason_message=message)
    )


async def end(session: AsyncSession, attempt: Attempt, status: AttemptStatus, **fields: Any) -> bool:
    """End a live attempt. False when somebody else ended it before."""
    instance = await locked(session, attempt.instance_id)
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
        data={
            "attempt": {
                "number": row.number,
                "region": row.region,
                "billing_mode": row.billing_mode,
                "status": row.status,
                "reason_code": row.reason_code,
                "reason_message": row.reason_message,
            }
        },
    )
    return True


async def _add(session: AsyncSession, instance_id: UUID, operation_id: UUID, **fields: Any) -> Attempt:
    await locked(session, instance_id)
    last = await session.execute(select(func.max(Attempt.number)).where(Attempt.operation_id == operation_id))
    attempt = Attempt(
        id=new_id(),
        operation_id=operation_id,
        instance_id=instance_id,
        number=(last.scalar() or 0) + 1,
        **fields,
    )
    session.add(attempt)
    await session.flush()
    return attempt
