"""Polls the provider's offers, one segment at a time, and writes what changed. One job for all processes.

A run makes at most one call and says when the next is due. A new subscriber makes the job due at once.
"""

import time
from collections.abc import Sequence
from datetime import datetime, timedelta

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from server.clock import new_id
from server.errors import NovitaError
from server.events.event import EventType
from server.jobs.registry import JobContext, handles
from server.market import matches, regions, segments, tape
from server.market.matches import FiredAlert
from server.market.segments import Pause, Segment
from server.novita.models import Product
from server.novita.transport.concurrency import CallPriority
from server.observe import metrics
from server.queue.handler import Again, Outcome
from server.queue.kinds import PollMarket
from server.webhooks.deliveries import insert_delivery
from server.webhooks.delivery_rows import new_row
from server.webhooks.payload import event_body

log = structlog.get_logger(__name__)


@handles(PollMarket)
async def poll_market(_work: PollMarket, ctx: JobContext) -> Outcome:
    async with ctx.write() as session:
        poll = await segments.next_poll(
            session,
            hot=ctx.settings.market_hot,
            cold=ctx.settings.market_cold,
            calls_max=ctx.settings.market_calls,
        )
    if isinstance(poll, Pause):
        return Again(after=timedelta(seconds=poll.seconds))
    segment, began = poll.segment, time.monotonic()
    try:
        await (_poll_regions(poll.at, ctx) if segment is None else _poll_segment(segment, poll.at, ctx))
    except NovitaError as error:
        log.info("market.not_polled", region=segment and segment.region, code=error.code, error=error.message)
        # Without regions there is nothing else to poll.
        return Again(after=ctx.settings.market_hot if segment is None else timedelta(0))
    if segment is None:  # there may be new segments
        return Again(after=timedelta(0))
    return Again(after=timedelta(seconds=max(0.0, poll.then_seconds - (time.monotonic() - began))))


async def _poll_regions(at: datetime, ctx: JobContext) -> None:
    clusters = await ctx.novita.clusters(priority=CallPriority.POLL)
    async with ctx.write() as session:
        await regions.record_regions(session, clusters, at=at)


async def _poll_segment(segment: Segment, at: datetime, ctx: JobContext) -> None:
    products = await _list(segment, ctx)
    async with ctx.write() as session:
        changed = await tape.record_poll(session, segment, products, at=at)
        fired = await matches.fire_alerts(session, segment, at=at)
        await _send_webhooks(session, fired, at=at)
    metrics.MARKET_POLLS.add()
    metrics.MARKET_CHANGES.add(by=len(changed))
    metrics.MARKET_ALERTS.add(by=len(fired))


async def _send_webhooks(session: AsyncSession, fired: Sequence[FiredAlert], *, at: datetime) -> None:
    """To the URLs of the alerts; the project's own webhooks follow the log of events."""
    for alert in fired:
        if alert.webhook_url is None:
            continue
        type = EventType.MARKET_ALERT
        body = event_body(
            event_id=alert.event_id,
            type=type,
            occurred_at=at,
            instance_id=None,
            operation_id=None,
            caused_by=None,
            data=alert.data,
            instance=None,
        )
        row = new_row(new_id(), alert.project_id, alert.webhook_url, type, body, event_id=alert.event_id)
        await insert_delivery(session, row)


async def _list(segment: Segment, ctx: JobContext) -> Sequence[Product]:
    if segment.gpu_count == 0:
        listed = await ctx.novita.cpu_products(cluster_id=segment.cluster_id, priority=CallPriority.POLL)
        return [product.as_product((segment.region,)) for product in listed]
    return await ctx.novita.products(
        cluster_id=segment.cluster_id, billing=segment.mode, gpu_count=segment.gpu_count, priority=CallPriority.POLL
    )
