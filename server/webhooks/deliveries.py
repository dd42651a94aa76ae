"""Webhook deliveries: inserted with their event, retried until they arrive or fail.

All waits use the database's clock: a process with a wrong clock must not delay messages of others.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, and_, delete, func, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import new_id, now
from server.db.database import after_commit
from server.db.tables import Delivery, DeliveryAttempt, DeliveryStatus, Instance
from server.errors import NotFound
from server.events.event import EventType
from server.observe import metrics
from server.queue.control import make_due_now, make_keys_due_now
from server.queue.enqueue import enqueue
from server.queue.kinds import SendProjectWebhook, SendWebhook
from server.webhooks.delivery_rows import TEST_EVENT, new_row
from server.webhooks.payload import test_body
from server.webhooks.sender import DeliveryResult, retry_delay

DELIVERED_EVENTS = frozenset(
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
        EventType.HEALTH_CHANGED,
        EventType.SPOT_RECLAIM_SCHEDULED,
        EventType.LIFETIME_ENDING,
        EventType.LIFETIME_EXTENDED,
        EventType.LIFETIME_ENDED,
        EventType.LIFETIME_OVERDUE,
        EventType.WAIT_BEGAN,
        EventType.WAIT_MATCHED,
        EventType.WAIT_RETURNED,
        EventType.WAIT_EXPIRED,
        EventType.RECOVERY_BEGAN,
        EventType.RECOVERY_STEP,
        EventType.RECOVERY_GAVE_UP,
        EventType.INSTANCE_RELOCATED,
        EventType.LIFETIME_IDLE_UNKNOWN,
    }
)
# Literal, like the condition of the partial index: the planner can't match a parameter with it.
PENDING_IN_ORDER: ColumnElement[bool] = text("delivery.status = 'PENDING' AND delivery.keeps_order")  # type: ignore[assignment]
WEBHOOK_DISABLED = "WEBHOOK_DISABLED"


def is_delivered_event(instance: Instance, type: EventType) -> bool:
    return instance.webhook_url is not None and instance.webhook_disabled_at is None and type in DELIVERED_EVENTS


async def insert_delivery(session: AsyncSession, row: dict[str, Any]) -> Delivery:
    """Insert a delivery and its job, in the event's transaction and under the instance's row lock."""
    delivery = Delivery(**row)
    session.add(delivery)
    await session.flush()
    await _enqueue(session, delivery)
    return delivery


async def insert_test_delivery(session: AsyncSession, project_id: UUID, url: str) -> Delivery:
    """Insert a test message, sent once."""
    delivery_id = new_id()
    body = test_body(delivery_id=delivery_id, at=now())
    return await insert_delivery(session, new_row(delivery_id, project_id, url, TEST_EVENT, body))


async def redeliver(session: AsyncSession, delivery_id: UUID, *, project_id: UUID) -> Delivery:
    """Send it once more, whatever its status; out of order if it had ended.

    A pending one keeps its place: all pending deliveries in its order are attempted now.
    """
    result = await session.execute(
        select(Delivery).where(Delivery.id == delivery_id, Delivery.project_id == project_id)
    )
    delivery = result.scalar_one_or_none()
    if delivery is None:
        raise NotFound("delivery", ("input", "id"))
    wanted = Delivery.id == delivery_id
    if not _is_alone(delivery):
        wanted = or_(wanted, and_(*_in_one_order(delivery), Delivery.status == DeliveryStatus.PENDING))
    if delivery not in await _lock_in_order(session, wanted):
        raise NotFound("delivery", ("input", "id"))  # it was old, and has been removed
    if delivery.status == DeliveryStatus.PENDING:
        await _make_due_now(session, delivery)
        return delivery
    delivery.status = DeliveryStatus.PENDING
    delivery.keeps_order = False
    delivery.counted = 0
    delivery.asked_at = now()
    delivery.finished_at = delivery.error_code = delivery.next_attempt_at = None
    await session.flush()
    await _enqueue(session, delivery)
    return delivery


async def time_until_turn(session: AsyncSession, delivery: Delivery) -> timedelta | None:
    """Time until the next attempt of the delivery that must arrive before this one; None if this one is next."""
    if not delivery.keeps_order or _is_alone(delivery):
        return None
    result = await session.execute(select_predecessor(delivery))
    return result.scalar_one_or_none()


def select_predecessor(delivery: Delivery) -> Select[timedelta]:
    left = func.greatest(Delivery.next_attempt_at - now(), timedelta(0))  # GREATEST ignores NULL
    return (
        select(left)
        .where(*_in_one_order(delivery), PENDING_IN_ORDER, Delivery.seq < delivery.seq)
        .order_by(Delivery.seq)
        .limit(1)
    )


async def begin_attempt(session: AsyncSession, delivery_id: UUID) -> tuple[Delivery, datetime] | None:
    """Commit it before sending: an attempt that kills the process is recorded, too. None if the delivery has ended."""
    locked = await _lock_pending(session, delivery_id)
    if locked is None:
        return None
    delivery, moment = locked
    delivery.attempts += 1
    session.add(DeliveryAttempt(delivery_id=delivery_id, number=delivery.attempts, started_at=moment))
    await session.flush()
    return delivery, moment


async def end_attempt(
    session: AsyncSession, delivery_id: UUID, number: int, result: DeliveryResult
) -> timedelta | None:
    """Record the result; returns the time until the next attempt, None if the delivery has ended."""
    await session.execute(
        update(DeliveryAttempt)
        .where(DeliveryAttempt.delivery_id == delivery_id, DeliveryAttempt.number == number)
        .values(
            finished_at=now(),
            http_status=result.http_status,
            error_code=result.error,
            message=result.message,
        )
    )
    locked = await _lock_pending(session, delivery_id)
    if locked is None:
        return None
    delivery, moment = locked
    if result.is_delivered:
        delivery.status, delivery.finished_at = DeliveryStatus.DELIVERED, moment
        delivery.error_code = delivery.next_attempt_at = None
        _count_end(session, DeliveryStatus.DELIVERED)
        return None
    delivery.counted += 1
    delivery.error_code = result.error
    delivery.keeps_order = delivery.keeps_order and not result.is_message_rejected
    is_last = result.is_final or delivery.event_type == TEST_EVENT
    age = moment - delivery.asked_at
    delay = None if is_last else retry_delay(delivery.counted, age=age, retry_after=result.retry_after)
    if delay is None:
        delivery.status, delivery.finished_at, delivery.next_attempt_at = DeliveryStatus.FAILED, moment, None
        _count_end(session, DeliveryStatus.FAILED)
    else:
        delivery.next_attempt_at = moment + delay
    await session.flush()
    return delay


async def give_up(session: AsyncSession, delivery_id: UUID, code: str) -> None:
    """End it as failed without a response, so that later deliveries do not wait for it."""
    locked = await _lock_pending(session, delivery_id)
    if locked is not None:
        delivery, moment = locked
        delivery.status, delivery.finished_at, delivery.next_attempt_at = DeliveryStatus.FAILED, moment, None
        delivery.error_code = code
        _count_end(session, DeliveryStatus.FAILED)


async def give_up_others(session: AsyncSession, delivery: Delivery) -> None:
    """End all other pending deliveries of the instance to this URL: the receiver wants no more."""
    receiver = (Delivery.instance_id == delivery.instance_id, Delivery.url == delivery.url)
    await give_up_all(session, *receiver, error=WEBHOOK_DISABLED, but=delivery.id)


async def give_up_all(
    session: AsyncSession, *conditions: ColumnElement[bool], error: str, but: UUID | None = None
) -> None:
    """End all pending deliveries that match as failed, `but` one, which the caller ends; it is locked in its place."""
    pending = await _lock_in_order(session, Delivery.status == DeliveryStatus.PENDING, *conditions)
    ended = [each.id for each in pending if each.id != but]
    await session.execute(
        update(Delivery)
        .where(Delivery.id.in_(ended))
        .values(status=DeliveryStatus.FAILED, error_code=error, finished_at=now(), next_attempt_at=None)
    )
    _count_end(session, DeliveryStatus.FAILED, many=len(ended))


async def _lock_in_order(session: AsyncSession, *conditions: ColumnElement[bool]) -> Sequence[Delivery]:
    """Lock several in the order of `seq`. All that lock more than one do it so: no deadlocks."""
    locked = await session.execute(
        select(Delivery)
        .where(*conditions)
        .order_by(Delivery.seq)
        .with_for_update(key_share=True)
        .execution_options(populate_existing=True)
    )
    return locked.scalars().all()


async def record_error(session: AsyncSession, delivery_id: UUID, code: str) -> None:
    """Record why it is not being sent."""
    await session.execute(
        update(Delivery)
        .where(Delivery.id == delivery_id, Delivery.status == DeliveryStatus.PENDING)
        .values(error_code=code)
    )


async def delete_old(session: AsyncSession, *, older_than: timedelta, limit: int) -> int:
    """Delete deliveries that ended before that, with their attempts; returns how many."""
    old = (
        select(Delivery.id)
        .where(Delivery.finished_at < func.now() - older_than)
        .order_by(Delivery.finished_at)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    deleted = await session.execute(delete(Delivery).where(Delivery.id.in_(old)).returning(Delivery.id))
    return len(deleted.all())


def _count_end(session: AsyncSession, status: DeliveryStatus, *, many: int = 1) -> None:
    after_commit(session, lambda: metrics.DELIVERIES.add(status.value, by=many))


async def _lock_pending(session: AsyncSession, delivery_id: UUID) -> tuple[Delivery, datetime] | None:
    """The locked delivery and the time; None if it has ended."""
    result = await session.execute(
        select(Delivery)
        .where(Delivery.id == delivery_id, Delivery.status == DeliveryStatus.PENDING)
        .with_for_update(key_share=True)
        .execution_options(populate_existing=True)
    )
    delivery = result.scalar_one_or_none()
    return None if delivery is None else (delivery, now())


async def _make_due_now(session: AsyncSession, delivery: Delivery) -> None:
    if _is_alone(delivery):
        return
    changed = await session.execute(
        update(Delivery)
        .where(*_in_one_order(delivery), Delivery.status == DeliveryStatus.PENDING)
        .values(next_attempt_at=None)
        .returning(Delivery.id)
    )
    delivery.next_attempt_at = None
    if delivery.instance_id is not None:
        await make_due_now(session, SendWebhook.kind, instance_id=delivery.instance_id)
    else:
        await make_keys_due_now(session, [job_key(id) for id in changed.scalars()])


def _is_alone(delivery: Delivery) -> bool:
    """A test message: it is in no order."""
    return delivery.instance_id is None and delivery.project_webhook_id is None


def _in_one_order(delivery: Delivery) -> tuple[ColumnElement[bool], ...]:
    """The deliveries that are sent in order with this one: of one receiver, about one instance or about none."""
    if delivery.project_webhook_id is None:
        return (Delivery.instance_id == delivery.instance_id,)
    return (
        Delivery.project_webhook_id == delivery.project_webhook_id,
        Delivery.subject_id.is_not_distinct_from(delivery.subject_id),
    )


def job_key(delivery_id: UUID) -> str:
    """Of the job that sends a delivery of a project's webhook."""
    return f"delivery {delivery_id}"


async def _enqueue(session: AsyncSession, delivery: Delivery) -> None:
    if delivery.project_webhook_id is not None:
        work, key = SendProjectWebhook(delivery.id), job_key(delivery.id)
        await enqueue(session, work, project_id=delivery.project_id, unique_key=key)
        return
    await enqueue(
        session,
        SendWebhook(delivery_id=delivery.id),
        project_id=delivery.project_id,
        instance_id=delivery.instance_id,
    )
