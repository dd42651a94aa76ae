"""Compares the event log with the webhooks of projects, and writes the deliveries that they want.

From the log, not in the transaction of the event: so no request pays for it, and events that processes of the release
before write are sent, too. One process at a time works; the deliveries and the position are one transaction.
"""

import asyncio
from collections import defaultdict
from datetime import timedelta
from typing import Any
from uuid import UUID

import orjson
import structlog
from sqlalchemy import insert, text
from sqlalchemy.ext.asyncio import AsyncSession

from server.db.database import Database
from server.db.notify import Look, Notifier
from server.db.outages import DATABASE_ERRORS
from server.db.tables import Delivery
from server.events.event import COLUMNS, event_of
from server.events.replay import IS_KEPT
from server.queue.enqueue import enqueue_many
from server.queue.kinds import SendProjectWebhook
from server.tasks import stop_task
from server.webhooks.deliveries import job_key
from server.webhooks.delivery_rows import project_delivery_row

log = structlog.get_logger(__name__)

LOCK = 0x776562686F6F6B  # any number that no other program uses in this database
BATCH = 500  # positions per transaction
POLL_INTERVAL = timedelta(seconds=1)
LOOK = Look("(SELECT head FROM event_log)")
RETRY_DELAY = timedelta(seconds=1)
# After each transaction: events that come one by one share one.
PAUSE = timedelta(milliseconds=20)
PAUSE_WITHOUT_WEBHOOK = timedelta(seconds=1)

TRY_LOCK = text("SELECT pg_try_advisory_xact_lock(:lock)")
# Without a webhook nothing is read, and `first` is null.
STATE = text("""
    SELECT (SELECT min(after) FROM project_webhook WHERE disabled_at IS NULL) AS first,
           coalesce((SELECT position FROM webhook_feed), 0) AS position,
           coalesce((SELECT head FROM event_log), 0) AS head
""")
# FOR SHARE: a webhook that is being deleted or disabled is left out, or its change waits and then finds the deliveries.
# The instance as it was at the event: its snapshot, else that of the event before, else, if retention has deleted that
# one, the row. `_instance` in payload.py picks what receivers see.
WANTED = text(f"""
    SELECT {", ".join(f"event.{column}" for column in COLUMNS.split(", "))},
           webhook.id AS webhook_id, webhook.url,
           CASE WHEN event.instance_id IS NULL THEN NULL ELSE coalesce(
               event.data -> 'instance',
               (SELECT earlier.data -> 'instance' FROM event AS earlier
                WHERE earlier.instance_id = event.instance_id AND earlier.position < event.position
                  AND earlier.data ? 'instance'
                ORDER BY earlier.position DESC LIMIT 1),
               (SELECT to_jsonb(instance) - 'env' - 'secret_env' - 'webhook_url' FROM instance
                WHERE instance.id = event.instance_id)) END AS snapshot
    FROM event
    JOIN project_webhook AS webhook
      ON webhook.project_id = event.project_id AND webhook.types ? event.type AND webhook.after < event.position
    WHERE event.position > :after AND event.position <= :through AND webhook.disabled_at IS NULL
    ORDER BY event.position, webhook.id
    FOR SHARE OF webhook
""")
# Without a transaction: most databases have none.
ANY_WEBHOOK = "SELECT EXISTS (SELECT FROM project_webhook WHERE disabled_at IS NULL)"
ADVANCE = text("""
    INSERT INTO webhook_feed (position) VALUES (:position)
    ON CONFLICT (is_the_only_row) DO UPDATE SET position = EXCLUDED.position
""")


class WebhookFeed:
    """Runs in every process with workers."""

    def __init__(self, database: Database, notifier: Notifier, *, batch: int = BATCH) -> None:
        self._database = database
        self._notifier = notifier
        self._batch = batch
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="webhook feed")

    async def stop(self) -> None:
        if self._task is not None:
            await stop_task(self._task)
            self._task = None

    async def feed(self) -> bool | None:
        """Handle the next events; returns whether there are more, None if no webhook wants any."""
        async with self._database.write() as session:
            if not (await session.execute(TRY_LOCK, {"lock": LOCK})).scalar_one():
                return False  # another process does it
            state = (await session.execute(STATE)).one()
            if state.first is None:
                return None
            after = max(state.first, state.position)
            through = min(state.head, after + self._batch)
            if through <= after:
                return False
            if not (await session.execute(IS_KEPT, {"position": after + 1})).scalar_one():
                log.warning("webhook_feed.overtaken", after=after)  # by retention: no process ran for that long
            await _write_deliveries(session, after=after, through=through)
            await session.execute(ADVANCE, {"position": through})
            return bool(through < state.head)

    async def _run(self) -> None:
        wakeup = self._notifier.subscribe("event", LOOK)
        try:
            while True:
                try:
                    has_more = await self.feed() if await self._database.raw.fetchval(ANY_WEBHOOK) else None
                except DATABASE_ERRORS as error:
                    log.warning("webhook_feed.waits", error=type(error).__name__)
                    await asyncio.sleep(RETRY_DELAY.total_seconds())
                    continue
                except Exception:  # nothing is lost: it is read again
                    log.exception("webhook_feed.failed")
                    await asyncio.sleep(RETRY_DELAY.total_seconds())
                    continue
                if has_more:
                    continue
                await asyncio.sleep((PAUSE_WITHOUT_WEBHOOK if has_more is None else PAUSE).total_seconds())
                await wakeup.wait(self._notifier.poll_interval(POLL_INTERVAL))
        finally:
            self._notifier.unsubscribe("event", wakeup)


async def _write_deliveries(session: AsyncSession, *, after: int, through: int) -> None:
    found = await session.execute(WANTED, {"after": after, "through": through})
    rows: list[dict[str, Any]] = []
    for wanted in found.mappings():
        snapshot = wanted["snapshot"]
        rows.append(
            project_delivery_row(
                event_of(wanted),
                webhook_id=wanted["webhook_id"],
                url=wanted["url"],
                snapshot=orjson.loads(snapshot) if isinstance(snapshot, str) else snapshot,
            )
        )
    if not rows:
        return
    # In the order of the log: `seq` is drawn row by row.
    await session.execute(insert(Delivery), rows)
    by_project: dict[UUID, list[UUID]] = defaultdict(list)
    for row in rows:
        by_project[row["project_id"]].append(row["id"])
    for project_id, ids in by_project.items():
        works = [SendProjectWebhook(id) for id in ids]
        await enqueue_many(session, works, project_id=project_id, unique_keys=[job_key(id) for id in ids])
