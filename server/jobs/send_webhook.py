"""Sending one message to one receiver: in order for each instance, at least once, or visibly given up."""

import random
from datetime import timedelta

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import now
from server.db.tables import Delivery, DeliveryStatus
from server.instances import moves
from server.jobs.handler import Tools, handles
from server.queue.kinds import SendWebhook
from server.queue.outcome import Again, Done, Failure, Outcome
from server.webhooks import deliveries, sign
from server.webhooks.secrets import WrongKey, signing_secrets
from server.webhooks.send import Answer

log = structlog.get_logger(__name__)

NO_KEY = "SIGNING_KEY_MISSING"
KEY_COMES = timedelta(minutes=1)
# How soon whoever stands in line looks again, while those before it are being sent.
SHORTLY = 0.1


async def not_sent(session: AsyncSession, work: SendWebhook, failure: Failure) -> None:
    """The job is given up, so nothing would ever send it; and those behind it must not wait for that."""
    await deliveries.give_up(session, work.delivery_id, failure.code)


@handles(SendWebhook, failed=not_sent)
async def send_webhook(work: SendWebhook, tools: Tools) -> Outcome:
    async with tools.read() as session:
        delivery = await session.get(Delivery, work.delivery_id)
        if delivery is None or delivery.status != DeliveryStatus.PENDING:
            return Done()
        left = await deliveries.waits_for(session, delivery)
    if left is not None:
        return Again(after=left + timedelta(seconds=random.uniform(1, 2) * SHORTLY))
    sender = tools.services.sender
    with sender.place(delivery.project_id, delivery.url) as has_room:
        if not has_room:
            return Again(after=timedelta(seconds=random.uniform(2, 5) * SHORTLY))
        try:
            async with tools.write() as session:
                secrets = await signing_secrets(session, delivery.project_id, sender.key)
                begun = await deliveries.begin_attempt(session, work.delivery_id)
        except WrongKey as wrong:
            return await _without_key(work, tools, str(wrong))
        if begun is None:
            return Done()
        delivery, moment = begun
        # Killed from here on, it is sent again: at least once.
        signed = sign.headers(delivery.id, delivery.body, secrets, at=moment)
        answer = await sender.send(delivery.url, delivery.body, signed)
    async with tools.write() as session:
        if answer.is_gone:
            await _disable(session, delivery)
        pause = await deliveries.end_attempt(session, delivery.id, delivery.attempts, answer)
    _log(delivery, answer)
    return Done() if pause is None else Again(after=pause)


async def _without_key(work: SendWebhook, tools: Tools, why: str) -> Outcome:
    """Not the receiver's fault: it waits, and says so, until a process with the key takes it."""
    log.error("webhook.no_signing_key", reason=why)
    async with tools.write() as session:
        await deliveries.note_trouble(session, work.delivery_id, NO_KEY)
    return Again(after=KEY_COMES)


async def _disable(session: AsyncSession, delivery: Delivery) -> None:
    """410: the receiver wants nothing more of this instance. Another URL, given with a start, begins anew."""
    if delivery.instance_id is None:
        return
    instance = await moves.locked(session, delivery.instance_id)
    if instance.webhook_url == delivery.url:
        await moves.note(session, instance.id, cause=moves.Cause(), webhook_disabled_at=now())
    await deliveries.give_up_others(session, delivery)


def _log(delivery: Delivery, answer: Answer) -> None:
    # Without the URL: people put tokens into it.
    log.info(
        "webhook.sent" if answer.is_delivered else "webhook.not_sent",
        delivery_id=delivery.id,
        type=delivery.event_type,
        attempt=delivery.attempts,
        http_status=answer.http_status,
        error=answer.error,
    )
