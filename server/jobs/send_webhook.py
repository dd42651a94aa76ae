"""Sends one webhook: in order for each instance, at least once, or marked as failed."""

import random
from datetime import timedelta

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import now
from server.db.tables import Delivery, DeliveryStatus
from server.instances import transitions
from server.jobs.registry import JobContext, handles
from server.queue.handler import Again, Done, Failure, Outcome
from server.queue.kinds import SendProjectWebhook, SendWebhook
from server.webhooks import deliveries, project_webhooks, signing
from server.webhooks.sender import DeliveryResult
from server.webhooks.signing import WrongSigningKey, signing_secrets

log = structlog.get_logger(__name__)

KEY_MISSING = "SIGNING_KEY_MISSING"
KEY_RETRY_INTERVAL = timedelta(minutes=1)
# How soon a delivery that waits for earlier ones checks again.
QUEUE_POLL_SECONDS = 0.1


async def fail_delivery(session: AsyncSession, work: SendWebhook, failure: Failure) -> None:
    """The delivery fails with its job: no job would send it, and later deliveries must not wait for it."""
    await deliveries.give_up(session, work.delivery_id, failure.code)


@handles(SendProjectWebhook, failed=fail_delivery)
@handles(SendWebhook, failed=fail_delivery)
async def send_webhook(work: SendWebhook, ctx: JobContext) -> Outcome:
    async with ctx.read() as session:
        delivery = await session.get(Delivery, work.delivery_id)
        if delivery is None or delivery.status != DeliveryStatus.PENDING:
            return Done()
        left = await deliveries.time_until_turn(session, delivery)
    if left is not None:
        return Again(after=left + timedelta(seconds=random.uniform(1, 2) * QUEUE_POLL_SECONDS))
    sender = ctx.services.sender
    with sender.reserve_slot(delivery.project_id, delivery.url) as has_room:
        if not has_room:
            return Again(after=timedelta(seconds=random.uniform(2, 5) * QUEUE_POLL_SECONDS))
        try:
            async with ctx.write() as session:
                secrets = await signing_secrets(session, delivery.project_id, sender.key)
                begun = await deliveries.begin_attempt(session, work.delivery_id)
        except WrongSigningKey as wrong:
            return await _wait_for_key(work, ctx, str(wrong))
        if begun is None:
            return Done()
        delivery, moment = begun
        # If the process is killed from here on, it is sent again: at least once.
        signed = signing.signature_headers(delivery.id, delivery.body, secrets, at=moment)
        answer = await sender.send(delivery.url, delivery.body, signed)
    async with ctx.write() as session:
        if answer.is_gone:
            await _disable_webhook(session, delivery)
        pause = await deliveries.end_attempt(session, delivery.id, delivery.attempts, answer)
    _log(delivery, answer)
    return Done() if pause is None else Again(after=pause)


async def _wait_for_key(work: SendWebhook, ctx: JobContext, why: str) -> Outcome:
    """Retry until a process that has the key runs it; no failure of the receiver is counted."""
    log.error("webhook.no_signing_key", reason=why)
    async with ctx.write() as session:
        await deliveries.record_error(session, work.delivery_id, KEY_MISSING)
    return Again(after=KEY_RETRY_INTERVAL)


async def _disable_webhook(session: AsyncSession, delivery: Delivery) -> None:
    """After HTTP 410: send no more to this webhook; that of an instance, until a start sets another URL."""
    if delivery.project_webhook_id is not None:
        await project_webhooks.disable(session, delivery)
        return
    if delivery.instance_id is None:
        return
    instance = await transitions.lock(session, delivery.instance_id)
    if instance.webhook_url == delivery.url:
        await transitions.update(session, instance.id, cause=transitions.Cause(), webhook_disabled_at=now())
    await deliveries.give_up_others(session, delivery)


def _log(delivery: Delivery, answer: DeliveryResult) -> None:
    # Without the URL: it may contain tokens.
    log.info(
        "webhook.sent" if answer.is_delivered else "webhook.not_sent",
        delivery_id=delivery.id,
        type=delivery.event_type,
        attempt=delivery.attempts,
        http_status=answer.http_status,
        error=answer.error,
    )
