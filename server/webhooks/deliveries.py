"""Deliveries: written with the event that they tell of, tried until they arrive or are given up, and read again.

How long they wait is told by the database's clock alone: one process whose own is wrong would hold messages up for all.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, delete, func, select, text, update
from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import new_id, now
from server.db.engine import after_commit
from server.db.tables import Delivery, DeliveryAttempt, DeliveryStatus, Instance
from server.errors import NotFound
from server.events.event import EventType
from server.observe import metrics
from server.queue.enqueue import enqueue
from server.queue.hurry import hurry
from server.queue.kinds import SendWebhook
from server.webhooks.payload import body_of, body_of_test
from server.webhooks.schedule import next_pause
from server.webhooks.send import Answer

WANTED = frozenset(
    {
        EventType.INSTANCE_CREATED,
        EventType.INSTANCE_STARTING,
        EventType.INSTANCE_RUNNING,
        EventType.INSTANCE_HEALTH_CHECKING,
        EventType.INSTANCE_READY,
        EventType.INSTANCE_FAILED,
        EventType.INSTANCE_EXITED,
        EventType.INSTANCE_DELETED,
        EventType.OPERATION_FINISHED,
        EventType.HEALTH_CHECKED,
        EventType.SPOT_RECLAIM_SCHEDULED,
    }
)
# Written out, as the partial index has it: of a parameter the planner can't know that it fits.
WAITING: ColumnElement[bool] = text("delivery.status = 'PENDING' AND delivery.keeps_order")  # type: ignore[assignment]
TEST = "webhook.test"
DISABLED = "WEBHOOK_DISABLED"


def is_wanted(instance: Instance, type: EventType) -> bool:
    return instance.webhook_url is not None and instance.webhook_disabled_at is None and type in WANTED


async def deliver(
    session: AsyncSession,
    instance: Instance,
    *,
    event_id: UUID,
    type: EventType,
    caused_by: UUID | None,
    data: Mapping[str, Any],
    snapshot: Mapping[str, Any],
) -> None:
    """Write the delivery of an event and its job, in the event's own transaction and under the instance's lock."""
    body = body_of(
        event_id=event_id,
        type=type,
        occurred_at=now(),
        instance_id=instance.id,
        caused_by=caused_by,
        data=data,
        instance=snapshot,
    )
    await _add(session, instance.project_id, str(instance.webhook_url), type, body, instance.id, event_id)


async def deliver_test(session: AsyncSession, project_id: UUID, url: str) -> Delivery:
    """A message that tells of nothing, tried once."""
    delivery_id = new_id()
    body = body_of_test(delivery_id=delivery_id, at=now())
    return await _add(session, project_id, url, TEST, body, None, None, id=delivery_id)


async def redeliver(session: AsyncSession, delivery_id: UUID, *, project_id: UUID) -> Delivery:
    """Send it once more, whatever became of it; out of order, as its time has passed.

    One that is still on its way keeps its place: it and those it stands behind wait no longer for their next attempt.
    """
    found = await session.execute(
        select(Delivery, func.clock_timestamp())
        .where(Delivery.id == delivery_id, Delivery.project_id == project_id)
        .with_for_update()
    )
    row = found.one_or_none()
    if row is None:
        raise NotFound("delivery", ("input", "id"))
    delivery, moment = row
    if delivery.status == DeliveryStatus.PENDING:
        await _hurry(session, delivery)
        return delivery
    delivery.status = DeliveryStatus.PENDING
    delivery.keeps_order = False
    delivery.counted = 0
    delivery.asked_at = moment
    delivery.finished_at = delivery.error_code = delivery.next_attempt_at = None
    await session.flush()
    await _enqueue(session, delivery)
    return delivery


async def waits_for(session: AsyncSession, delivery: Delivery) -> timedelta | None:
    """How long until the instance's message that has to arrive before this one is tried; None: it is the first."""
    if not delivery.keeps_order or delivery.instance_id is None:
        return None
    found = await session.execute(ahead_of(delivery.instance_id, delivery.seq))
    return found.scalar_one_or_none()


def ahead_of(instance_id: UUID, seq: int) -> Select[timedelta]:
    left = func.greatest(Delivery.next_attempt_at - func.clock_timestamp(), timedelta(0))  # which leaves out a NULL
    return (
        select(left)
        .where(Delivery.instance_id == instance_id, WAITING, Delivery.seq < seq)
        .order_by(Delivery.seq)
        .limit(1)
    )


async def begin_attempt(session: AsyncSession, delivery_id: UUID) -> tuple[Delivery, datetime] | None:
    """Commit this before the request is sent: an attempt that nobody survives is recorded, too. None: it is over."""
    found = await _locked(session, delivery_id)
    if found is None:
        return None
    delivery, moment = found
    delivery.attempts += 1
    session.add(DeliveryAttempt(delivery_id=delivery_id, number=delivery.attempts, started_at=moment))
    await session.flush()
    return delivery, moment


async def end_attempt(session: AsyncSession, delivery_id: UUID, number: int, answer: Answer) -> timedelta | None:
    """Write what came of it. How long until the next one; None when it is over."""
    await session.execute(
        update(DeliveryAttempt)
        .where(DeliveryAttempt.delivery_id == delivery_id, DeliveryAttempt.number == number)
        .values(
            finished_at=func.clock_timestamp(),
            http_status=answer.http_status,
            error_code=answer.error,
            message=answer.message,
        )
    )
    found = await _locked(session, delivery_id)
    if found is None:
        return None
    delivery, moment = found
    if answer.is_delivered:
        delivery.status, delivery.finished_at = DeliveryStatus.DELIVERED, moment
        delivery.error_code = delivery.next_attempt_at = None
        _count_end(session, DeliveryStatus.DELIVERED)
        return None
    delivery.counted += 1
    delivery.error_code = answer.error
    delivery.keeps_order = delivery.keeps_order and not answer.is_of_this_message
    is_over = answer.is_final or delivery.event_type == TEST
    age = moment - delivery.asked_at
    pause = None if is_over else next_pause(delivery.counted, age=age, retry_after=answer.retry_after)
    if pause is None:
        delivery.status, delivery.finished_at, delivery.next_attempt_at = DeliveryStatus.FAILED, moment, None
        _count_end(session, DeliveryStatus.FAILED)
    else:
        delivery.next_attempt_at = moment + pause
    await session.flush()
    return pause


async def give_up(session: AsyncSession, delivery_id: UUID, code: str) -> None:
    """End it without an answer, so that nothing waits behind it."""
    found = await _locked(session, delivery_id)
    if found is not None:
        delivery, moment = found
        delivery.status, delivery.finished_at, delivery.next_attempt_at = DeliveryStatus.FAILED, moment, None
        delivery.error_code = code
        _count_end(session, DeliveryStatus.FAILED)


async def give_up_others(session: AsyncSession, delivery: Delivery) -> None:
    """The receiver of an instance's events wants no more of them."""
    given_up = await session.execute(
        update(Delivery)
        .where(
            Delivery.instance_id == delivery.instance_id,
            Delivery.url == delivery.url,
            Delivery.status == DeliveryStatus.PENDING,
            Delivery.id != delivery.id,
        )
        .values(
            status=DeliveryStatus.FAILED,
            error_code=DISABLED,
            finished_at=func.clock_timestamp(),
            next_attempt_at=None,
        )
        .returning(Delivery.id)
    )
    _count_end(session, DeliveryStatus.FAILED, many=len(given_up.all()))


async def note_trouble(session: AsyncSession, delivery_id: UUID, code: str) -> None:
    """Say why it is not being sent."""
    await session.execute(
        update(Delivery)
        .where(Delivery.id == delivery_id, Delivery.status == DeliveryStatus.PENDING)
        .values(error_code=code)
    )


async def forget_old(session: AsyncSession, *, older_than: timedelta, most: int) -> int:
    """Delete what is over for so long, with its attempts; returns how many."""
    old = (
        select(Delivery.id)
        .where(Delivery.finished_at < func.now() - older_than)
        .order_by(Delivery.finished_at)
        .limit(most)
        .with_for_update(skip_locked=True)
    )
    gone = await session.execute(delete(Delivery).where(Delivery.id.in_(old)).returning(Delivery.id))
    return len(gone.all())


def _count_end(session: AsyncSession, status: DeliveryStatus, *, many: int = 1) -> None:
    after_commit(session, lambda: metrics.DELIVERIES.add(status.value, by=many))


async def _locked(session: AsyncSession, delivery_id: UUID) -> tuple[Delivery, datetime] | None:
    """The delivery, if it is not over, and what time it is."""
    found = await session.execute(
        select(Delivery, func.clock_timestamp())
        .where(Delivery.id == delivery_id, Delivery.status == DeliveryStatus.PENDING)
        .with_for_update(key_share=True)
        .execution_options(populate_existing=True)
    )
    row = found.one_or_none()
    return None if row is None else (row[0], row[1])


async def _hurry(session: AsyncSession, delivery: Delivery) -> None:
    if delivery.instance_id is None:
        return
    await session.execute(
        update(Delivery)
        .where(Delivery.instance_id == delivery.instance_id, Delivery.status == DeliveryStatus.PENDING)
        .values(next_attempt_at=None)
    )
    delivery.next_attempt_at = None
    await hurry(session, SendWebhook.kind, instance_id=delivery.instance_id)


async def _add(
    session: AsyncSession,
    project_id: UUID,
    url: str,
    type: str,
    body: str,
    instance_id: UUID | None,
    event_id: UUID | None,
    *,
    id: UUID | None = None,
) -> Delivery:
    delivery = Delivery(
        id=id or new_id(),
        project_id=project_id,
        instance_id=instance_id,
        event_id=event_id,
        event_type=type,
        url=url,
        body=body,
        status=DeliveryStatus.PENDING,
        keeps_order=type != TEST,
        attempts=0,
        counted=0,
    )
    session.add(delivery)
    await session.flush()
    await _enqueue(session, delivery)
    return delivery


async def _enqueue(session: AsyncSession, delivery: Delivery) -> None:
    await enqueue(
        session,
        SendWebhook(delivery_id=delivery.id),
        project_id=delivery.project_id,
        instance_id=delivery.instance_id,
    )
