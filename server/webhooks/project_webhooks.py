"""Webhooks of projects: created, deleted, and disabled by their receiver. server/webhooks/feed.py sends to them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

import structlog
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from server.auth.caller import Caller
from server.clock import now
from server.db.database import Database
from server.db.tables import Delivery, Project, ProjectWebhook, ProjectWebhookRow
from server.db.tables.rows import make_rows, select_rows
from server.errors import Invalid, NotFound, Problem, Refused
from server.events.event import EventType
from server.events.replay import position_now
from server.idempotency import CreatedObject, IdempotentRequest, create_once, key_problems
from server.ssrf import PrivateAddresses
from server.webhooks.deliveries import WEBHOOK_DISABLED, give_up_all
from server.webhooks.urls import url_problem

log = structlog.get_logger(__name__)

WEBHOOKS_MAX = 20  # per project: each event is stored once for each of them
WEBHOOK_DELETED = "WEBHOOK_DELETED"
BY_IDS = f"{select_rows(ProjectWebhookRow)} WHERE id = ANY($1::uuid[]) AND project_id = $2"


@dataclass(frozen=True, slots=True)
class WebhookDraft:
    url: str
    types: tuple[str, ...]
    idempotency_key: str | None = None

    def problems(self, private_addresses: PrivateAddresses) -> Iterator[Problem]:
        yield from key_problems(self.idempotency_key)
        problem = url_problem(self.url, private_addresses)
        if problem is not None:
            yield Problem("INVALID_WEBHOOK_URL", problem, ("input", "url"))
        if not self.types:
            yield Problem("INVALID_EVENT_TYPE", "Name at least one type.", ("input", "types"))
        known = set(EventType)
        for place, type in enumerate(self.types):
            if type not in known:
                yield Problem("INVALID_EVENT_TYPE", "There is no such event type.", ("input", "types", str(place)))


async def create_webhook(
    database: Database, draft: WebhookDraft, *, by: Caller, private_addresses: PrivateAddresses
) -> CreatedObject[ProjectWebhook]:
    """Send the project's events of these types to a URL, from the next event on."""
    problems = list(draft.problems(private_addresses))
    if problems:
        raise Invalid(problems)
    types = sorted(set(draft.types))
    request = IdempotentRequest.of(by, draft.idempotency_key, "createWebhook", {"url": draft.url, "types": types})

    async def create(session: AsyncSession, webhook_id: UUID) -> ProjectWebhook:
        # Serialises the creates of one project, so that the count holds.
        await session.execute(select(Project.id).where(Project.id == by.project_id).with_for_update(key_share=True))
        existing = await session.scalar(
            select(func.count()).select_from(ProjectWebhook).where(ProjectWebhook.project_id == by.project_id)
        )
        if (existing or 0) >= WEBHOOKS_MAX:
            raise Refused("TOO_MANY_WEBHOOKS", f"A project has at most {WEBHOOKS_MAX} webhooks; delete one first.")
        webhook = ProjectWebhook(
            id=webhook_id,
            project_id=by.project_id,
            url=draft.url,
            types=types,
            after=await position_now(session),
            created_by=by.token_id,
            created_at=now(),
        )
        session.add(webhook)
        await session.flush()
        return webhook

    return await create_once(database, request, ProjectWebhook, create)


async def delete_webhook(session: AsyncSession, webhook_id: UUID, *, project_id: UUID) -> None:
    """Its pending messages fail; what was sent stays on record."""
    webhook = await _lock(session, webhook_id)
    if webhook is None or webhook.project_id != project_id:
        raise NotFound("webhook", ("input", "id"))
    await give_up_all(session, Delivery.project_webhook_id == webhook_id, error=WEBHOOK_DELETED)
    await session.delete(webhook)


async def disable(session: AsyncSession, delivery: Delivery) -> None:
    """The receiver wants no more: send nothing to this webhook from now on."""
    webhook = None if delivery.project_webhook_id is None else await _lock(session, delivery.project_webhook_id)
    if webhook is None:
        return
    webhook.disabled_at = webhook.disabled_at or now()
    log.info("webhook.disabled", project_webhook_id=webhook.id)
    await give_up_all(session, Delivery.project_webhook_id == webhook.id, error=WEBHOOK_DISABLED, but=delivery.id)


async def get_webhooks(database: Database, ids: Sequence[UUID], *, project_id: UUID) -> dict[UUID, ProjectWebhookRow]:
    records = await database.raw.fetch_by_keys(BY_IDS, ids, project_id)
    return {row.id: row for row in make_rows(ProjectWebhookRow, records)}


async def _lock(session: AsyncSession, webhook_id: UUID) -> ProjectWebhook | None:
    """Waits for a feed that is writing deliveries to it, so that the caller sees them."""
    return await session.get(ProjectWebhook, webhook_id, with_for_update=True, populate_existing=True)
